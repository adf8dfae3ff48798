"""The permutation test against scipy's, and its interval against the test itself."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from harness.evidence import Floats
from harness.explain.judging.permutation import can_reject, permuted

value = st.floats(-1, 1).map(lambda x: round(x, 6))  # coarse, so that ties come up
sides = st.tuples(st.lists(value, min_size=2, max_size=4), st.lists(value, min_size=2, max_size=4))


def array(values: list[float]) -> Floats:
    return np.array(values, dtype=np.float64)


def reference(before: Floats, after: Floats) -> float:
    """scipy's exact p of the absolute difference of means, all labellings gone through."""

    def difference(a: Floats, b: Floats, axis: int = -1) -> Floats:
        rounded: Floats = np.round(np.abs(b.mean(axis=axis) - a.mean(axis=axis)), 10)
        return rounded

    result = stats.permutation_test((before, after), difference, n_resamples=np.inf, alternative="greater")
    return float(result.pvalue)


@settings(max_examples=30, deadline=None)
@given(sides)
def test_p_is_that_of_scipy(pair: tuple[list[float], list[float]]) -> None:
    before, after = array(pair[0]), array(pair[1])
    assert permuted(before, after, 0.05).p == pytest.approx(reference(before, after))


@settings(max_examples=15, deadline=None)
@given(sides, st.sampled_from([0.05, 0.1, 0.3]))
def test_the_interval_ends_where_the_test_begins_to_reject(pair: tuple[list[float], list[float]], level: float) -> None:
    before, after = array(pair[0]), array(pair[1])
    found = permuted(before, after, level)
    assume(found.high - found.low > 1e-4)
    for end, outwards in ((found.low, -1e-6), (found.high, 1e-6)):
        if math.isfinite(end):
            assert reference(before, after - (end - outwards)) > level + 1e-9
            assert reference(before, after - (end + outwards)) <= level + 1e-9
        else:
            assert reference(before, after - math.copysign(1e3, end)) > level


@given(sides)
def test_the_interval_and_the_test_agree(pair: tuple[list[float], list[float]]) -> None:
    p, low, high = permuted(array(pair[0]), array(pair[1]), 0.05)
    assert (p <= 0.05) == (low > 0 or high < 0)


@given(sides)
def test_order_changes_nothing_and_swapping_negates(pair: tuple[list[float], list[float]]) -> None:
    before, after = array(pair[0]), array(pair[1])
    found = permuted(before, after, 0.05)
    assert permuted(before[::-1], np.roll(after, 1), 0.05) == found
    swapped = permuted(after, before, 0.05)
    assert swapped.p == found.p
    assert (swapped.low, swapped.high) == pytest.approx((-found.high, -found.low), abs=1e-9)


def test_many_runs_are_drawn_from_and_come_near_to_all_of_them() -> None:
    dice = np.random.default_rng(3)
    before, after = dice.normal(0, 1, 10), dice.normal(0.8, 1, 10)  # 184,756 labellings
    found = permuted(before, after, 0.05)
    pooled = np.concatenate([before, after])
    sums = np.array([sum(half) for half in itertools.combinations(pooled.tolist(), 10)])
    all_of_them = float(np.mean(np.abs(2 * sums - pooled.sum()) >= abs(after.sum() - before.sum()) - 1e-9))
    assert found.p == pytest.approx(all_of_them, abs=0.01)
    student = stats.ttest_ind(after, before).confidence_interval()
    assert (found.low, found.high) == pytest.approx((student.low, student.high), abs=0.1)
    swapped = permuted(after, before, 0.05)
    assert (swapped.p, swapped.low, swapped.high) == (found.p, -found.high, -found.low)


@pytest.mark.parametrize(
    ("before", "after", "possible"), [(4, 4, True), (3, 5, True), (2, 8, True), (3, 3, False), (1, 30, False)]
)
def test_what_can_reach_a_twentieth(before: int, after: int, possible: bool) -> None:
    assert can_reject(before, after, 0.05) == possible
    far_apart = permuted(array([i * 1e-3 for i in range(before)]), array([1 + i * 1e-3 for i in range(after)]), 0.05)
    assert (far_apart.low > 0) or not possible


def test_four_against_four_apart_is_two_labellings_of_seventy() -> None:
    assert permuted(array([1, 2, 3, 4]), array([5, 6, 7, 8]), 0.05).p == pytest.approx(2 / 70)
