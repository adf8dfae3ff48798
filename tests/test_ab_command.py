"""``harness ab`` as a person meets it: the plan, the turns, what is kept when it stops, and the answer."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from harness.cli import main
from harness.commands import ab as command
from harness.launch import Outcome
from harness.pin import code
from harness.places import Places, places
from harness.records import Interval, Result, Status
from harness.run import process, tags
from harness.run.folder import run_folders
from harness.run.interleaved import code_of, with_code
from harness.run.runner import Order
from tests import samples

Capture = pytest.CaptureFixture[str]
A, B = "toy steps=7", "toy steps=7 slow.forward=0.01"


class Runs:
    """Stands for the runner: each order becomes a finished run at once, or ends as ``fate`` says of its number."""

    def __init__(self) -> None:
        self.orders: list[Order] = []
        self.fate: Callable[[int], tuple[Status, int | None]] = lambda _: ("finished", None)

    def start(self, order: Order, where: Places, *_: object, **__: object) -> Outcome:
        self.orders.append(order)
        number = len(self.orders)
        folder = samples.recorded(where.runs, f"20261129-10{number:04}-toy-aaaa")
        folder.write_json("spec.json", order.spec.to_json())
        tags.add(folder, order.tags)
        status, signal = self.fate(number)
        value = 10_000.0 if order.spec.config["slow.forward"] else 20_000.0
        rate = Interval(value, 0.99 * value, 1.01 * value)
        result = Result(status, None, signal, "it broke", 1.0, 21.0, replace(samples.summary(), throughput_tok_s=rate))
        folder.write_json("result.json", result.to_json())
        return Outcome(folder.load(), "", None)


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    monkeypatch.setenv("HARNESS_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("COLUMNS", "300")
    made = Runs()
    monkeypatch.setattr(command, "start", made.start)
    monkeypatch.setattr(command, "verified", lambda order, *_: order)
    return made


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The sides that were to be explained, instead of an explanation."""
    found: list[list[str]] = []

    def explain_sides(before: object, after: object, *_: object) -> int:
        found.append([str(side.name) for side in (before, after)])  # type: ignore[attr-defined]
        found.append([",".join(f.id for f in side.folders) for side in (before, after)])  # type: ignore[attr-defined]
        return 7

    monkeypatch.setattr(command, "explain_sides", explain_sides)
    return found


def test_the_runs_are_made_in_turns_and_then_explained(runs: Runs, asked: list[list[str]], capfd: Capture) -> None:
    assert main(["ab", A, B, "--name", "x"]) == 7
    assert "".join("B" if order.spec.config["slow.forward"] else "A" for order in runs.orders) == "ABBABAAB"
    assert [order.tags for order in runs.orders[:2]] == [("x-a",), ("x-b",)]
    assert asked[0] == ["@x-a", "@x-b"]
    numbers = [[int(folder_id.split("-")[1]) - 100000 for folder_id in side.split(",")] for side in asked[1]]
    assert numbers == [[1, 4, 6, 7], [2, 3, 5, 8]]
    said = capfd.readouterr().err
    assert "8 runs, ABBA BAAB: how long is not known" in said
    assert "run 3 of 8: B, toy steps=7 slow.forward=0.01" in said
    assert "so far A 20.0 Ktok/s (1 run), B 10.0 Ktok/s (1 run)" in said
    assert "explain @x-a @x-b" in said
    assert "no test" not in said


def test_how_long_it_takes_is_said_where_history_says_it(asked: list[list[str]], capfd: Capture) -> None:
    main(["ab", A, B, "--repeat", "1", "--name", "x"])
    capfd.readouterr()
    main(["ab", A, B, "--repeat", "2", "--name", "y"])
    said = capfd.readouterr().err
    assert "4 runs, ABBA: about 1:20" in said  # four of 20 s
    assert "2 a side are no test by themselves (the smallest p they can give is 0.33)" in said
    assert asked


def test_two_of_one_kind_are_said_to_be_so(asked: list[list[str]], capfd: Capture) -> None:
    main(["ab", A, "toy  steps=7"])
    assert "A and B are the same" in capfd.readouterr().err
    assert len(asked) == 2


