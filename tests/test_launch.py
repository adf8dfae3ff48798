"""A run that has ended is held against its baseline, and whatever becomes of that, the run is reported."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from harness import explained
from harness.comparison import Explanation
from harness.launch import _against_baseline
from harness.places import Places
from harness.run.folder import RunFolder
from tests.explain.box import Told, run


@pytest.fixture
def where(tmp_path: Path) -> Places:
    return Places(root=tmp_path, state=tmp_path / "state", runs=tmp_path / "runs")


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=200)


def said(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def made(where: Places, day: int, told: Told) -> RunFolder:
    return run(where.runs, f"202611{day:02}-100000-qwen-{day:04x}", told)


def test_the_first_run_of_a_workload_is_held_against_nothing(where: Places, console: Console) -> None:
    assert _against_baseline(made(where, 1, Told()), where, console) is None
    assert said(console) == ""


def test_the_answer_is_kept_in_the_folder(where: Places, console: Console) -> None:
    made(where, 1, Told())
    slow = made(where, 2, Told(rate=12_800.0, seed=2))
    found = _against_baseline(slow, where, console)
    assert found is not None
    assert found.verdict == "SLOWER"
    assert (slow.read_json("explanation.json") or {})["sentence"] == found.sentence
    assert "</html>" in (slow.path / "explanation.html").read_text()


def test_runs_that_were_executed_alike_are_what_it_is_held_against(where: Places) -> None:
    """Other ways of running the same work, made in between, would hide what each of them does."""
    here, there = {"execution.threads": 1}, {"execution.threads": 8}
    alike = [made(where, 1, Told(facts=here)), made(where, 3, Told(facts=here))]
    other = made(where, 2, Told(facts=there, rate=30_000.0))
    group = explained.before_of(made(where, 4, Told(facts=here)), where.runs)
    assert group is not None
    assert {f.id for f in group.folders} == {f.id for f in alike}
    group = explained.before_of(made(where, 5, Told(facts={"execution.threads": 2})), where.runs)
    assert group is not None
    assert other.id not in {f.id for f in group.folders}


def test_a_fault_in_explaining_does_not_lose_the_run(
    where: Places, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> Explanation:
        raise ZeroDivisionError("by design")

    monkeypatch.setattr(explained, "answer", broken)
    made(where, 1, Told())
    second = made(where, 2, Told(seed=2))
    assert _against_baseline(second, where, console) is None
    assert "by design" in said(console)
    assert "ZeroDivisionError" in Path(second.path / "explanation.log").read_text()
