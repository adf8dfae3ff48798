"""Steady state, on arrays: which steps count, and the throughput over them. What a summary and an explanation stand on.

A *row* is one step number of a role: the tokens of its devices add up, and its seconds are those of its slowest device.
Left out of the steady state, and counted:

- *compile rows*: a phase "compile", a ``Compile`` event of that number, or one that overlaps a step in time. Not where
  compiling goes on: a run that still compiles in ``RECURRING`` rows of its second half pays for that as it goes, so
  there the rows that compile after the warm-up stay;
- *warm-up*: the first row, and then what MSER-5 cuts off (White 1997, "An effective truncation heuristic for bias
  reduction in simulation output"): the d that minimises the squared standard error of the means of batches of five
  after d, d in the first half. One thing is added: what is cut must have been slower than what is left, because a run
  that slows half-way is no run that was warming up.

Nothing else is left out. A throttled stretch, or an evaluation that the trainer times as part of a step, is what the
run was slow from: without it no comparison could find it. An evaluation between steps is in no step's seconds.

Throughput is the ratio of sums, tokens over seconds, of the steady rows. Its interval is that of non-overlapping
batch means (Schmeiser 1982) of the ratio's residuals ``tokens - R seconds`` with Student's t: successive steps are
alike, so steps may not be taken for independent, and means of long batches nearly may. In simulation it holds the
truth 95 times of 100 from some 400 steps on, 90 at 100 steps, fewer where steps are few and very much alike. It is
an interval *within* this run; the next run may differ by more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from harness.evidence import Floats, Steps, Whole
from harness.records import Compile, Interval
from harness.rows import OVERLAP_S

FEWEST_STEPS = 8
"""Steady rows below which no throughput is given."""

RECURRING = 3
"""Rows that compile in the second half of a run, from which on compiling is how it runs."""

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of a role, in the order of time: columns of one length."""

    t: Floats  # when the last of its devices was done
    step: Whole
    seconds: Floats
    tokens: Whole
    padding: Whole
    slowest: Whole  # index of the slowest device's step
    row_of: Whole  # for each step, the row that it is in

    def __len__(self) -> int:
        return len(self.t)


@dataclass(frozen=True, eq=False)
class SteadyState:
    """Which rows are steady, and why the others are not."""

    rows: Rows
    compiling: Mask
    steady: Mask
    warm_up: int  # rows that did not compile and came too early

    @property
    def units(self) -> Floats:
        """What each row did: its tokens, or one step where the role counts no tokens."""
        counted = self.rows.tokens.astype(np.float64)
        return counted if counted.any() else np.ones_like(counted)

    @property
    def left_out(self) -> dict[str, int]:
        """Rows by why they do not count."""
        counts = {"warm-up": self.warm_up, "compile": int(np.count_nonzero(self.compiling & ~self.steady))}
        return {why: count for why, count in counts.items() if count}

    def throughput(self) -> Interval | None:
        """Units a second and the 95 % interval within the run; None where the rows are too few."""
        seconds, units = self.rows.seconds[self.steady], self.units[self.steady]
        if len(seconds) < FEWEST_STEPS or seconds.sum() <= 0 or units.sum() <= 0:
            return None
        return ratio_interval(units, seconds)


def counting_role(roles: Mapping[str, Steps]) -> str | None:
    """The role whose steps consumed most tokens; the first of equals, and None without steps."""
    tokens = {role: int(steps.tokens.sum()) for role, steps in roles.items() if len(steps)}
    return max(tokens, key=tokens.__getitem__, default=None)


def steady_state(steps: Steps, compiles: Sequence[Compile]) -> SteadyState:
    """The steady rows of a role with at least one step."""
    rows = rows_of(steps)
    compiled = compiling(steps, rows, compiles)
    half = len(rows) - len(rows) // 2
    goes_on = np.count_nonzero(compiled[half:]) >= RECURRING
    candidates = np.flatnonzero(~compiled if not goes_on else np.ones_like(compiled))
    candidates = candidates[candidates > 0]
    cut = warm_up(rows.seconds[candidates], rows.tokens[candidates])
    steady = np.zeros(len(rows), dtype=bool)
    steady[candidates[cut:]] = True
    return SteadyState(rows, compiled, steady, int(np.count_nonzero(~steady & ~compiled)))


def rows_of(steps: Steps) -> Rows:
    """One row a step number. A number that comes again later, in the next epoch or after a resume, is another row."""
    rising = bool(np.all(np.diff(steps.step) > 0))
    if rising or (len(steps.devices) <= 1 and not _parallel(steps)):
        each = np.arange(len(steps))
        return Rows(steps.t, steps.step, steps.seconds, steps.tokens, steps.padding, each, each)
    time = _occurrence(steps)
    order = np.lexsort((-steps.seconds, steps.step, time))  # the slowest of each row comes first
    new = np.ones(len(order), dtype=bool)
    new[1:] = (np.diff(steps.step[order]) != 0) | (np.diff(time[order]) != 0)
    first = np.flatnonzero(new)
    t = np.maximum.reduceat(steps.t[order], first)
    by_time = np.argsort(t, kind="stable")
    place = np.empty_like(by_time)
    place[by_time] = np.arange(len(by_time))
    row_of = np.empty(len(order), dtype=np.int64)
    row_of[order] = place[np.cumsum(new) - 1]
    tokens, padding = (np.add.reduceat(column[order], first)[by_time] for column in (steps.tokens, steps.padding))
    slowest = order[first][by_time]
    return Rows(t[by_time], steps.step[slowest], steps.seconds[slowest], tokens, padding, slowest, row_of)


