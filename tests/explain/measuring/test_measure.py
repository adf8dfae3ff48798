"""One run measured: where its time went, against what was put into it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.comparison import UNACCOUNTED
from harness.devices import during
from harness.evidence import Evidence, Series, Steps
from harness.explain.measuring.measure import measure
from harness.explain.measuring.profile import MOST, MOST_MARKS
from harness.explain.measuring.spent import covered, first_step, spent
from harness.records import Checkpoint, Compile, Eval, Note, Result, Run, RunSpec
from harness.run.gather import gather
from harness.run.summary import summarise
from harness.steady import rows_of, steady_state
from tests import samples

RUN = Run("r", "", RunSpec("toy", "", ()), Result("finished", 0), None, None, None)


def steps(
    seconds: Sequence[float],
    phases: Mapping[str, Sequence[float]],
    tokens: int = 100,
    start: float = 10.0,
    gap: float = 0.0,
    devices: int = 1,
) -> Steps:
    """Steps one after the other from ``start``, ``gap`` seconds apart, the same on each device."""
    ends = start + np.cumsum(np.asarray(seconds) + gap)
    count = len(seconds)
    return Steps(
        t=np.repeat(ends, devices),
        step=np.repeat(np.arange(1, count + 1), devices),
        device=np.tile(np.arange(devices), count),
        seconds=np.repeat(np.asarray(seconds, dtype=np.float64), devices),
        tokens=np.full(count * devices, tokens, dtype=np.int64),
        padding=np.zeros(count * devices, dtype=np.int64),
        phases={name: np.repeat(np.asarray(values, dtype=np.float64), devices) for name, values in phases.items()},
        devices=tuple(f"cuda:{n}" for n in range(devices)),
    )


def evidence(**roles: Steps) -> Evidence:
    return Evidence(RUN, {}, roles, started_t=5.0, end=max(float(s.t[-1]) for s in roles.values()))


def went(seen: Evidence, role: str = "drafter") -> dict[str, float]:
    return spent(seen, role, steady_state(seen.steps[role], seen.compiles)).phases


# --- phases ----------------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(st.data())
def test_phases_sum_to_the_steady_seconds_whatever_they_are(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 30))
    column = st.lists(st.just(0.0) | st.floats(0.0, 2.0), min_size=count, max_size=count)
    mine = {name: data.draw(column) for name in data.draw(st.sets(st.sampled_from(["wait", "forward", "other"])))}
    theirs = {name: data.draw(column) for name in data.draw(st.sets(st.sampled_from(["wait", "target", "other"])))}
    seconds = data.draw(st.lists(st.floats(0.01, 3.0), min_size=count, max_size=count))
    seen = evidence(drafter=steps(seconds, mine), target=steps(seconds, theirs, 0, data.draw(st.floats(0, 20))))
    state = steady_state(seen.steps["drafter"], ())
    found = spent(seen, "drafter", state)
    assert math.fsum(found.phases.values()) == pytest.approx(float(state.rows.seconds[state.steady].sum()), abs=1e-9)
    assert all(value >= 0 for value in found.phases.values())
    for role in found.roles.values():
        assert 0 <= role.waiting <= role.seconds + 1e-9 or "wait" in mine


def test_a_wait_is_opened_into_what_the_other_role_did() -> None:
    """The drafter waits 0.4 s of each second; the target works through it: 3 parts target, 1 part other."""
    drafter = steps([1.0] * 20, {"wait": [0.4] * 20, "forward": [0.6] * 20})
    target = steps([0.5] * 60, {"target": [0.375] * 60, "other": [0.125] * 60}, tokens=0, start=5.0)
    found = spent(evidence(drafter=drafter, target=target), "drafter", steady_state(drafter, ()))
    assert found.phases == pytest.approx(
        {"forward": 0.6 * 19, UNACCOUNTED: 0.0, "target.target": 0.3 * 19, f"target.{UNACCOUNTED}": 0.1 * 19}
    )
    assert found.roles["drafter"].waiting == pytest.approx(0.4 * 19)
    assert found.roles["target"].waiting == pytest.approx(0.0, abs=1e-9)


def test_what_the_other_role_waited_too_stays_a_wait() -> None:
    """The target works 0.1 s of each second, in which the drafter waits 0.4 s: 0.3 s are nobody's work."""
    drafter = steps([1.0] * 20, {"wait": [0.4] * 20, "forward": [0.6] * 20})
    target = steps([1.0] * 20, {"target": [0.1] * 20, "wait": [0.9] * 20}, tokens=0)
    found = spent(evidence(drafter=drafter, target=target), "drafter", steady_state(drafter, ()))
    assert found.phases["target.target"] == pytest.approx(0.1 * 19)
    assert found.phases["wait"] == pytest.approx(0.3 * 19)
    assert found.roles["target"].waiting == pytest.approx(0.9 * 19)


