"""Two sides of runs compared by permutation: the shifts between them that the test does not reject, exactly.

Under "nothing changed", which side a run is on is a label, and every way to hand out the labels is as likely as the
one that was seen: nothing is assumed of how run values are distributed, or how far they spread. (Fisher 1935; Good,
"Permutation, Parametric and Bootstrap Tests of Hypotheses", 3rd ed. 2005.)

The test of a shift ``s`` takes it off the after-side and asks how many labellings give a difference of means at least
as large as the real one: ``p(s) = #{|c - w s| >= |d - s|} / M``. There d is the difference of means seen, c that of a
labelling, and ``w = k / n_after - (n_after - k) / n_before`` for k of the after-runs that kept their label, |w| <= 1.
Each labelling agrees with the shifts between (d - c) / (1 - w) and (d + c) / (1 + w), which hold d. So p is a count
of intervals around one point, and the set where p > level is an interval, found by sorting the ends: no search, and
the interval leaves out 0 exactly when p(0) <= level.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.evidence import Floats

MOST_EXACT = 50_000
"""Labellings that are all gone through: 9 against 9. Above, ``DRAWS`` of them are drawn."""

DRAWS = 20_000
TIE = 1e-11  # logarithms of run values that differ by less do so by rounding


class Permuted(NamedTuple):
    """``p`` of no shift at all, two-sided; ``low`` and ``high`` bound the shifts that are not rejected."""

    p: float
    low: float
    high: float


def can_reject(before: int, after: int, level: float) -> bool:
    """Whether so many runs could ever give a p of ``level``: two of all labellings are as far apart as it gets."""
    return before > 0 and after > 0 and math.comb(before + after, after) * level >= 2 - 1e-9


def permuted(before: Floats, after: Floats, level: float) -> Permuted:
    """The two-sided test of means, and the interval of shifts (after minus before) at confidence ``1 - level``.

    Each side (n,), at least one value. The order of the values changes nothing; to swap the sides negates the shifts.
    """
    before, after = np.sort(before), np.sort(after)
    if (len(before), *before) > (len(after), *after):  # one order for both, so that a draw is the same for both
        p, low, high = permuted(after, before, level)
        return Permuted(p, -high, -low)
    kept, sums = _labellings(before, after)
    n0, n1 = len(before), len(after)
    seen = float(after.mean() - before.mean())
    means = sums / n1 - (before.sum() + after.sum() - sums) / n0
    weights = kept / n1 - (n1 - kept) / n0
    starts, ends = _agreeing(seen, means, weights)
    rejected = math.floor(level * len(starts) + 1e-9)  # so many labellings or fewer: the shift is rejected
    low, high = np.sort(starts)[rejected], np.sort(ends)[len(ends) - 1 - rejected]
    return Permuted(float(np.mean((starts <= 0) & (ends >= 0))), float(low), float(high))


def _agreeing(seen: float, means: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """The ends of each labelling's interval of shifts; infinite for the real one, and for it with sides swapped."""
    with np.errstate(divide="ignore", invalid="ignore"):
        one, other = (seen - means) / (1 - weights), (seen + means) / (1 + weights)
    always = np.abs(weights) > 1 - 1e-9
    starts = np.where(always, -np.inf, np.minimum(one, other) - TIE)
    return starts, np.where(always, np.inf, np.maximum(one, other) + TIE)


def _labellings(before: Floats, after: Floats) -> tuple[Floats, Floats]:
    """For each labelling: how many of the after-runs keep their label, and the sum of what is labelled after."""
    chosen = _chosen(len(before), len(after))
    kept = (chosen >= len(before)).sum(axis=1, dtype=np.float64)
    return kept, np.concatenate([before, after])[chosen].sum(axis=1)


@functools.lru_cache(maxsize=4)
def _chosen(before: int, after: int) -> NDArray[np.intp]:
    """The runs, of both sides in order, that each labelling calls after: (labellings, after)."""
    n = before + after
    if math.comb(n, after) <= MOST_EXACT:
        flat = itertools.chain.from_iterable(itertools.combinations(range(n), after))
        return np.fromiter(flat, dtype=np.intp).reshape(-1, after)
    # The labelling seen is one of them, so that p is never 0 (Phipson and Smyth 2010).
    drawn = np.random.default_rng(5).random((DRAWS - 1, n)).argpartition(after, axis=1)[:, :after]
    return np.vstack([np.arange(before, n), drawn])
