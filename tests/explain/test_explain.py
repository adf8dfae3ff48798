"""The whole answer: its properties, and what it says where a part of a run is gone."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest

from benchmarks.pairs.pair import pair
from harness.comparison import Explanation, Measured, Side
from harness.errors import HarnessError
from harness.explain.explain import explain
from harness.explained import Group, answer, measured
from harness.records import Fingerprint, Value
from harness.run.folder import RunFolder
from tests.explain.box import COLD, PHASES, Told, run

FILES = ("fingerprint.json", "events.jsonl", "caches.json", "result.json", "steps.parquet", "spec.json", "stderr.log")
SLOW = Told(rate=12_800.0, facts={"execution.threads": 2}, seed=3)


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> tuple[Side, Side]:
    """Two runs a side, in turns."""
    runs = tmp_path_factory.mktemp("runs")
    names = [f"2026110{n}-100000-qwen-000{n}" for n in range(4)]
    folders = [run(runs, name, replace(told, seed=n)) for n, (name, told) in enumerate(zip(names, TURNS, strict=True))]
    return (
        measured(Group("A", (folders[0], folders[3]))),
        measured(Group("B", (folders[1], folders[2]))),
    )


TURNS = (Told(), SLOW, SLOW, Told())


def ratio(found: Explanation) -> float:
    assert found.throughput.ratio is not None
    return found.throughput.ratio.value


def test_the_parts_sum_to_the_whole(sides: tuple[Side, Side]) -> None:
    found = explain(*sides)
    assert ratio(found) == pytest.approx(12.8 / 21.5, rel=0.01)
    assert sum(c.log_ratio for c in found.contributions) == pytest.approx(math.log(ratio(found)), abs=1e-9)


def test_swapped_sides_turn_every_sign(sides: tuple[Side, Side]) -> None:
    there, back = explain(*sides), explain(sides[1], sides[0])
    assert (there.verdict, back.verdict) == ("SLOWER", "FASTER")
    assert ratio(there) * ratio(back) == pytest.approx(1)
    forth = {c.phase: c.log_ratio for c in there.contributions}
    assert {c.phase: -c.log_ratio for c in back.contributions} == pytest.approx(forth)


def test_the_order_of_facts_and_of_runs_changes_nothing(sides: tuple[Side, Side]) -> None:
    def shuffled(side: Side) -> Side:
        return Side(side.name, tuple(_other_order(m) for m in reversed(side.runs)))

    assert explain(shuffled(sides[0]), shuffled(sides[1])).to_json() == explain(*sides).to_json()


def _other_order(m: Measured) -> Measured:
    facts = {name: m.facts[name] for name in reversed(list(m.facts))}
    return replace(m, facts=facts, run=replace(m.run, fingerprint=Fingerprint(facts)))


@pytest.mark.parametrize("count", [1, 2, 3, 6, 7])
def test_whatever_is_gone_there_is_an_answer_or_one_line(tmp_path: Path, count: int) -> None:
    """Each set of ``count`` files removed from the second run."""
    good = run(tmp_path, "20261101-100000-qwen-aaaa", Told(steps=60))
    whole = run(tmp_path, "20261102-100000-qwen-bbbb", Told(steps=60, rate=12_800.0))
    for gone in combinations(FILES, count):
        folder = replace(whole, path=tmp_path / ("part-" + "-".join(gone)))
        shutil.copytree(whole.path, folder.path)
        for name in gone:
            (folder.path / name).unlink()
        sides = (Group("good", (good,)), Group("part", (folder,)))
        if "spec.json" in gone:
            with pytest.raises(HarnessError, match=r"spec\.json") as refused:
                answer(*sides, tmp_path)
            assert "\n" not in str(refused.value)
        else:
            found = answer(*sides, tmp_path)
            assert found.sentence.endswith(".")
            assert any("missing" in note for note in found.notes), found.notes
        shutil.rmtree(folder.path)


def test_time_between_the_steps_is_told_and_has_its_suspect(tmp_path: Path) -> None:
    """The steps are as quick as before, and the run takes twice as long: it stops to write checkpoints."""
    usual = run(tmp_path, "20261101-100000-qwen-aaaa", Told())
    pausing = run(tmp_path, "20261102-100000-qwen-bbbb", Told(pause_s=6.0, seed=2))
    found = answer(Group("usual", (usual,)), Group("pausing", (pausing,)), tmp_path)
    assert "but 50 % of its time passed between the steps, before: 0 % (it wrote more checkpoints)" in found.sentence
    assert "; first suspect: checkpoints in 1,000 steps: 97, before: 0" in found.sentence
    back = answer(Group("pausing", (pausing,)), Group("usual", (usual,)), tmp_path)
    assert "but none of its time passed between the steps, before: 50 % (it wrote fewer checkpoints)" in back.sentence
    for each in (found, back):
        assert [s.change.fact for s in each.suspects] == ["observed.checkpoints_per_1000_steps"]
        assert each.suspects[0].phases == ("between the steps",)
    assert found.suspects[0].evidence[0] == "between the steps: 0 % of the time before, 50 % after"


@pytest.mark.parametrize(
    ("kind", "seed", "told", "fact"),
    [
        ("recompiles", 9016, "went into compiling after the first step", "observed.recompiles"),
        (
            "interval",
            7008,
            "went into evaluations, before: 0 % (it evaluated more often)",
            "execution.train.eval_every",
        ),
        ("interval", 7005, "was in no recorded phase, before: 1.4 %", "execution.train.checkpoint_every"),
    ],
)
def test_an_undecided_speed_still_has_what_a_few_long_steps_went_into(
    tmp_path: Path, kind: str, seed: int, told: str, fact: str
) -> None:
    """One run a side: 3 more runs would settle the speed, and nobody needs them to see that it compiled for an hour."""
    truth = pair(kind, seed, tmp_path)
    before, after = (tuple(map(RunFolder, folders)) for folders in (truth.before, truth.after))
    found = answer(Group("A", before), Group("B", after), tmp_path)
    assert found.verdict == "UNKNOWN"
    assert told in found.sentence
    assert found.suspects[0].change.fact == fact


def test_a_speed_that_is_the_same_is_the_same_with_what_interrupted_its_steps(tmp_path: Path) -> None:
    """It evaluates within its steps, and computes so much less: all in all nothing is lost."""
    evaluating = {**PHASES, "evaluation": 0.12, "forward": PHASES["forward"] - 0.12}
    told = (Told(), Told(phases=evaluating), Told(phases=evaluating), Told()) * 2
    runs = [run(tmp_path, f"2026110{n}-100000-qwen-aaaa", replace(each, seed=n)) for n, each in enumerate(told)]
    sides = [tuple(r for r, each in zip(runs, told, strict=True) if each.phases is p) for p in (PHASES, evaluating)]
    found = answer(Group("A", sides[0]), Group("B", sides[1]), tmp_path)
    assert found.verdict == "SAME"
    assert found.interruptions == ()
    assert "evaluations" not in found.sentence


def test_a_suspect_of_the_steps_comes_before_one_of_the_time_between_them(tmp_path: Path) -> None:
    usual = run(tmp_path, "20261101-100000-qwen-aaaa", Told(facts={"execution.slow.forward": 0.0}))
    slow = Told(rate=12_800.0, facts={"execution.slow.forward": 0.02}, pause_s=6.0, seed=2)
    found = answer(
        Group("usual", (usual,)), Group("slow", (run(tmp_path, "20261102-100000-qwen-bbbb", slow),)), tmp_path
    )
    assert [s.rank for s in found.suspects] == [1, 2]
    assert found.suspects[1].phases == ("between the steps",)
    assert found.sentence.startswith("40")
    assert "; and 38 % of its time passed between the steps, before: 0 % (it wrote more checkpoints)" in found.sentence
    assert "), in all 2.7 times slower; first suspect: slow.forward" in found.sentence


def test_what_weighs_more_is_suspected_first(tmp_path: Path) -> None:
    """Steps that take a sixth longer, and as much time again between them."""
    usual = run(tmp_path, "20261101-100000-qwen-aaaa", Told(facts={"execution.slow.forward": 0.0}))
    slow = Told(rate=18_000.0, facts={"execution.slow.forward": 0.02}, pause_s=7.0, seed=2)
    folder = run(tmp_path, "20261102-100000-qwen-bbbb", slow)
    found = answer(Group("usual", (usual,)), Group("slow", (folder,)), tmp_path)
    assert [s.phases for s in found.suspects] == [("between the steps",), ("forward",)]
    assert "; first suspect: checkpoints in 1,000 steps: 97, before: 0" in found.sentence


def test_as_many_checkpoints_that_take_longer_are_not_more(tmp_path: Path) -> None:
    """Of 309 steps and 391 one comes to the same interval: 97 against 98 in 1,000, by where the run was cut off."""
    short = run(tmp_path, "20261101-100000-qwen-aaaa", Told(pause_s=0.5, steps=309))
    long = run(tmp_path, "20261102-100000-qwen-bbbb", Told(pause_s=6.0, steps=391, seed=2))
    found = answer(Group("short", (short,)), Group("long", (long,)), tmp_path)
    assert "of its time passed between the steps" in found.sentence
    assert "more checkpoints" not in found.sentence


def test_recompiles_that_are_left_out_of_the_speed_are_told(tmp_path: Path) -> None:
    """Five in the first half of a run, which the steady speed does not count: half of the time went there."""
    folders = [run(tmp_path, f"2026110{n}-100000-qwen-aaaa", Told(seed=n, recompile_s=s)) for n, s in ((1, 0), (2, 34))]
    found = answer(Group("A", (folders[0],)), Group("B", (folders[1],)), tmp_path)
    assert "but 50 % of its time went into compiling after the first step, before: 0 %" in found.sentence
    assert "; first suspect: code was compiled again 5 times after the first step (before: 0)" in found.sentence


def test_what_no_phase_covers_is_told_as_that(tmp_path: Path) -> None:
    """The phases take what they took; the steps take longer. A hundredth of it in some phase is no answer."""
    before = Told(rate=21_500.0)
    after = Told(rate=12_800.0, phases={name: share * 12_800 / 21_500 for name, share in PHASES.items()}, seed=2)
    runs = (run(tmp_path, f"2026110{n}-100000-qwen-000{n}", told) for n, told in enumerate((before, after), start=1))
    usual, slow = (Group(name, (folder,)) for name, folder in zip("AB", runs, strict=True))
    assert "of it in no recorded phase" in answer(usual, slow, tmp_path).sentence


def test_what_touches_the_first_step_alone_is_not_the_suspect_of_a_slow_run(tmp_path: Path) -> None:
    cold = run(tmp_path, "20261101-100000-qwen-aaaa", Told(cache=COLD, compile_s=300.0))
    warm = run(tmp_path, "20261102-100000-qwen-bbbb", Told(rate=12_800.0, facts={"execution.threads": 2}, seed=2))
    facts = {"execution.threads": 16}
    cold.write_json("fingerprint.json", {**(cold.read_json("fingerprint.json") or {}), "facts": with_(cold, facts)})
    found = answer(Group("cold", (cold,)), Group("warm", (warm,)), tmp_path)
    assert found.suspects[0].change.fact == "execution.threads"
    said = found.sentence
    assert "first step came sooner" in said
    assert said.index("cache") < said.index("first suspect")


def with_(folder: RunFolder, facts: Mapping[str, Value]) -> dict[str, Value]:
    recorded: dict[str, Value] = (folder.read_json("fingerprint.json") or {})["facts"]
    return {**recorded, **facts}


def test_a_run_that_goes_on_is_said_to(tmp_path: Path) -> None:
    done = run(tmp_path, "20261101-100000-qwen-aaaa", Told())
    going = run(tmp_path, "20261102-100000-qwen-bbbb", Told(rate=12_800.0))
    result = going.read_json("result.json") or {}
    going.write_json("result.json", {**result, "status": "running", "exit_code": None})
    with going.held():
        found = answer(Group("done", (done,)), Group("going", (going,)), tmp_path)
    assert "still running" in found.sentence


@pytest.mark.parametrize("at", [0.0, -1.0])
def test_a_first_step_before_anything_is_no_time(sides: tuple[Side, Side], at: float) -> None:
    """A record whose clock began late has nothing to divide by."""
    odd = Side("B", tuple(replace(m, first_step_s=at) for m in sides[1].runs))
    found = explain(sides[0], odd)
    assert found.verdict == "SLOWER"
    assert (found.first_step.verdict, found.first_step.ratio) == ("UNKNOWN", None)
