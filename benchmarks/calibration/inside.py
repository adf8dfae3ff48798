"""``find_shifts`` over simulated runs: how often a steady one gets a shift, and which slowdown half-way is found."""

from __future__ import annotations

import numpy as np

from benchmarks.calibration.rivals import OTAVA_DEFAULT, otava
from benchmarks.calibration.series import STEPS, Floats
from benchmarks.calibration.tables import Table, percent
from harness.comparison import Shift
from harness.evidence import Evidence, Steps
from harness.explain.measuring.shifts import find_shifts, seconds_a_unit
from harness.records import Result, Run, RunSpec
from harness.steady import SteadyState, steady_state

LENGTHS = (100, 400, 2_000, 20_000)
SLOWDOWNS = (0.02, 0.03, 0.05, 0.1, 0.2, 0.4, 0.8)
NEAR = 0.03  # of the run, within which the moment must be found

_RUN = Run("", "", RunSpec("", "", ()), Result("finished", 0), None, None, None)


def state_of(slowness: Floats) -> SteadyState:
    """The steady rows of one device whose steps took ``exp(slowness)`` tenths of a second."""
    seconds = 0.1 * np.exp(slowness)
    one = np.ones(len(seconds), dtype=np.int64)
    steps = Steps(np.cumsum(seconds), np.arange(1, len(one) + 1), 0 * one, seconds, one, 0 * one, {}, ("cpu",))
    return steady_state(steps, ())


def shifts(slowness: Floats) -> tuple[Shift, ...]:
    """The shifts of such a run."""
    return find_shifts(Evidence(_RUN, {}), state_of(slowness))


def false_alarms(count: int) -> Table:
    """Steady runs that get a shift, by length; and Otava's library on the very blocks that ``find_shifts`` sees."""
    rows = []
    for name, family in STEPS.items():
        dice = np.random.default_rng([17, len(name)])
        cells = []
        for n in LENGTHS:
            many = count if n < 20_000 else count // 4
            cells.append(float(np.mean([bool(shifts(family(dice, n))) for _ in range(many)])))
        blocks = [seconds_a_unit(state_of(family(dice, 2_000))) for _ in range(max(10, count // 20))]
        theirs = float(np.mean([bool(points[0]) for points in otava([np.exp(b) for b in blocks], [OTAVA_DEFAULT])]))
        rows.append((name, *map(percent, [*cells, theirs])))
    return Table(
        title="Steady runs that are said to have a shift",
        note=f"{count} runs a cell, a quarter of that at 20,000 steps; at most 5 % is meant. "
        f"Otava: its defaults, on {max(10, count // 20)} runs of 2,000 steps.",
        header=("steps of a steady run", *(f"{n:,} steps" for n in LENGTHS), "Otava"),
        rows=tuple(rows),
    )


def power(count: int) -> Table:
    """The smallest slowdown half-way, of those tried, that is found 9 times in 10 and where it is."""
    rows = [(name, *(_smallest(name, n, count) for n in LENGTHS)) for name in STEPS]
    return Table(
        title="The smallest slowdown half-way that is found 9 times in 10",
        note=f"Of {', '.join(percent(s) for s in SLOWDOWNS)}; found: a shift within {percent(NEAR)} of the run from "
        f"where it is, which is between a fifth and four fifths. {count} runs a cell.",
        header=("steps", *(f"{n:,} steps" for n in LENGTHS)),
        rows=tuple(rows),
    )


def _smallest(name: str, n: int, count: int) -> str:
    dice = np.random.default_rng([19, n, len(name)])
    for slowdown in SLOWDOWNS:
        hits = 0
        for _ in range(count):
            series, at = STEPS[name](dice, n), int(n * dice.uniform(0.2, 0.8))
            series[at:] += slowdown
            hits += any(abs(shift.step - at) <= max(3, NEAR * n) for shift in shifts(series))
        if hits >= 0.9 * count:
            return percent(slowdown)
    return f"> {percent(SLOWDOWNS[-1])}"
