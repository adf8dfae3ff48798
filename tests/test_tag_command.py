"""Tags as a person meets them: given with a run or later, shown, and mirrored."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.cli import main
from harness.commands import running
from harness.launch import Outcome
from harness.mirror import content
from harness.mirror.tracking import _source_digest
from harness.places import places
from harness.run import tags
from harness.run.folder import run_folders
from harness.run.runner import Order
from tests import samples

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("COLUMNS", "200")


def test_tags_are_given_shown_and_taken_away(capfd: Capture) -> None:
    first = samples.recorded(places().runs, "20261129-100000-tiny-aaaa")
    second = samples.recorded(places().runs, "20261129-110000-tiny-bbbb")
    assert main(["tag", "good", "@1", "@2"]) == 0
    assert main(["tag", "late", "@1"]) == 0
    capfd.readouterr()
    assert main(["tag", "late", "@good"]) == 0
    assert capfd.readouterr().out == f"{first.id}: good, late\n{second.id}: good, late, as before\n"
    assert main(["show", "@1"]) == 0
    assert "good, late" in capfd.readouterr().out
    assert main(["show", "@1", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["tags"] == ["good", "late"]
    assert main(["tag", "good", "@1", "--remove"]) == 0
    assert tags.tags_of(second) == ("late",)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tag", "3", "@1"], "the tag 3 is a number, and @3 already means"),
        (["tag", "a b", "@1"], "'a b' cannot be a tag"),
        (["tag", "good", "@9"], "@9 names no run: there are 1"),
        (["tag", "good", "@bad"], "@bad: no run in "),
        (["tag", "good"], "Missing argument 'RUN...'"),
        (["run", "toy", "--tag", "3"], "the tag 3 is a number"),
        (["rerun", "@1", "--tag", "@x"], "'@x' cannot be a tag"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_started(arguments: list[str], message: str, capfd: Capture) -> None:
    samples.recorded(places().runs, "20261129-100000-tiny-aaaa")
    assert main(arguments) == 2
    printed = capfd.readouterr()
    assert message in printed.err
    assert printed.err.count("\n") == 1
    assert [tags.tags_of(folder) for folder in run_folders(places().runs)] == [()]


def test_mlflow_is_told_of_tags_and_of_a_change_of_them(tmp_path: Path) -> None:
    folder = samples.recorded(tmp_path)
    before = _source_digest(folder.path)
    tags.add(folder, ["good", "b"])
    assert content.tags(folder.load())["harness.tags"] == "b, good"
    assert _source_digest(folder.path) != before  # the mirror of a run that is complete is stale now
    tags.remove(folder, ["good", "b"])
    assert content.tags(folder.load())["harness.tags"] == ""


def test_a_run_is_tagged_from_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    orders: list[Order] = []

    def started(order: Order, *_: object) -> Outcome:
        orders.append(order)
        return Outcome(samples.recorded(places().runs, f"20261129-12000{len(orders)}-toy-aaaa").load(), "", None)

    monkeypatch.setattr(running, "start", started)
    assert main(["run", "toy", "--tag", "one", "--tag", "two", "--tag", "one", "--json"]) == 0
    assert main(["run", "--tag", "three", "--json", "--", "true"]) == 0
    assert [order.tags for order in orders] == [("one", "two"), ("three",)]
