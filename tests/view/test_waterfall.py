"""The waterfall goes from the one figure to the other, and what it leaves out is said."""

from __future__ import annotations

import math
import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.comparison import Contribution, Judgement
from harness.records import Interval
from harness.view.waterfall import MOST, falls
from tests import explanations
from tests.measurements import split, steady_state

costs = st.dictionaries(st.sampled_from("abcdefghijklmnopqrst"), st.floats(0.01, 1e3), min_size=1)


def pair(before: dict[str, float], after: dict[str, float], pad: float) -> tuple[Judgement, tuple[Contribution, ...]]:
    old, new = steady_state(before, 0.0), steady_state(after, pad)
    values = (old.throughput.value, new.throughput.value)
    ratio = Interval(values[1] / values[0], 0, 9)
    figure = Judgement("throughput", "SLOWER", "assumed", ratio, before=values[0], after=values[1])
    return figure, split(old, new)


@given(costs, costs, st.sampled_from([0.0, 0.01, 0.4]))
def test_the_steps_go_from_the_one_figure_to_the_other(
    before: dict[str, float], after: dict[str, float], pad: float
) -> None:
    figure, parts = pair(before, after, pad)
    assert figure.before
    assert figure.after
    steps = falls(figure, parts, "tokens")
    assert steps[0].start == figure.before
    assert steps[-1].end == figure.after
    assert all(a.end == b.start for a, b in pairwise(steps))
    assert len(steps) <= MOST + 1
    for side, rate in (("cost_before", figure.before), ("cost_after", figure.after)):
        assert math.fsum(getattr(step, side) for step in steps) == pytest.approx(1e6 / rate)


@given(costs, costs)
def test_equal_shares_are_equally_long(before: dict[str, float], after: dict[str, float]) -> None:
    figure, parts = pair(before, after, 0.0)
    assert figure.before
    assert figure.after
    whole = figure.after - figure.before
    if abs(whole) < 1e-3 * figure.before:
        return
    for step in falls(figure, parts, "tokens"):
        assert step.share is not None
        assert step.change == pytest.approx(step.share * whole, rel=1e-6, abs=1e-9 * figure.before)


def test_what_no_phase_covers_has_its_row_and_what_is_left_out_is_said() -> None:
    figure, parts = pair(
        {"forward": 40.0, "unaccounted": 0.01, **{f"x{n}": 0.1 for n in range(20)}}, {"forward": 60.0}, 0
    )
    names = [step.name for step in falls(figure, parts, "tokens")]
    assert "unaccounted" in names
    assert any(re.fullmatch(r"\d+ others", name) for name in names)
    assert "not in the split" not in names
    assert falls(figure, parts[:2], "tokens")[-1].name == "not in the split"


def test_a_time_goes_up_where_it_gets_slower() -> None:
    e = explanations.slower_start()
    (first, *_) = falls(e.first_step, e.first_step_contributions, e.unit)
    assert first.name == "compile"
    assert (first.start, first.end) == pytest.approx((96, 550))
    assert (first.cost_before, first.cost_after) == (9.0, 463.0)