def test_runs_of_both_cold_and_warm_starts_are_said_to_be_so(
    runs: Runs, asked: list[list[str]], monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> None:
    def start(order: Order, where: Places, *_: object, **__: object) -> Outcome:
        run = runs.start(order, where).run
        first = len(runs.orders) == 1
        summary = replace(run.result.summary, cache_start="cold" if first else "warm")
        return Outcome(replace(run, result=replace(run.result, summary=summary)), "", None)

    monkeypatch.setattr(command, "start", start)
    main(["ab", A, B, "--repeat", "2"])
    said = capfd.readouterr().err
    assert "the runs of A started with the compile cache cold, warm" in said
    assert "the runs of B" not in said
    assert asked


@pytest.mark.parametrize(
    ("fate", "code", "words"),
    [
        (("failed", None), 1, "error: run 3 of 8 (B) failed, so no more are made: it broke"),
        (("killed", 9), 1, "error: run 3 of 8 (B) killed"),
        (("killed", 2), 130, "kept, B"),
    ],
)
def test_what_is_there_is_kept_when_a_run_fails(
    runs: Runs, asked: list[list[str]], fate: tuple[Status, int | None], code: int, words: str, capfd: Capture
) -> None:
    runs.fate = lambda number: fate if number == 3 else ("finished", None)
    assert main(["ab", A, B, "--name", "x"]) == code
    assert (len(runs.orders), asked) == (3, [])
    said = capfd.readouterr().err
    assert words in said
    assert "kept, A: 20261129-100001-toy-aaaa\n" in said
    assert "kept, B: 20261129-100002-toy-aaaa, 20261129-100003-toy-aaaa\n" in said
    assert re.search(r"compare what is there: \S*harness explain @x-a @x-b\n", said)


def test_ctrl_c_between_two_runs_keeps_them_too(runs: Runs, monkeypatch: pytest.MonkeyPatch, capfd: Capture) -> None:
    def interrupted(order: Order, where: Places, *_: object, **__: object) -> Outcome:
        if runs.orders:
            raise KeyboardInterrupt
        return runs.start(order, where)

    monkeypatch.setattr(command, "start", interrupted)
    assert main(["ab", A, B, "--name", "x"]) == 130
    said = capfd.readouterr().err
    assert "kept, A: 20261129-100001-toy-aaaa" in said
    assert "compare what is there" not in said  # there is nothing of B


@pytest.mark.parametrize("taken", [process.signals_taken(lambda _: None), suppress(KeyboardInterrupt)])
def test_one_ctrl_c_ends_the_series_whoever_takes_it(
    runs: Runs,
    asked: list[list[str]],
    taken: AbstractContextManager[None],
    monkeypatch: pytest.MonkeyPatch,
    capfd: Capture,
) -> None:
    """As while a run that has ended writes its record, and while it is sent to MLflow: the run itself finishes."""

    def start(order: Order, where: Places, *_: object, **__: object) -> Outcome:
        outcome = runs.start(order, where)
        if len(runs.orders) == 2:
            with taken:
                signal.raise_signal(signal.SIGINT)
        return outcome

    monkeypatch.setattr(command, "start", start)
    assert main(["ab", A, B, "--name", "x"]) == 130
    assert (len(runs.orders), asked) == (2, [])
    said = capfd.readouterr().err
    assert "stopped by Ctrl-C in run 2 of 8\nkept, A: 20261129-100001-toy-aaaa\n" in said
    assert "kept, B: 20261129-100002-toy-aaaa\n" in said
    assert signal.set_wakeup_fd(-1) == -1  # nothing is left behind


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["toy"], "Missing argument 'SPEC_B'"),
        (["toy", "tinny"], "unknown recipe tinny: did you mean tiny?"),
        (["toy", "toy stepz=1"], "unknown setting stepz: did you mean steps?"),
        (["toy", "@9"], "'@9' names no run: there are none"),
        (["toy", "toy", "--repeat", "0"], "0 is not in the range"),
        (["toy", "toy", "--name", "a b"], "'a b-a' cannot be a tag"),
        (["toy", "toy", "--html", "/nowhere/page.html"], "there is no folder /nowhere"),
        (["toy", "qwen3_6_27b_8gpu"], "qwen3_6_27b_8gpu needs 8 RTX PRO 6000 GPUs"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_started(
    runs: Runs, arguments: list[str], message: str, capfd: Capture
) -> None:
    assert main(["ab", *arguments]) == 2
    printed = capfd.readouterr()
    assert message in printed.err
    assert printed.err.count("\n") == 1
    assert runs.orders == []
    assert run_folders(places().runs) == []


def test_a_name_that_has_runs_takes_no_more(runs: Runs, asked: list[list[str]], capfd: Capture) -> None:
    main(["ab", A, B, "--name", "x", "--repeat", "1"])
    capfd.readouterr()
    assert main(["ab", A, B, "--name", "x", "--repeat", "1"]) == 2
    assert "--name x: 1 runs have the tag x-a already" in capfd.readouterr().err
    assert len(runs.orders) == 2
    assert asked


def test_the_code_stays_what_it_was_when_all_began(tmp_path: Path) -> None:
    identity = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    folder = tmp_path / "code"
    (folder / "sub").mkdir(parents=True)
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        (folder / "sub" / "train.py").write_text("first\n")
        subprocess.run(["git", *arguments], cwd=folder, env={**os.environ, **identity}, check=True)
    (folder / "sub" / "train.py").write_text("when it began\n")
    where = Places(root=folder, state=tmp_path / "state", runs=tmp_path / "runs")
    order = replace(ORDER, code_folder=folder / "sub")
    begun = code_of(order, where)
    assert with_code(order, begun, where) is order
    (folder / "sub" / "train.py").write_text("edited in the meantime\n")
    later = with_code(order, begun, where)
    assert (later.code_folder / "train.py").read_text() == "when it began\n"
    assert later.code_folder != order.code_folder
    assert with_code(order, None, where) is order
    assert code.read_code(later.code_folder) == replace(begun, root=later.code_folder.parent) if begun else False


ORDER = Order(spec=None, environment=None, code_folder=Path())  # type: ignore[arg-type]


@pytest.mark.slow
def test_real_runs_are_told_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Slower by a known amount: the sides are found to differ, and by which phase."""
    monkeypatch.undo()
    fast = "toy steps=120 seconds=0.01"
    variables = {
        **os.environ,
        "HARNESS_RUNS": str(tmp_path / "real"),
        "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/store/mlflow.db",
    }
    done = subprocess.run(
        [
            ".venv/bin/harness",
            "ab",
            fast,
            f"{fast} slow.forward=0.02",
            "--json",
        ],
        capture_output=True,
        env=variables,
        check=False,
        text=True,
        cwd=Path(__file__).resolve().parents[1],
    )
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert found["verdict"] == "SLOWER"
    assert found["throughput"]["basis"] == "tested"
    assert found["suspects"][0]["fact"] == "execution.slow.forward"
    assert [len(found[side]["runs"]) for side in ("before", "after")] == [4, 4]