def _again(steps: Steps) -> tuple[Whole, Mask, Mask]:
    """Steps ordered by device, number and time; which of them repeat the one before, and which of those overlap it."""
    order = np.lexsort((steps.t, steps.step, steps.device))
    same = np.zeros(len(order), dtype=bool)
    same[1:] = (np.diff(steps.step[order]) == 0) & (np.diff(steps.device[order]) == 0)
    overlap = np.zeros(len(order), dtype=bool)
    overlap[1:] = (steps.t - steps.seconds)[order][1:] < steps.t[order][:-1] - OVERLAP_S
    return order, same, same & overlap


def _parallel(steps: Steps) -> bool:
    """Whether several workers that share one device's name took the same step at once."""
    return bool(_again(steps)[2].any())


def _occurrence(steps: Steps) -> Whole:
    """How often each step's device had taken a step of that number before; workers at once count as one."""
    order, same, overlap = _again(steps)
    again = np.cumsum(same & ~overlap)
    base = np.maximum.accumulate(np.where(same, 0, again))
    occurrence = np.empty(len(order), dtype=np.int64)
    occurrence[order] = again - base
    return occurrence


def compiling(steps: Steps, rows: Rows, compiles: Sequence[Compile]) -> Mask:
    """The rows in which something was compiled, on any of the role's devices."""
    took = [c for c in compiles if c.seconds > OVERLAP_S]
    found = np.isin(rows.step, [c.step for c in took if c.step])
    found[rows.row_of[shared(steps, [(c.t - c.seconds, c.t) for c in took]) > 0]] = True
    if "compile" in steps.phases:
        found[rows.row_of[steps.phases["compile"] > 0]] = True
    return found


def shared(steps: Steps, spans: Sequence[tuple[float, float]]) -> Floats:
    """The seconds of each step that lie in ``spans``, each (begin, end); what is no more than ``OVERLAP_S`` is not."""
    found = np.zeros(len(steps))
    starts = steps.t - steps.seconds
    least = np.minimum.accumulate(starts[::-1])[::-1]  # devices interleave: from here on no step starts earlier
    for begin, end in spans:
        low = int(np.searchsorted(steps.t, begin + OVERLAP_S, side="right"))
        high = max(low, int(np.searchsorted(least, end - OVERLAP_S, side="left")))
        both = np.minimum(steps.t[low:high], end) - np.maximum(starts[low:high], begin)
        found[low:high] += np.where(both > OVERLAP_S, both, 0.0)
    return found


def warm_up(seconds: Floats, tokens: Whole) -> int:
    """How many of the first rows are warm-up, by MSER-5 on seconds a token; by MSER on rows where they are few."""
    size = 5 if len(seconds) >= 40 else 1
    count = len(seconds) // size
    if count < 4:
        return 0
    took = seconds[: count * size].reshape(count, size).sum(axis=1)
    done = tokens[: count * size].astype(np.float64).reshape(count, size).sum(axis=1)
    return mser(took / done if np.all(done > 0) else took) * size


def mser(values: Floats) -> int:
    """The d <= n/2 that minimises ``sum((values[d:] - mean)^2) / (n - d)^2``; the least d of equals.

    Only a d whose ``values[:d]`` are greater in the mean than the others, or none.
    """
    reversed_ = (values - values.mean())[::-1]  # centred, so that the difference of sums keeps its digits
    left = np.arange(1, len(values) + 1)
    sums = np.cumsum(reversed_)
    squares = np.cumsum(reversed_**2) - sums**2 / left
    scores = (np.maximum(squares, 0.0) / left**2)[::-1]
    candidates = scores[: len(values) // 2 + 1]
    candidates[1:][sums[::-1][1 : len(candidates)] > 0] = np.inf  # what is left would be above the mean of all
    noise = 1e-24 * max(1.0, float(np.sum(values**2)))  # rounding must not pick a winner among equals
    return int(np.flatnonzero(candidates <= candidates.min() + noise)[0])


def ratio_interval(units: Floats, seconds: Floats) -> Interval:
    """``sum(units) / sum(seconds)``, with the interval of batch means of its residuals.

    The batches are as many as they are long, between 4 and 20 of them. What correlation is left between successive
    batches widens the interval by that of an autoregressive process, as in Skart (Tafazzoli and Wilson 2011).
    """
    ratio = float(units.sum() / seconds.sum())
    batches = min(20, max(4, math.isqrt(len(units))))
    means = np.array([part.mean() for part in np.array_split(units - ratio * seconds, batches)])
    squares = float(np.sum(means**2))
    if squares == 0:
        return Interval(ratio, ratio, ratio)
    correlation = float(np.sum(means[1:] * means[:-1])) / squares + 1 / batches  # without the term it is low by that
    correlation = min(0.9, max(0.0, correlation))
    variance = float(means.var(ddof=1)) / batches * (1 + correlation) / (1 - correlation)
    half = float(stdtrit(batches - 1, 0.975)) * math.sqrt(variance) / float(seconds.mean())
    return Interval(ratio, max(0.0, ratio - half), ratio + half)
