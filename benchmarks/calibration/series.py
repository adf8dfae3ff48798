"""Made-up series as real ones are: of run values, and of the step times inside a run. Logarithms; seeded.

What they imitate: successive steps alike (AR(1)), heavy tails, a step in a hundred that is many times longer, drift
as a room warms up, GPUs that run at one of two clocks, sequences of uneven length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

Floats = NDArray[np.float64]
Dice = np.random.Generator


def ar1(dice: Dice, n: int, phi: float, sigma: float) -> Floats:
    """AR(1) with correlation ``phi`` from one value to the next and standard deviation ``sigma``, stationary."""
    noise = dice.standard_normal(n) * sigma * np.sqrt(1 - phi**2)
    noise[0] = dice.standard_normal() * sigma
    return np.asarray(lfilter([1.0], [1.0, -phi], noise))


def _two_clocks(dice: Dice, n: int, stay: float) -> Floats:
    """A clock 5 % lower for stretches of ``1 / (1 - stay)`` values on average."""
    switches = np.cumsum(dice.random(n) > stay)
    return 0.05 * (switches % 2) + 0.01 * dice.standard_normal(n)


def _rarely(dice: Dice, n: int, share: float, by: float) -> Floats:
    """A share of values higher by up to ``by``."""
    return np.where(dice.random(n) < share, by * dice.random(n), 0.0)


RUNS: Mapping[str, Callable[[Dice, int], Floats]] = {
    "normal, 0.3 %": lambda dice, n: 0.003 * dice.standard_normal(n),
    "normal, 1 %": lambda dice, n: 0.01 * dice.standard_normal(n),
    "normal, 3 %": lambda dice, n: 0.03 * dice.standard_normal(n),
    "heavy tails": lambda dice, n: 0.01 * dice.standard_t(3, n) / np.sqrt(3),
    "skewed": lambda dice, n: dice.exponential(0.02, n) + 0.003 * dice.standard_normal(n),
    "one run in 50 is 20 % slow": lambda dice, n: 0.2 * (dice.random(n) < 0.02) + 0.01 * dice.standard_normal(n),
    "two clocks, 3 in 10 low": lambda dice, n: 0.05 * (dice.random(n) < 0.3) + 0.005 * dice.standard_normal(n),
    "two clocks, 1 in 10 low": lambda dice, n: 0.05 * (dice.random(n) < 0.1) + 0.005 * dice.standard_normal(n),
    "each like the last": lambda dice, n: ar1(dice, n, 0.6, 0.01),
    "drifting 0.2 % a run": lambda dice, n: 0.002 * np.arange(n) + 0.01 * dice.standard_normal(n),
}
"""ln(seconds a token) of n runs, in the order in which they were made, in which nothing changed."""


STEPS: Mapping[str, Callable[[Dice, int], Floats]] = {
    "independent": lambda dice, n: 0.02 * dice.standard_normal(n),
    "correlated, 0.9": lambda dice, n: ar1(dice, n, 0.9, 0.03),
    "correlated, 0.99": lambda dice, n: ar1(dice, n, 0.99, 0.03),
    "heavy tails": lambda dice, n: 0.02 * dice.standard_t(3, n),
    "uneven lengths": lambda dice, n: 0.3 * dice.standard_normal(n),
    "outliers, 1 in 100": lambda dice, n: 0.02 * dice.standard_normal(n) + _rarely(dice, n, 0.01, 2.5),
    "stalls, 1 in 1000": lambda dice, n: ar1(dice, n, 0.5, 0.02) + _rarely(dice, n, 0.001, 5.0),
    "drift, 5 %": lambda dice, n: np.linspace(0, 0.05, n) + ar1(dice, n, 0.5, 0.02),
    "warming up, 5 %": lambda dice, n: 0.05 * (1 - np.exp(-np.arange(n) / (n / 10))) + ar1(dice, n, 0.5, 0.02),
    "two clocks": lambda dice, n: _two_clocks(dice, n, 0.8),
}
"""ln(seconds a token) of the n steps of a steady run."""
