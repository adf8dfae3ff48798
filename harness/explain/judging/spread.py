"""How far runs of one workload spread from run to run, on logarithms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from harness.evidence import Floats

GROSS = math.log(1.5)
"""A run of the history that is further than this factor from its median had something else the matter with it."""


class Spread(NamedTuple):
    """``sigma`` is relative, as logarithms are for small values; ``freedom`` are its degrees of freedom."""

    sigma: float
    freedom: int


def spread(groups: Sequence[Floats]) -> Spread:
    """The standard deviation within groups, pooled: sum of squares about each group's mean, over n - 1 of each.

    Where no group has two values there are no degrees of freedom, and sigma is 0.
    """
    freedom = sum(len(group) - 1 for group in groups if len(group))
    squares = sum(float(np.sum((group - group.mean()) ** 2)) for group in groups if len(group))
    return Spread(math.sqrt(squares / freedom) if freedom else 0.0, freedom)


def without_gross(history: Floats) -> Floats:
    """``history`` (n,) without the runs that are grossly off its median; all of it where those are a quarter or more.

    Such runs are faults that happened, not spread: kept, one run of a fifth of the speed would hide every other
    fault. A quarter of the runs or more is no accident but how the workload runs, and stays.
    """
    if not len(history):
        return history
    near = np.abs(history - np.median(history)) <= GROSS
    return history[near] if 4 * np.count_nonzero(~near) < len(history) else history
