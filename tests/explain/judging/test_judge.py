"""Verdicts: what they rest on, against scipy where there is a reference, and what may change nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from harness.comparison import Judgement
from harness.explain.judging.judge import ASSUMED, judge

rate = st.floats(100, 100_000)
runs = st.lists(rate, min_size=1, max_size=5)
OPPOSITE = {"FASTER": "SLOWER", "SLOWER": "FASTER", "SAME": "SAME", "UNKNOWN": "UNKNOWN"}
EARLIER = [100.0, 101.1, 99.2, 100.4, 98.9, 100.8, 99.9, 100.1, 99.4, 101.0]


def bounds(judged: Judgement) -> tuple[float, float, float]:
    assert judged.ratio is not None
    return judged.ratio.value, judged.ratio.low, judged.ratio.high


# --- the three methods -----------------------------------------------------------------------------------


def test_one_run_a_side_and_no_history_rests_on_an_assumed_spread() -> None:
    judged = judge("throughput", [21_500], [4_300])
    assert (judged.verdict, judged.basis, judged.spread, judged.p) == ("SLOWER", "assumed", 0.05, None)
    half = 1.959964 * 0.05 * math.sqrt(2)
    assert bounds(judged) == pytest.approx((0.2, 0.2 * math.exp(-half), 0.2 * math.exp(half)))
    assert "a spread of 5.0 % from run to run is assumed" in judged.words
    near = judge("throughput", [21_500], [20_500])
    assert (near.verdict, near.more_runs) == ("UNKNOWN", 3)


def test_an_assumed_spread_is_never_less_than_the_one_seen() -> None:
    assert judge("throughput", [100, 150], [100, 140]).spread == pytest.approx(0.2635, abs=1e-3)
    assert judge("throughput", [100, 100], [100, 100]).spread == ASSUMED["throughput"]
    assert judge("first step", [100], [100]).spread == ASSUMED["first step"]


def test_several_runs_short_of_a_test_are_judged_as_a_t_test_does() -> None:
    before, after = [100, 101.5, 99], [95, 96.1, 94.7]
    judged = judge("throughput", before, after)
    student = stats.ttest_ind(np.log(after), np.log(before)).confidence_interval()
    assert (judged.basis, judged.verdict) == ("judged", "SLOWER")
    assert bounds(judged)[1:] == pytest.approx((math.exp(student.low), math.exp(student.high)))


def test_a_single_run_is_judged_by_the_history_at_the_quantile_for_heavy_tails() -> None:
    judged = judge("throughput", [100], [97], history=[EARLIER])
    half = stats.t.ppf(0.995, 9) * np.std(np.log(EARLIER), ddof=1) * math.sqrt(2)
    assert (judged.basis, judged.verdict) == ("judged", "UNKNOWN")
    assert bounds(judged) == pytest.approx((0.97, 0.97 * math.exp(-half), 0.97 * math.exp(half)))
    assert "of 10 earlier runs" in judged.words
    assert judge("throughput", [100], [90], history=[EARLIER]).verdict == "SLOWER"


def test_the_spread_within_sides_counts_where_it_is_greater_than_the_history() -> None:
    tight = judge("throughput", [100, 100.1], [98, 98.1], history=[EARLIER])
    wide = judge("throughput", [90, 110], [88, 108], history=[EARLIER])
    assert wide.spread == pytest.approx(np.sqrt(np.mean([np.var(np.log(s), ddof=1) for s in ([90, 110], [88, 108])])))
    assert tight.spread is not None
    assert tight.spread < np.std(np.log(EARLIER), ddof=1)


def test_four_runs_a_side_are_tested() -> None:
    judged = judge("throughput", [100, 101, 99, 100.5], [97, 96, 97.5, 96.2])
    assert (judged.basis, judged.verdict) == ("tested", "SLOWER")
    assert judged.p == pytest.approx(2 / 70)
    assert "would come up 3 times in 100" in judged.words
    assert "interleaved" in judge("throughput", EARLIER[:4], EARLIER[4:8], interleaved=True).words
    assert "machine" in judge("throughput", EARLIER[:4], EARLIER[4:8], interleaved=False).words


def test_errors_within_the_runs_bound_the_spread_from_below() -> None:
    loose = judge("throughput", [100], [97], history=[EARLIER], within=[0.03, 0.04])
    assert loose.spread == pytest.approx(math.sqrt((0.03**2 + 0.04**2) / 2))


def test_a_gross_run_of_the_history_hides_nothing() -> None:
    assert judge(
        "throughput", [21_500], [4_300], history=[[21_400, 21_300, 21_600, 21_550, 21_450, 4_250]]
    ).verdict == ("SLOWER")
    often = judge("throughput", [100], [60], history=[[100, 101, 99, 100, 50, 51]])  # how it runs, and no accident
    assert often.verdict == "UNKNOWN"


def test_groups_of_the_history_that_were_executed_differently_do_not_spread() -> None:
    slow = [v / 1.3 for v in EARLIER]
    apart = judge("throughput", [100], [97], history=[EARLIER, slow, [77.0]])
    assert apart.spread == pytest.approx(np.std(np.log(EARLIER), ddof=1))
    assert "of 20 earlier runs" in apart.words
    together = judge("throughput", [100], [97], history=[[*EARLIER, *slow]])
    assert together.spread == pytest.approx(np.std(np.log([*EARLIER, *slow]), ddof=1))


# --- the verdict -----------------------------------------------------------------------------------------


def test_less_time_to_the_first_step_is_faster() -> None:
    assert judge("first step", [63.1], [2.7]).verdict == "FASTER"
    assert judge("first step", [2.7], [63.1]).verdict == "SLOWER"


def test_the_same_within_the_margin_and_not_within_a_smaller_one() -> None:
    before, after = [100, 100.1, 99.9, 100.05], [99.5, 99.4, 99.6, 99.45]
    assert judge("throughput", before, after).verdict == "SAME"
    assert judge("throughput", before, after, margin=0.001).verdict == "SLOWER"


def test_a_difference_that_is_lost_in_the_spread_needs_more_runs_and_a_hopeless_one_gets_no_number() -> None:
    judged = judge("throughput", [100, 104, 96, 101], [96, 100, 92, 97])
    assert judged.verdict == "UNKNOWN"
    assert judged.more_runs is not None
    n = 4 + judged.more_runs
    assert judged.spread is not None
    power_needs = (stats.t.ppf(0.975, 2 * n - 2) + stats.norm.ppf(0.8)) * judged.spread * math.sqrt(2 / n)
    assert power_needs <= math.log(100.25 / 96.25) + 1e-3
    assert judge("throughput", [100, 140, 80, 110], [101, 141, 81, 107]).more_runs is None


def test_looking_often_is_corrected_for() -> None:
    before, after = [100, 101, 99, 100.5, 100.2], [98, 97.9, 98.5, 98.2, 99.1]
    assert judge("throughput", before, after).verdict == "SLOWER"
    thrice = judge("throughput", before, after, looks=3)
    assert thrice.verdict == "SLOWER"  # 2 of 252 labellings: still under 0.05 / 3
    assert "corrected for 3 looks" in thrice.words
    assert judge("throughput", before[:4], after[:4], looks=3).basis == "judged"  # 2 of 70 cannot reach 0.05 / 3


def test_a_side_without_a_value_is_unknown() -> None:
    judged = judge("throughput", [], [100])
    assert (judged.verdict, judged.basis, judged.ratio, judged.runs) == ("UNKNOWN", "none", None, (0, 1))
    assert judged.words == "no run on the first side has a throughput"


@pytest.mark.parametrize("values", [[0.0], [-1.0], [math.nan], [math.inf]])
def test_a_value_that_is_no_speed_is_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match="positive"):
        judge("throughput", [100], values)


def test_settings_that_mean_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="looks"):
        judge("throughput", [100], [100], looks=0)


# --- what may change nothing -----------------------------------------------------------------------------


@given(runs, runs, st.lists(rate, max_size=8), st.floats(0.01, 100))
def test_scaling_changes_nothing(before: list[float], after: list[float], history: list[float], by: float) -> None:
    one = judge("throughput", before, after, history=[history])
    other = judge("throughput", [by * v for v in before], [by * v for v in after], history=[[by * v for v in history]])
    assert bounds(other) == pytest.approx(bounds(one), rel=1e-6)
    assert other.basis == one.basis


@given(runs, runs, st.lists(rate, max_size=8))
def test_swapping_the_sides_inverts_the_ratio_and_turns_the_verdict(
    before: list[float], after: list[float], history: list[float]
) -> None:
    one = judge("throughput", before, after, history=[history])
    other = judge("throughput", after, before, history=[history])
    value, low, high = bounds(one)
    assert bounds(other) == pytest.approx((1 / value, 1 / high, 1 / low), rel=1e-9)
    assert (other.verdict, other.basis, other.more_runs) == (OPPOSITE[one.verdict], one.basis, one.more_runs)
    assert other.p == one.p


@given(runs, runs, st.lists(rate, max_size=8))
def test_the_order_of_runs_changes_nothing(before: list[float], after: list[float], history: list[float]) -> None:
    one = judge("throughput", before, after, history=[history])
    other = judge("throughput", before[::-1], sorted(after), history=[history[::-1]])
    assert bounds(other) == pytest.approx(bounds(one), rel=1e-9)
    assert (other.verdict, other.words) == (one.verdict, one.words)


@given(runs, runs, st.lists(rate, max_size=8))
def test_the_verdict_is_what_the_interval_says(before: list[float], after: list[float], history: list[float]) -> None:
    judged = judge("throughput", before, after, history=[history])
    value, low, high = bounds(judged)
    assert low <= value * (1 + 1e-9)
    assert value <= high * (1 + 1e-9)
    if judged.verdict == "SLOWER":
        assert high < 1
    if judged.verdict == "SAME":
        assert low * (1 + 1e-9) >= 1 / 1.02
        assert high <= 1.02 * (1 + 1e-9)
    assert (judged.more_runs is None) or judged.verdict == "UNKNOWN"