def test_two_of_five_busy_targets_are_two_fifths_of_a_role() -> None:
    drafter = steps([1.0] * 20, {"wait": [1.0] * 20})
    five = steps([1.0] * 20, {"target": [1.0] * 20}, tokens=0, devices=5)
    five.phases["target"][five.device >= 2] = 0.0
    found = spent(evidence(drafter=drafter, target=five), "drafter", steady_state(drafter, ()))
    assert found.phases["target.target"] == pytest.approx(0.4 * 19)
    assert found.phases["wait"] == pytest.approx(0.6 * 19)
    assert found.roles["target"].devices == 5


def test_a_wait_without_other_roles_stays_one() -> None:
    assert went(evidence(drafter=steps([1.0] * 20, {"wait": [0.4] * 20}))) == pytest.approx(
        {"wait": 0.4 * 19, UNACCOUNTED: 0.6 * 19}
    )


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.floats(0.01, 2.0), st.floats(0.0, 1.0), st.floats(0.0, 1.0)), min_size=1, max_size=12),
    st.lists(st.tuples(st.floats(0.0, 20.0), st.floats(0.0, 20.0)), min_size=1, max_size=5),
)
def test_what_a_role_did_in_a_stretch_is_what_overlaps_it(
    took: list[tuple[float, float, float]], stretches: list[tuple[float, float]]
) -> None:
    """Against the overlap of each step with each stretch, one by one."""
    seconds = [each[0] for each in took]
    role = steps(seconds, {"target": [s * share for s, _, share in took]}, start=1.0, gap=0.5)
    starts, ends = (np.array([pick(pair) for pair in stretches]) for pick in (min, max))
    expected = [
        sum(
            max(0.0, min(t, end) - max(t - s, start)) / s * spent_
            for t, s, spent_ in zip(role.t, role.seconds, role.phases["target"], strict=True)
        )
        for start, end in zip(starts, ends, strict=True)
    ]
    assert during(role, starts, ends)["target"] == pytest.approx(expected, abs=1e-9)


def test_an_evaluation_within_a_step_has_a_name() -> None:
    mine = steps([1.0] * 10 + [4.0] + [1.0] * 9, {"forward": [0.9] * 20, "other": [0.1] * 10 + [3.1] + [0.1] * 9})
    inside = Eval(float(mine.t[10]) - 0.01, "step", seconds=3.0)
    between = Eval(1.0, "before", seconds=0.5)
    found = went(replace(evidence(drafter=mine), evals=(between, inside)))
    assert found["evaluation"] == pytest.approx(3.0)
    assert found[UNACCOUNTED] == pytest.approx(0.1 * 19)


# --- the first step --------------------------------------------------------------------------------------


def test_the_way_to_the_first_step_has_its_parts() -> None:
    """Set-up to 5 s with 1 s compiled in it, an evaluation from 6 to 8, a step from 10 to 20 with 6 s compiled."""
    mine = steps([10.0] + [1.0] * 9, {"data": [1.0] * 10, "forward": [8.0] + [0.0] * 9, "other": [1.0] + [0.0] * 9})
    compiles = (Compile(4.0, "a", 1.0), Compile(17.0, "b", 6.0, step=1), Compile(16.0, "c in another thread", 3.0))
    seen = replace(evidence(drafter=mine), compiles=compiles, evals=(Eval(8.0, "before", seconds=2.0),))
    assert first_step(seen, mine, rows_of(mine)) == pytest.approx(
        {
            "set-up": 4.0,
            "evaluation": 2.0,
            "before the first step": 3.0,
            "compile": 7.0,
            "data": 1.0,
            "forward": 2.0,
            UNACCOUNTED: 1.0,
        }
    )


