"""Which steps are steady, and the throughput over them, against references and literals."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.evidence import Steps
from harness.records import Compile
from harness.rows import OVERLAP_S
from harness.steady import (
    counting_role,
    mser,
    ratio_interval,
    rows_of,
    shared,
    steady_state,
    warm_up,
)

Row = tuple[float, int, str, float, int]  # t, step, device, seconds, tokens


def steps_of(rows: Sequence[Row], **phases: Sequence[float]) -> Steps:
    rows = sorted(rows, key=lambda row: row[0])
    names = tuple(dict.fromkeys(row[2] for row in rows))
    return Steps(
        t=np.array([row[0] for row in rows], dtype=np.float64),
        step=np.array([row[1] for row in rows], dtype=np.int64),
        device=np.array([names.index(row[2]) for row in rows], dtype=np.int64),
        seconds=np.array([row[3] for row in rows], dtype=np.float64),
        tokens=np.array([row[4] for row in rows], dtype=np.int64),
        padding=np.zeros(len(rows), dtype=np.int64),
        phases={name: np.array(values, dtype=np.float64) for name, values in phases.items()},
        devices=names,
    )


def series(seconds: Sequence[float], tokens: int = 100) -> Steps:
    ends = np.cumsum(seconds)
    return steps_of([(float(t), n, "cpu", s, tokens) for n, (t, s) in enumerate(zip(ends, seconds, strict=True), 1)])


# --- rows ------------------------------------------------------------------------------------------------


@given(st.integers(1, 30), st.integers(1, 4), st.randoms(use_true_random=False))
def test_a_row_is_one_number_with_its_slowest_device(count: int, devices: int, dice: random.Random) -> None:
    rows: list[Row] = []
    for number in range(1, count + 1):
        for device in range(devices):
            spent = dice.uniform(0.1, 0.9)
            rows.append((number + dice.uniform(0, 0.05), number, f"cuda:{device}", spent, dice.randrange(100)))
    groups = defaultdict(list)
    for row in rows:
        groups[row[1]].append(row)
    steps = steps_of(rows)
    joined = rows_of(steps)
    assert list(joined.step) == sorted(groups)
    assert list(joined.t) == [max(row[0] for row in groups[n]) for n in joined.step]
    assert list(joined.seconds) == [max(row[3] for row in groups[n]) for n in joined.step]
    assert list(joined.tokens) == [sum(row[4] for row in groups[n]) for n in joined.step]
    assert list(steps.seconds[joined.slowest]) == list(joined.seconds)
    assert list(joined.step[joined.row_of]) == list(steps.step)


def test_numbers_that_begin_again_are_other_rows() -> None:
    """Two devices, three epochs that each count from 1: nine rows, not three of three times the tokens."""
    rows = [
        (10.0 * epoch + number + 0.1 * device, number, f"cuda:{device}", 0.9, 100)
        for epoch in range(3)
        for number in (1, 2, 3)
        for device in (0, 1)
    ]
    joined = rows_of(steps_of(rows))
    assert list(joined.step) == [1, 2, 3] * 3
    assert list(joined.tokens) == [200] * 9
    assert np.all(np.diff(joined.t) > 0)
    alone = rows_of(steps_of([row for row in rows if row[2] == "cuda:0"]))
    assert list(alone.step) == [1, 2, 3] * 3
    assert list(alone.tokens) == [100] * 9


def test_workers_that_share_a_device_take_a_step_together() -> None:
    rows = [(number + 0.01 * worker, number, "cpu", 0.9, 100) for number in (1, 2, 3) for worker in range(3)]
    assert list(rows_of(steps_of(rows)).tokens) == [300] * 3


def test_the_role_that_counts_is_the_one_with_most_tokens() -> None:
    few, many, none = series([1.0] * 3, 1), series([1.0] * 2, 100), series([1.0] * 9, 0)
    assert counting_role({"target": none, "drafter": many, "other": few}) == "drafter"
    assert counting_role({"target": none, "loader": none}) == "target"
    assert counting_role({}) is None


# --- left out --------------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.floats(0, 30), st.floats(0.01, 3)), min_size=1, max_size=12),
    st.lists(st.tuples(st.floats(0, 30), st.floats(0.01, 9)), max_size=4),
)
def test_what_steps_share_with_spans_is_what_a_look_at_each_pair_finds(
    took: list[tuple[float, float]], spans: list[tuple[float, float]]
) -> None:
    steps = steps_of([(t, n, "cpu", seconds, 1) for n, (t, seconds) in enumerate(took, 1)])
    wanted = [(t - long, t) for t, long in spans]
    both = [
        [min(t, end) - max(t - seconds, begin) for begin, end in wanted]
        for t, seconds in zip(steps.t, steps.seconds, strict=True)
    ]
    assert shared(steps, wanted) == pytest.approx([sum(x for x in each if x > OVERLAP_S) for each in both])


def test_every_row_is_steady_or_left_out_for_a_reason() -> None:
    dice = random.Random(1)
    steps = series([3.0] * 10 + [dice.gauss(1, 0.01) for _ in range(90)])
    state = steady_state(steps, [Compile(float(steps.t[49]), "late", 0.5, step=50)])
    assert state.left_out["compile"] == 1
    assert 10 <= state.left_out["warm-up"] <= 40
    assert sum(state.left_out.values()) + np.count_nonzero(state.steady) == 100
    assert not state.steady[49]


def test_a_throttled_half_is_part_of_the_figure() -> None:
    state = steady_state(series([1.0] * 50 + [2.0] * 50), [])
    rate = state.throughput()
    assert state.left_out == {"warm-up": 1}
    assert rate is not None
    assert rate.value == pytest.approx(100 * 99 / 149)


def test_a_role_without_tokens_counts_its_steps() -> None:
    rate = steady_state(series([0.5] * 20, 0), []).throughput()
    assert rate is not None
    assert rate.value == pytest.approx(2.0)


def test_one_step_alone_is_warm_up() -> None:
    state = steady_state(series([1.0]), [])
    assert state.throughput() is None
    assert state.left_out == {"warm-up": 1}


# --- figures ---------------------------------------------------------------------------------------------


def test_the_interval_of_a_literal_series_is_the_textbooks() -> None:
    """Four batches of residuals -1, 1, -1, 1 at one second each: t(3) * sd / 2, and no correlation to widen it."""
    tokens = np.array([9.0, 9.0, 11.0, 11.0, 9.0, 9.0, 11.0, 11.0])
    interval = ratio_interval(tokens, np.ones(8))
    half = 3.182446 * math.sqrt(4 / 3) / 2
    assert (interval.value, interval.low, interval.high) == pytest.approx((10.0, 10 - half, 10 + half), rel=1e-6)


def test_mser_cuts_at_the_literal_place() -> None:
    assert mser(np.array([9.0, 5.0, 1.0, 1.1, 0.9, 1.0, 1.1, 0.9])) == 2
    assert mser(np.array([1.0] * 8)) == 0
    assert mser(np.array([1.0, 1.0, 1.0, 1.0, 1.0, 9.0])) <= 3  # never more than half
    assert warm_up(np.array([5.0, 1.0, 1.0]), np.array([1, 1, 1])) == 0  # too few to judge


@given(st.lists(st.floats(0.01, 100), min_size=4, max_size=60))
def test_mser_is_the_brute_force_minimum(values: list[float]) -> None:
    array = np.array(values)
    noise = 1e-9 * max(1.0, float(np.sum(array**2)))
    scores = {
        d: float(np.sum((array[d:] - array[d:].mean()) ** 2)) / (len(array) - d) ** 2
        for d in range(len(array) // 2 + 1)
        if d == 0 or array[:d].mean() >= array[d:].mean() + noise
    }
    found = mser(array)
    assert found == 0 or array[:found].mean() >= array[found:].mean() - noise
    assert float(np.sum((array[found:] - array[found:].mean()) ** 2)) / (len(array) - found) ** 2 <= (
        min(scores.values()) + noise
    )


@pytest.mark.parametrize("at", [0.3, 0.45, 0.5])
def test_a_run_that_slows_half_way_was_not_warming_up(at: float) -> None:
    fast = int(200 * at)
    state = steady_state(series([3.0] * 5 + [1.0] * fast + [2.0] * (195 - fast)), [])
    assert state.left_out["warm-up"] <= 11  # the slow beginning, in batches of five
