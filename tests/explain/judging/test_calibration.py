"""The calibration benchmark in small: the rates that it measures at length are held loosely, with the same seeds."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.calibration.runs import abba, cell, found_at, rates
from benchmarks.calibration.series import RUNS
from benchmarks.calibration.tables import Table
from harness.explain.judging.judge import judge

PAIRS = 100
MOST = 0.05 + 3 * math.sqrt(0.05 * 0.95 / PAIRS)


@pytest.mark.parametrize("family", RUNS)
def test_runs_in_which_nothing_changed_are_seldom_called_different(family: str) -> None:
    for side, history in ((1, 14), (2, 14), (3, 0), (4, 0)):
        found = cell(family, side, history, PAIRS)
        assert found.called <= MOST, (side, history)
        assert found.covered >= 1 - MOST, (side, history)


def test_the_same_seed_gives_the_same_figures() -> None:
    assert cell("skewed", 2, 14, 20) == cell("skewed", 2, 14, 20)


def test_a_slowdown_is_called_from_where_it_is_said_to_be() -> None:
    dice = np.random.default_rng(2)
    a, b = abba(0.01 * dice.standard_normal(10), 5)
    least = found_at(judge("throughput", rates(a), rates(b)))
    assert judge("throughput", rates(a), rates(b + least + 1e-6)).verdict == "SLOWER"
    assert judge("throughput", rates(a), rates(b + least - 1e-6)).verdict != "SLOWER"


def test_sides_take_turns() -> None:
    a, b = abba(np.arange(8.0), 4)
    assert (a.tolist(), b.tolist()) == ([0, 3, 4, 7], [1, 2, 5, 6])


def test_a_table_is_level() -> None:
    lines = Table("T", "n", ("a", "bb"), (("ccc", "d"),)).text().splitlines()
    assert lines[-3:] == ["| a   | bb |", "| --- | -- |", "| ccc | d  |"]
