"""Where the level of a series jumps: narrowest over threshold on seeded intervals, with a robust long-run deviation.

For a series x of n values, an interval of it and a split, the CUSUM statistic is ``|mean right - mean left| *
sqrt(left * right / (left + right)) / sigma``. Intervals of every length, half as long each second layer and
overlapping by half (seeded intervals, Kovacs et al. 2023, Biometrika 110), are scanned; of those whose statistic is
over the threshold the narrowest gives a change point, and the intervals that hold it are done (narrowest over
threshold, Baranowski, Chen and Fryzlewicz 2019, JRSS B 81): a narrow interval holds one jump, and little drift.

Real series of step times are autocorrelated and drift, so that

- sigma is the long-run deviation: from medians of differences of neighbouring window means, over windows of 1, 2, 4,
  ... values, the largest of them (as MOSUM, Eichinger and Kirch 2018). It grows with correlation, and a few jumps
  do not move a median;
- what is found is weighed again between its neighbours, the weakest first, as Hunter's merge does (Fleming et al.
  2023), and kept where it is over the threshold, large enough to matter, and a *jump*: most of it happens at once.
  A slow drift has no such place.

E-divisive (Otava), PELT and L1 step fits (asv) all take values for independent: on correlated ones they find steps
that are none.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from harness.evidence import Floats

SHORTEST = 4
"""Values that a level lasts at least: fewer are outliers."""

THRESHOLD = 1.2
"""Times sqrt(2 ln n), what the largest of n normal values comes near: at most 5 of 100 steady series pass it
(``benchmarks/calibration``)."""

SHORT = 80
"""Values at which the threshold is doubled: how alike the neighbours of a short series are cannot be seen well."""

GREAT = 8.0
FEWEST = 16
_NORMAL = 1.4826  # of a normal law: standard deviation over median absolute deviation


class _Found(NamedTuple):
    length: int
    start: int
    end: int
    split: int


def changepoints(x: Floats, least: float) -> list[int]:
    """The indices, ascending, at which a new level of ``x`` (n,) begins; levels differ by ``least`` or more."""
    if len(x) < FEWEST:
        return []
    sigma = long_run_deviation(x)
    threshold = THRESHOLD * (1 + SHORT / len(x)) * sigma * math.sqrt(2 * math.log(len(x)))
    sums = np.concatenate([[0.0], np.cumsum(x)])
    found = []
    for start, end in _seeded(len(x)):
        split, statistic = _cusum(sums, start, end)
        if statistic > threshold:
            found.append(_Found(end - start, start, end, split))
    splits: list[int] = []
    for one in sorted(found):
        if not any(one.start < split < one.end for split in splits):
            splits.append(one.split)
    return _kept(x, sums, sorted(splits), threshold, sigma, least)


def long_run_deviation(x: Floats) -> float:
    """sqrt(n Var(mean of n values)) for large n: the standard deviation, where values are independent.

    Where it still grows with the widest window, the series is too short to show it all, and it is taken to grow on.
    """
    x = _without_great_jumps(x)
    seen, width = [], 1
    while width == 1 or width <= len(x) // 12:
        seen.append(_NORMAL * float(np.median(np.abs(_differences(x, width)))) * math.sqrt(width / 2))
        width *= 2
    growing = seen[-1] / seen[-2] if len(seen) > 1 and 0 < seen[-2] < seen[-1] else 1.0
    return max(seen) * growing


def _differences(x: Floats, width: int) -> Floats:
    """Mean of the ``width`` values from ``width + i`` on, minus that of those before: (n - 2 width + 1,)."""
    sums = np.concatenate([[0.0], np.cumsum(x)])
    means = (sums[width:] - sums[:-width]) / width
    return np.asarray(means[width:] - means[:-width])


def _without_great_jumps(x: Floats) -> Floats:
    """``x`` with every jump of ``GREAT`` local deviations taken out: several would move even a median."""
    local = _differences(x, SHORTEST)
    size = np.abs(local)
    great = size > GREAT * _NORMAL * float(np.median(size))
    calm = x.copy()
    for i in map(int, np.flatnonzero(great)):
        start = max(0, i - SHORTEST)
        if i == start + np.argmax(size[start : i + SHORTEST + 1]):  # the place of the jump, and not beside it
            calm[i + SHORTEST :] -= local[i]
    return calm


def _seeded(n: int) -> Iterator[tuple[int, int]]:
    """Intervals ``[start, end)`` of n, sqrt(2) shorter each layer, overlapping by half."""
    for layer in itertools.count():
        length = n / math.sqrt(2) ** layer
        if length < 2 * SHORTEST:
            return
        many = 2 * math.ceil(n / length) - 1
        shift = (n - length) / (many - 1) if many > 1 else 0.0
        for i in range(many):
            yield math.floor(i * shift), min(n, math.ceil(i * shift + length))


def _cusum(sums: Floats, start: int, end: int) -> tuple[int, float]:
    """The split of ``[start, end)`` with the largest statistic, times sigma, and that; (start, 0) if too short."""
    splits = np.arange(start + SHORTEST, end - SHORTEST + 1)
    if not len(splits):
        return start, 0.0
    left, right = splits - start, end - splits
    means = (sums[splits] - sums[start]) / left, (sums[end] - sums[splits]) / right
    statistics = np.abs(means[1] - means[0]) * np.sqrt(left * right / (end - start))
    best = int(np.argmax(statistics))
    return int(splits[best]), float(statistics[best])


def _kept(x: Floats, sums: Floats, splits: Sequence[int], threshold: float, sigma: float, least: float) -> list[int]:
    """``splits``, each moved to the best place between its neighbours, without those that do not hold up there.

    A move lowers the squares that are left, and else a split goes: it comes to an end.
    """
    bounds = [0, *splits, len(x)]
    while len(bounds) > 2:
        before = list(bounds)
        weighed = []
        for i in range(1, len(bounds) - 1):
            start, end = bounds[i - 1], bounds[i + 1]
            split, statistic = _cusum(sums, start, end)
            bounds[i] = split if statistic > 0 else bounds[i]
            holds = statistic > threshold and _jumps(x, start, split, end, sigma, least)
            weighed.append((holds, statistic, i))
        holds, _, weakest = min(weighed)
        if not holds:
            del bounds[weakest]
        elif bounds == before:
            break
    return bounds[1:-1]


def _jumps(x: Floats, start: int, split: int, end: int, sigma: float, least: float) -> bool:
    """Whether levels differ by ``least`` or more, and at once: lines fitted to either side are far apart at the split.

    Half as far, and 3 standard errors, ``sigma sqrt(4 / n)`` for the end of a line of n values: where the series only
    drifts the lines meet.
    """
    left, right = x[start:split], x[split:end]
    change = float(np.median(right) - np.median(left))
    width = 3 * min(len(left), len(right))  # a long line beside a short one would not follow a curve
    left, right = left[-width:], right[:width]
    gap = (_line_at_start(right) - _line_at_start(left[::-1])) * math.copysign(1.0, change)
    error = 2 * sigma * math.sqrt(1 / len(left) + 1 / len(right))
    return abs(change) >= least and gap >= max(abs(change) / 2, 3 * error)


def _line_at_start(y: Floats) -> float:
    """The least-squares line through ``y`` (n,), n at least 2, half a value before its first."""
    middle = (len(y) - 1) / 2
    offsets = np.arange(len(y)) - middle
    slope = float(offsets @ y) / float(offsets @ offsets)
    return float(y.mean()) - slope * (middle + 0.5)