def test_a_step_that_tells_its_own_compiling_is_believed() -> None:
    mine = steps([10.0], {"compile": [7.0], "forward": [3.0]}, start=0.0)
    seen = replace(evidence(drafter=mine), started_t=None, compiles=(Compile(9.0, "b", 6.0, step=1),))
    assert first_step(seen, mine, rows_of(mine)) == {"compile": 7.0, "forward": 3.0}


@settings(max_examples=50)
@given(
    start=st.floats(0.0, 50.0),
    seconds=st.floats(0.01, 50.0),
    started=st.none() | st.floats(0.0, 120.0),
    spans=st.lists(st.tuples(st.floats(0.0, 120.0), st.floats(0.0, 60.0), st.booleans()), max_size=6),
    shares=st.lists(st.floats(0.0, 0.5), min_size=2, max_size=2),
)
def test_the_parts_sum_to_the_time_to_the_first_step(
    start: float,
    seconds: float,
    started: float | None,
    spans: list[tuple[float, float, bool]],
    shares: list[float],
) -> None:
    mine = steps([seconds], {"data": [shares[0] * seconds], "forward": [shares[1] * seconds]}, start=start)
    compiles = tuple(Compile(t, "g", long) for t, long, compiled in spans if compiled)
    evals = tuple(Eval(t, "e", seconds=long) for t, long, compiled in spans if not compiled)
    seen = replace(evidence(drafter=mine), started_t=started, compiles=compiles, evals=evals)
    found = first_step(seen, mine, rows_of(mine))
    assert math.fsum(found.values()) == pytest.approx(float(mine.t[0]), abs=1e-6)
    assert all(value > 0 for value in found.values())


def test_what_spans_cover_is_counted_once() -> None:
    assert covered([(0, 2), (1, 3), (5, 6), (5.5, 5.6), (9, 12)], 0.5, 10) == pytest.approx(2.5 + 1 + 1)
    assert covered([], 0, 1) == 0


# --- the whole -------------------------------------------------------------------------------------------


def test_a_recorded_run_is_measured_as_its_summary_says(tmp_path: Path) -> None:
    folder = samples.recorded(tmp_path)
    measured, summary = measure(gather(folder)), summarise(folder.events())
    assert measured.steady is not None
    assert measured.steady.throughput == summary.throughput_tok_s
    assert measured.first_step_s == summary.first_step_s
    counts = {"warm-up": summary.warmup_steps, "compile": summary.compile_steps}
    assert measured.steady.left_out == {why: count for why, count in counts.items() if count}
    names = {UNACCOUNTED if name == "other" else name: seconds for name, seconds in summary.phases.items()}
    assert dict(measured.steady.phases) == pytest.approx(names)
    assert sum(measured.first_step.values()) == pytest.approx(measured.first_step_s)
    assert (measured.unit, measured.gaps, measured.failure) == ("tokens", (), None)
    assert measured.facts["workload.data.sequences"] == 900
    assert [lane.name for lane in measured.lanes] == ["cpu.use_pct"]
    assert ("compile", "drafter, 6.50 s") in [(kind, words) for _, kind, words in measured.profile.marks]


def test_a_run_without_steps_is_measured(tmp_path: Path) -> None:
    folder = samples.begin(tmp_path, "20261129-172855-tiny-3f2a")
    samples.append(folder, samples.events()[:3])
    samples.end(folder, "failed", "RuntimeError: out of luck")
    measured = measure(gather(folder))
    assert measured.steady is None
    assert measured.first_step_s is None
    assert measured.failure is not None
    assert "no step was recorded: there is no speed to compare" in measured.gaps


