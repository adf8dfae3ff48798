"""The split is exact whatever the figures are, and the bottleneck is named in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.comparison import Judgement, Measured, Role, Side, Steady
from harness.explain.judging.accounting import bottleneck, contributions, first_step_contributions
from harness.records import Interval, Result, Run, RunSpec

RUN = Run("r", "", RunSpec("toy", "", ()), Result("finished", 0), None, None, None)
UNDECIDED = Judgement("throughput", "UNKNOWN", "none", Interval(1.0, 0.9, 1.1))

PHASES = ("data", "wait", "forward", "target.forward", "unaccounted")
SECONDS = st.just(0.0) | st.floats(1e-6, 1e4)
STEADY = st.builds(
    lambda tokens, padding, phases: steady(tokens, padding, phases),
    st.integers(1, 10**12),
    st.just(0) | st.integers(0, 10**12),
    st.dictionaries(st.sampled_from(PHASES), SECONDS, min_size=1).filter(lambda d: sum(d.values()) > 0),
)
RUNS = st.lists(STEADY, min_size=1, max_size=4)
WAYS = st.lists(
    st.dictionaries(st.sampled_from(["set-up", "compile", "data"]), st.floats(1e-3, 1e4), min_size=1),
    min_size=1,
    max_size=3,
)


def steady(tokens: int, padding: int, phases: Mapping[str, float], steps: int = 100) -> Steady:
    seconds = math.fsum(phases.values())
    rate = (tokens or steps) / seconds
    return Steady("drafter", steps, seconds, tokens, padding, phases, Interval(rate, rate, rate))


def side(runs: Sequence[Steady]) -> Side:
    return Side("", tuple(Measured(RUN, {}, steady=run) for run in runs))


def started(runs: Sequence[Mapping[str, float]]) -> Side:
    return Side("", tuple(Measured(RUN, {}, first_step_s=sum(run.values()), first_step=run) for run in runs))


def geometric(runs: Sequence[Steady]) -> float:
    return float(np.mean([math.log(run.throughput.value) for run in runs]))


def parts(before: Sequence[Steady], after: Sequence[Steady]) -> dict[str, float]:
    return {c.phase: c.log_ratio for c in contributions(side(before), side(after), UNDECIDED)}


# --- the split -------------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(RUNS, RUNS)
def test_the_parts_sum_to_the_ratio_of_the_geometric_means(before: list[Steady], after: list[Steady]) -> None:
    total = math.fsum(parts(before, after).values())
    assert total == pytest.approx(geometric(after) - geometric(before), rel=1e-9, abs=1e-9)


@settings(max_examples=50)
@given(RUNS, RUNS)
def test_swapping_the_sides_turns_every_sign(before: list[Steady], after: list[Steady]) -> None:
    there, back = parts(before, after), parts(after, before)
    assert there.keys() == back.keys()
    assert [there[name] for name in there] == pytest.approx([-back[name] for name in there], rel=1e-9, abs=1e-9)


@settings(max_examples=50)
@given(RUNS, RUNS, st.floats(1e-3, 1e3))
def test_another_unit_of_time_or_twice_the_steps_change_nothing(
    before: list[Steady], after: list[Steady], factor: float
) -> None:
    def scaled(run: Steady) -> Steady:
        return steady(run.tokens, run.padding, {name: seconds * factor for name, seconds in run.phases.items()})

    def longer(run: Steady) -> Steady:
        doubled = {name: 2 * seconds for name, seconds in run.phases.items()}
        return steady(2 * run.tokens, 2 * run.padding, doubled, 200)

    expected = parts(before, after)
    assert parts([scaled(r) for r in before], [scaled(r) for r in after]) == pytest.approx(expected, rel=1e-6, abs=1e-9)
    assert parts([longer(r) for r in before], after) == pytest.approx(expected, rel=1e-6, abs=1e-9)


@settings(max_examples=50)
@given(RUNS, RUNS)
def test_the_order_of_runs_and_phases_changes_nothing(before: list[Steady], after: list[Steady]) -> None:
    def turned(run: Steady) -> Steady:
        return steady(run.tokens, run.padding, dict(reversed(list(run.phases.items()))))

    other = parts([turned(run) for run in reversed(before)], [turned(run) for run in reversed(after)])
    assert other == pytest.approx(parts(before, after), rel=1e-9, abs=1e-9)


@settings(max_examples=50)
@given(RUNS)
def test_a_side_against_itself_is_nothing(runs: list[Steady]) -> None:
    assert list(parts(runs, runs).values()) == pytest.approx([0.0] * len(parts(runs, runs)), abs=1e-9)


def test_the_literal_split_of_the_textbook() -> None:
    """Ang 2004: L(2, 1) = 1 / ln 2. One phase doubles from 0.5 to 1.5 s of 1 s: all of the ratio is its."""
    before, after = steady(1, 0, {"forward": 0.5, "data": 0.5}), steady(1, 0, {"forward": 1.5, "data": 0.5})
    found = contributions(
        side([before]), side([after]), Judgement("throughput", "SLOWER", "assumed", Interval(1, 0, 1))
    )
    assert {c.phase: c.log_ratio for c in found} == pytest.approx({"forward": -math.log(2), "data": 0.0})
    two = steady(1, 0, {"forward": 1.0, "data": 1.0})
    assert parts([before], [two]) == pytest.approx({"forward": -0.5 * math.log(2), "data": -0.5 * math.log(2)})


def test_padding_comes_first_and_then_the_greatest() -> None:
    before = steady(900, 100, {"forward": 1.0, "data": 0.1, "unaccounted": 0.0})
    after = steady(500, 500, {"forward": 1.1, "data": 0.4})
    found = contributions(side([before]), side([after]), UNDECIDED)
    assert [c.phase for c in found] == ["padding", "data", "forward"]
    assert found[0].log_ratio == pytest.approx(math.log((1000 / 900) / (1000 / 500)))
    assert (found[0].before, found[0].after) == pytest.approx((1000 / 900, 2.0))
    assert (found[1].before, found[1].after) == pytest.approx((1e-4, 4e-4))


def test_a_role_without_tokens_is_split_a_step() -> None:
    found = contributions(
        side([steady(0, 0, {"forward": 50.0})]), side([steady(0, 0, {"forward": 80.0, "data": 20.0})]), UNDECIDED
    )
    assert {c.phase for c in found} == {"forward", "data"}
    assert sum(c.log_ratio for c in found) == pytest.approx(-math.log(2))
    assert {c.phase: c.after for c in found} == pytest.approx({"forward": 0.8, "data": 0.2})


@pytest.mark.parametrize(
    ("ratio", "known"),
    [
        (Interval(0.5, 0.4, 0.6), True),
        (Interval(2.0, 1.5, 2.5), True),
        (Interval(0.9, 0.7, 1.0), False),
        (Interval(1.0, 0.9, 1.1), False),
        (None, False),
    ],
)
def test_there_are_no_shares_of_what_may_be_nothing(ratio: Interval | None, known: bool) -> None:
    before, after = steady(900, 100, {"forward": 1.0}), steady(800, 200, {"forward": 1.5, "data": 0.1})
    judged = Judgement("throughput", "UNKNOWN", "none", ratio)
    shares = [c.share for c in contributions(side([before]), side([after]), judged)]
    if known:
        assert sum(share or 0.0 for share in shares) == pytest.approx(1.0)
    else:
        assert shares == [None, None, None]


def test_runs_without_a_steady_state_are_not_split() -> None:
    some = steady(1, 0, {"forward": 1.0})
    empty = Side("", (Measured(RUN, {}),))
    assert contributions(side([some]), empty, UNDECIDED) == ()
    assert contributions(empty, side([some]), UNDECIDED) == ()
    mixed = Side("", (*empty.runs, *side([some]).runs))
    assert sum(c.log_ratio for c in contributions(mixed, side([some]), UNDECIDED)) == pytest.approx(0.0)


@settings(max_examples=50)
@given(WAYS, WAYS)
def test_the_way_to_the_first_step_is_split_as_its_seconds_are_written(
    before: list[dict[str, float]], after: list[dict[str, float]]
) -> None:
    found = first_step_contributions(started(before), started(after), UNDECIDED)
    logs = [float(np.mean([math.log(math.fsum(run.values())) for run in runs])) for runs in (before, after)]
    assert math.fsum(c.log_ratio for c in found) == pytest.approx(logs[1] - logs[0], rel=1e-9, abs=1e-9)
    assert first_step_contributions(started(before), Side("", ()), UNDECIDED) == ()


# --- the bottleneck --------------------------------------------------------------------------------------


def waiting(**shares: float) -> Side:
    roles = {name: Role(10.0, 10.0 * share, 1) for name, share in shares.items()}
    return Side("", (Measured(RUN, {}, roles=roles),))


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (
            waiting(drafter=0.38, target=0.02),
            waiting(drafter=0.52, target=0.01),
            "Both sides are target-bound: the drafter waits 38 % of its time before and 52 % after.",
        ),
        (
            waiting(drafter=0.05, target=0.6),
            waiting(drafter=0.38, target=0.1),
            "The bottleneck changed hands: drafter-bound (the target waits 60 % of its time) before, "
            "target-bound (the drafter waits 38 % of its time) after.",
        ),
        (
            waiting(drafter=0.03, target=0.04),
            waiting(drafter=0.38, target=0.0, loader=0.9),
            "The bottleneck changed hands: no role holds up the others before, "
            "target-bound (the loader waits 90 % of its time) after.",
        ),
        (
            waiting(drafter=0.1, target=0.1),
            waiting(drafter=0.0, target=0.0),
            "On neither side does a role hold up the others.",
        ),
        (waiting(drafter=0.1), waiting(drafter=0.4), ""),
        (waiting(drafter=0.1, target=0.5), waiting(drafter=0.4), ""),
        (waiting(drafter=0.1, target=0.5), Side("", ()), ""),
    ],
)  # fmt: skip
def test_the_bottleneck_in_one_sentence(before: Side, after: Side, said: str) -> None:
    assert bottleneck(before, after) == said
