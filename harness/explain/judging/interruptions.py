"""What training was interrupted for, as shares of its time: facts of a run, whatever its speed is told to be.

Time between the steps is in no step's seconds, so no steady speed shows it; nor does it show what was compiled in steps
that are left out for it. Compiling and evaluating within steps come in a few steps that are very long, which leave
the speed undecided where there are few runs; where that is so, they are told apart from it too.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from harness.comparison import BETWEEN, UNACCOUNTED, Interruption, Judgement, Measured, Side
from harness.records import Value

COMPILE, EVALUATION = "compile", "evaluation"

SHARES = {BETWEEN: "observed.between_steps_share", COMPILE: "observed.compile_share"}
"""The observed facts that have them."""

LEAST = 0.05
"""Of a run's time, from which on more (or less) of it is a difference."""


def interruptions(before: Side, after: Side, decided: bool) -> tuple[Interruption, ...]:
    """Those that differ, the greatest difference first.

    decided  the speed is known to differ, and its split has the phases, or known to be the same, phases and all
    """
    compiled = any(COMPILE in m.steady.phases for side in (before, after) for m in side.runs if m.steady)
    told_by_the_speed = {EVALUATION, UNACCOUNTED, *([COMPILE] if compiled else [])} if decided else set()
    names = [name for name in (BETWEEN, COMPILE, EVALUATION, UNACCOUNTED) if name not in told_by_the_speed]
    found = [each for name in names if (each := _interruption(name, before, after)) is not None]
    return tuple(sorted(found, key=lambda each: -abs(each.after - each.before)))


def in_all(throughput: Judgement, breaks: Sequence[Interruption]) -> float | None:
    """Ratio of the throughputs with the time between the steps; None where that does not differ, or is all there is."""
    between = next((each for each in breaks if each.name == BETWEEN), None)
    if between is None or throughput.ratio is None or max(between.before, between.after) >= 1:
        return None
    return throughput.ratio.value * (1 - between.after) / (1 - between.before)


def _interruption(name: str, *sides: Side) -> Interruption | None:
    """None where a side does not know its share, or the shares hardly differ."""
    shares = [[share for m in side.runs if (share := _share(name, m)) is not None] for side in sides]
    if not all(shares):
        return None
    found = Interruption(name, *map(median, shares))
    return found if abs(found.after - found.before) >= LEAST else None


def _share(name: str, run: Measured) -> float | None:
    """Of a run's steady time; None where it is not known: of what no phase covers, where there are no phases."""
    if run.steady is None:
        return None
    if name in SHARES:
        return _number(run.observed.get(SHARES[name]))
    between, phases = _number(run.observed.get(SHARES[BETWEEN])), run.steady.phases
    total = sum(phases.values())
    if between is None or not total or (name == UNACCOUNTED and not phases.keys() - {UNACCOUNTED, EVALUATION}):
        return None
    return (1 - between) * phases.get(name, 0.0) / total


def _number(value: Value) -> float | None:
    return float(value) if isinstance(value, int | float) else None