def test_too_few_steps_have_no_speed_and_no_tokens_make_steps() -> None:
    few = measure(evidence(drafter=steps([1.0] * 5, {"forward": [1.0] * 5})))
    assert few.steady is None
    assert few.first_step_s == 11.0
    assert few.gaps == ("4 steady steps: 8 are needed for a speed",)
    uncounted = measure(evidence(drafter=steps([0.5] * 20, {}, tokens=0)))
    assert uncounted.unit == "steps"
    assert uncounted.steady is not None
    assert uncounted.steady.throughput.value == pytest.approx(2.0)
    assert uncounted.steady.phases == pytest.approx({UNACCOUNTED: 9.5})


@settings(max_examples=40)
@given(st.integers(1, 1300), st.integers(1, 3))
def test_a_profile_holds_all_of_the_run_in_few_points(count: int, devices: int) -> None:
    dice = np.random.default_rng(count)
    seconds = dice.uniform(0.5, 1.5, count)
    mine = steps(list(seconds), {"wait": list(seconds / 2), "forward": list(seconds / 4)}, devices=devices)
    other = steps(list(seconds), {"target": list(seconds)}, tokens=0)
    seen = evidence(drafter=mine, target=other)
    profile = measure(seen).profile
    lengths = np.sum([np.array(column) for column in profile.phases.values()], axis=0)
    assert len(profile.t) == len(profile.rate) == len(profile.steady) == len(lengths) <= MOST
    assert lengths.sum() == pytest.approx(seconds.sum())
    assert float(np.dot(profile.rate, lengths)) == pytest.approx(100 * devices * count)
    assert profile.t[-1] == float(mine.t[-1])
    assert set(profile.phases) == {"target.target", "forward", UNACCOUNTED}


def test_lanes_are_medians_of_neighbours_and_marks_are_not_too_many() -> None:
    values = np.tile([1.0, 2.0, 300.0], 1000)
    series = {"gpu.0.power_w": Series(np.arange(3000.0), values), "short": Series(np.array([1.0]), np.array([7.0]))}
    lost = {"empty": Series(np.array([1.0]), np.array([np.nan]))}
    mine = steps([1.0] * 9, {"forward": [1.0] * 9})
    seen = replace(
        evidence(drafter=mine),
        telemetry={**series, **lost},
        compiles=tuple(Compile(float(n), "g", 0.01 * n) for n in range(200)),
        checkpoints=(Checkpoint(3.0, "a.pt"),),
        notes=(Note(2.0, "slow", "warning"), Note(2.5, "hello")),
    )
    measured = measure(seen)
    lanes = {lane.name: lane for lane in measured.lanes}
    assert set(lanes) == {"gpu.0.power_w", "short"}
    assert 300 <= len(lanes["gpu.0.power_w"].t) <= MOST
    assert set(lanes["gpu.0.power_w"].values) == {2.0}
    assert lanes["short"].values == (7.0,)
    marks = measured.profile.marks
    assert list(marks) == sorted(marks)
    compiled = [t for t, kind, _ in marks if kind == "compile"]
    assert len(compiled) == MOST_MARKS
    assert min(compiled) == 200 - MOST_MARKS  # the longest
    assert [(kind, words) for _, kind, words in marks if kind != "compile"] == [
        ("warning", "slow"), ("checkpoint", "a.pt"),
    ]  # fmt: skip


def test_a_damaged_folder_is_measured_with_its_gaps(tmp_path: Path) -> None:
    folder = samples.recorded(tmp_path)
    (folder.path / "fingerprint.json").write_text("{")
    text = (folder.path / "events.jsonl").read_text()
    (folder.path / "events.jsonl").write_text(text[: len(text) * 2 // 3])
    (folder.path / "telemetry.jsonl").write_text(json.dumps({"t": 1.0, "cpu": {"use_pct": None}}) + "\n")
    measured = measure(gather(folder))
    assert measured.steady is not None
    assert measured.gaps == (
        "events.jsonl ends in half a line, which is left out",
        "fingerprint.json cannot be read: only what was asked for is known of it",
    )
