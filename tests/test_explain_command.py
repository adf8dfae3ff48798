"""``harness explain``, ``diff`` and ``baseline``, as a person types them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from harness.cli import main
from harness.run.folder import RunFolder
from tests.explain.box import Told, run

GOOD, OTHER = Told(), {"workload.model.heads": "full"}
Say = Callable[..., tuple[int, str, str]]


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HARNESS_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path / "runs"


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    def typed(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return typed


def made(runs: Path, day: int, told: Told = GOOD) -> RunFolder:
    return run(runs, f"202611{day:02}-100000-qwen-{day:04x}", replace(told, seed=day))


@pytest.mark.parametrize(
    ("told", "code", "first"),
    [
        (Told(rate=12_800.0), 1, "40."),
        (Told(rate=30_000.0), 0, "39."),
        (Told(rate=30_000.0, pause_s=6.0), 125, "39."),  # quicker steps, and a slower run
        (Told(rate=21_500.0), 125, "It is not decided"),
        (Told(rate=12_800.0, facts=OTHER), 125, "This is not the same work"),
        (Told(steps=3, stderr="Traceback (most recent call last):\nRuntimeError: boom\n"), 1, ""),
    ],
)
def test_the_exit_code_is_the_answer(runs: Path, say: Say, told: Told, code: int, first: str) -> None:
    made(runs, 1)
    made(runs, 2, told)
    seen, shown, _ = say("explain", "@2", "@1")
    assert seen == code, shown
    assert shown.startswith(first)
    if told.stderr:
        assert "boom" in shown.splitlines()[0]


def test_json_has_what_a_program_needs(runs: Path, say: Say) -> None:
    made(runs, 1)
    made(runs, 2, Told(rate=12_800.0, facts={"execution.threads": 2}))
    _, shown, _ = say("explain", "@2", "@1", "--json")
    found = json.loads(shown)
    assert found["verdict"] == "SLOWER"
    assert found["comparability"] == "COMPARABLE"
    assert found["sentence"]
    assert set(found["ratio"]) == {"value", "low", "high"}
    assert {"phase", "log_ratio", "share"} <= set(found["contributions"][0])
    for suspect in found["suspects"]:
        assert {"fact", "before", "after", "reason", "rank"} <= set(suspect)
    assert isinstance(found["also_changed"], list)


def test_one_run_is_held_against_its_baseline_and_else_against_those_before(runs: Path, say: Say) -> None:
    first, second = made(runs, 1), made(runs, 2)
    code, shown, _ = say("baseline", "set", first.id)
    assert code == 0
    assert first.id in shown
    made(runs, 3, Told(rate=12_800.0))
    code, shown, _ = say("explain", "@1")
    assert code == 1
    assert f"baseline {first.id}" in shown
    assert second.id not in shown


def test_the_page_is_whole_and_needs_no_network(runs: Path, say: Say, tmp_path: Path) -> None:
    made(runs, 1)
    made(runs, 2, Told(rate=12_800.0))
    code, shown, _ = say("explain", "@2", "@1", "--html", str(tmp_path / "why.html"))
    page = (tmp_path / "why.html").read_text()
    assert code == 1
    assert "why.html" in shown
    assert "</html>" in page
    assert "http://" not in page.replace("http://www.w3.org/", "")


def test_diff_shows_what_differs_and_all_of_it(runs: Path, say: Say) -> None:
    made(runs, 1)
    made(runs, 2, Told(facts={"environment.package.torch": "2.12.0+cu130"}))
    code, shown, _ = say("diff", "@2", "@1")
    assert code == 0
    assert "2.12.0+cu130" in shown
    assert "triton" not in shown
    assert "triton" in say("diff", "@2", "@1", "--all")[1]
    changes = json.loads(say("diff", "@2", "@1", "--json")[1])["changes"]
    assert [c["after"] for c in changes if c["fact"] == "environment.package.torch"] == ["2.12.0+cu130"]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("explain", "@1", "@1"), "on both sides"),
        (("explain", "@9"), "there are 1"),
        (("explain", "@1"), "no run of the same workload is older"),
        (("explain", "@nightly", "@1"), "nightly"),
        (("explain", "@1", "nothing"), "nothing"),
        (("explain", "@1", "--html", "/nowhere/why.html"), "/nowhere"),
        (("explain", "@1", "--margin", "90"), "margin"),
        (("diff", "@1"), "B"),
        (("baseline", "set", "@7"), "@7"),
    ],
)
def test_bad_input_is_one_line(runs: Path, say: Say, arguments: tuple[str, ...], why: str) -> None:
    made(runs, 1)
    code, shown, said = say(*arguments)
    assert (code, shown) == (2, "")
    assert why in said
    assert len(said.strip().splitlines()) == 1


@pytest.mark.parametrize(("spec", "why"), [("{", "spec.json"), ('{"schema": 99}', "schema 99")])
def test_a_run_that_cannot_be_read_is_no_slow_run(runs: Path, say: Say, spec: str, why: str) -> None:
    """Exit code 1 would make ``git bisect`` blame the commit."""
    made(runs, 1)
    (made(runs, 2).path / "spec.json").write_text(spec)
    code, shown, said = say("explain", "@2", "@1")
    assert (code, shown) == (2, "")
    assert why in said


def test_a_page_that_cannot_be_written(runs: Path, say: Say) -> None:
    made(runs, 1)
    made(runs, 2)
    code, _, said = say("explain", "@2", "@1", "--html", "/dev/full")
    assert code == 2
    assert "/dev/full" in said
