"""What training was interrupted for: shares of its time, told whatever the speed is told to be."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest

from harness.comparison import BETWEEN, UNACCOUNTED, Interruption, Judgement, Measured, Side
from harness.explain.judging.interruptions import LEAST, in_all, interruptions
from harness.records import Interval
from tests.explain.suspecting.asked import Told, side

SHARE = "observed.between_steps_share"
STEPS_MS = 47.5
"""Of 1,000 tokens of a plain ``Told``, in the phases that it has."""


def spent(name: str, between: float | None = 0.0, evaluating: float = 0.0, compiled: float = 0.0) -> Side:
    """A side of one run; ``evaluating`` in its steps, in milliseconds for each 1,000 tokens."""
    facts: Mapping[str, float] = {} if between is None else {SHARE: between, "observed.compile_share": compiled}
    return side(name, Told(facts=facts, new={"evaluation": evaluating} if evaluating else {}))


def test_time_between_the_steps_is_a_share_of_the_whole_and_time_in_a_phase_of_what_is_left() -> None:
    found = interruptions(spent("a"), spent("b", between=0.5, evaluating=STEPS_MS, compiled=0.1), decided=False)
    assert [(each.name, each.before) for each in found] == [(BETWEEN, 0.0), ("evaluation", 0.0), ("compile", 0.0)]
    assert [each.after for each in found] == pytest.approx([0.5, 0.25, 0.1])


def test_where_the_speed_is_decided_its_phases_are_no_matter_of_their_own() -> None:
    """What was compiled in steps that are left out is in none of them."""
    sides = spent("a"), spent("b", between=0.5, evaluating=STEPS_MS, compiled=0.1)
    assert [each.name for each in interruptions(*sides, decided=True)] == [BETWEEN, "compile"]
    facts = {SHARE: 0.0, "observed.compile_share": 0.5}
    going_on = side("b", Told(facts=facts, new={"compile": STEPS_MS}))
    assert interruptions(spent("a"), going_on, decided=True) == ()
    assert [each.name for each in interruptions(spent("a"), going_on, decided=False)] == ["compile"]


def test_steps_without_phases_are_training_and_no_interruption() -> None:
    plain = Side("b", tuple(_without_phases(run) for run in spent("b").runs))
    assert interruptions(spent("a"), plain, decided=False) == ()
    assert interruptions(plain, spent("a"), decided=False) == ()


def _without_phases(run: Measured) -> Measured:
    assert run.steady
    return replace(run, steady=replace(run.steady, phases={UNACCOUNTED: run.steady.seconds}))


def test_a_run_that_has_no_speed_has_no_shares_either() -> None:
    (run,) = spent("b", between=0.5).runs
    assert interruptions(spent("a"), Side("b", (replace(run, steady=None),)), decided=False) == ()


def test_in_all_is_the_speed_of_the_steps_by_the_share_of_the_time_that_they_have() -> None:
    half = Judgement("throughput", "SLOWER", "assumed", Interval(0.5, 0.49, 0.51))
    assert in_all(half, [Interruption(BETWEEN, 0.2, 0.6)]) == pytest.approx(0.25)
    assert in_all(half, [Interruption("compile", 0.2, 0.6)]) is None
    assert in_all(half, [Interruption(BETWEEN, 0.2, 1.0)]) is None
    assert in_all(Judgement("throughput", "UNKNOWN", "none"), [Interruption(BETWEEN, 0.2, 0.6)]) is None


def test_swapped_sides_are_the_same_turned() -> None:
    sides = spent("a", between=0.1), spent("b", between=0.4, evaluating=STEPS_MS)
    there, back = interruptions(*sides, decided=False), interruptions(*sides[::-1], decided=False)
    assert [(i.name, i.after, i.before) for i in there] == [(i.name, i.before, i.after) for i in back]
    assert [i.growth for i in there] == pytest.approx([i.growth for i in back])
    assert {i.more for i in there} == {True}
    assert {i.more for i in back} == {False}


def test_what_hardly_differs_and_what_nobody_recorded_is_none() -> None:
    assert interruptions(spent("a", 0.2), spent("b", 0.2 + 0.9 * LEAST), decided=False) == ()
    for sides in ((spent("a", None), spent("b", 0.4, STEPS_MS)), (Side("a", ()), spent("b", 0.4))):
        assert interruptions(*sides, decided=False) == ()
        assert interruptions(*sides[::-1], decided=False) == ()


def test_the_median_of_a_side_counts() -> None:
    usual = Side("a", tuple(run for share in (0.0, 0.02, 0.9) for run in spent("a", share).runs))
    assert interruptions(usual, spent("b", 0.04), decided=False) == ()


@pytest.mark.parametrize(("before", "after", "times"), [(0.2, 0.5, 4.0), (0.5, 0.2, 4.0), (0.1, 0.25, 3.0)])
def test_growth_is_of_its_seconds_for_each_second_of_the_rest(before: float, after: float, times: float) -> None:
    assert Interruption(BETWEEN, before, after).growth == pytest.approx(math.log(times))


def test_growth_is_finite_where_there_was_none_and_where_there_is_nothing_else() -> None:
    assert math.isfinite(Interruption(BETWEEN, 0.0, 1.0).growth)
