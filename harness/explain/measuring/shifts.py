"""Where a run changed its speed while it went: a run that slows half-way is told from one that is slow throughout.

The steady rows are made into at most 400 blocks of equally many rows, each ``ln(seconds / units)``, a row in 50 or less
that is far slower than all others counting as the slowest of those: a checkpoint or a stall is no change of level.
``changepoints.py`` finds where the level jumps, and the row is then found among those of the blocks beside it: the
split with the least absolute deviations from the two levels, as in asv's step detection. A level that comes back ends
its shift.

Limits: a stretch shorter than 1 % of the run, and a change of less than 2 %, are not seen; of a run of 100 steps only
a change that is many times its noise.
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np

from harness.comparison import Shift
from harness.evidence import Evidence, Floats, Whole
from harness.explain.measuring.changepoints import changepoints
from harness.explain.measuring.moments import happened
from harness.steady import SteadyState

BLOCKS = 400
ROWS_A_BLOCK = 5  # fewer only where a run has few rows
LEAST = 0.02
"""The relative change of level below which nothing is called a shift."""

RARE = 0.02


class _Level(NamedTuple):
    """Rows ``[start, end)`` of one speed."""

    start: int
    end: int
    rate: float


def find_shifts(evidence: Evidence, state: SteadyState) -> tuple[Shift, ...]:
    """The shifts of the role that ``state`` is of, in the order of time; none for a steady run, or one that drifts."""
    steady = np.flatnonzero(state.steady)
    seconds, units, edges = state.rows.seconds[steady], state.units[steady], _edges(len(steady))
    splits = [_row(seconds, units, edges, index) for index in changepoints(seconds_a_unit(state), LEAST)]
    levels = _levels(seconds, units, splits) if splits else []
    return tuple(_shift(evidence, state, steady, levels, i, back) for i, back in _paired(levels))


def seconds_a_unit(state: SteadyState) -> Floats:
    """ln(seconds a unit) of each block of steady rows, without what is rare and far off; empty if it says nothing."""
    seconds, units = state.rows.seconds[state.steady], state.units[state.steady]
    edges = _edges(len(seconds))
    if len(edges) < 2 or seconds.sum() <= 0 or np.any(np.add.reduceat(units, edges[:-1]) <= 0):
        return np.empty(0)
    counted = units > 0
    slowness = seconds[counted] / units[counted]
    place = max(0, math.ceil((1 - RARE) * len(slowness)) - 1)
    bound = float(np.partition(slowness, place)[place])
    kept = np.where(counted, np.minimum(seconds, bound * units), seconds)
    sums = np.maximum(np.add.reduceat(kept, edges[:-1]), np.finfo(float).tiny)
    return np.asarray(np.log(sums / np.add.reduceat(units, edges[:-1])))


def _edges(rows: int) -> Whole:
    """The first row of each block, and the end."""
    blocks = min(BLOCKS, max(rows // ROWS_A_BLOCK, min(rows, 40)))
    return np.linspace(0, rows, blocks + 1).astype(np.int64)


def _row(seconds: Floats, units: Floats, edges: Whole, index: int) -> int:
    """The row at which the level of block ``index`` begins: among those of the blocks before and after the edge."""
    start, end = int(edges[index - 1]), int(edges[min(index + 1, len(edges) - 1)])
    slowness = seconds[start:end] / np.maximum(units[start:end], 1e-9)
    inner = slice(max(0, int(edges[max(0, index - 4)])), start), slice(end, int(edges[min(index + 4, len(edges) - 1)]))
    levels = [_level(seconds, units, part) for part in inner]
    if None in levels:
        return int(edges[index])
    before, after = (np.abs(slowness - level) for level in levels if level is not None)
    costs = np.concatenate([[0.0], np.cumsum(before)]) + np.concatenate([np.cumsum(after[::-1])[::-1], [0.0]])
    return min(start + int(np.argmin(costs)), len(seconds) - 1)


def _level(seconds: Floats, units: Floats, part: slice) -> float | None:
    """Median seconds a unit; None where no row of the part counts."""
    counted = units[part] > 0
    return float(np.median(seconds[part][counted] / units[part][counted])) if counted.any() else None


def _levels(seconds: Floats, units: Floats, splits: list[int]) -> list[_Level]:
    bounds = sorted({0, *splits, len(seconds)})
    pairs = itertools.pairwise(bounds)
    return [_Level(s, e, float(units[s:e].sum() / seconds[s:e].sum())) for s, e in pairs]


def _paired(levels: list[_Level]) -> list[tuple[int, int | None]]:
    """(the level that a shift begins with, the level that is the one before it again) for each shift.

    A level is back where it is nearer to the one before than a quarter of the shift.
    """
    pairs: list[tuple[int, int | None]] = []
    i = 1
    while i < len(levels):
        logs = [math.log(level.rate) for level in levels[i - 1 : i + 2]]
        back = len(logs) == 3 and abs(logs[2] - logs[0]) <= max(LEAST, abs(logs[1] - logs[0]) / 4)
        pairs.append((i, i + 1 if back else None))
        i += 2 if back else 1
    return pairs


def _shift(
    evidence: Evidence, state: SteadyState, steady: Whole, levels: list[_Level], i: int, back: int | None
) -> Shift:
    begins, row = state.rows.t - state.rows.seconds, int(steady[levels[i].start])
    t = float(begins[row])
    last = float(begins[steady[levels[i].end]]) if levels[i].end < len(steady) else evidence.end
    return Shift(
        t=t,
        step=int(state.rows.step[row]),
        before=levels[i - 1].rate,
        after=levels[i].rate,
        until=None if back is None else float(begins[steady[levels[back].start]]),
        matched=happened(evidence, (float(begins[steady[levels[i - 1].start]]), t, last)),
    )
