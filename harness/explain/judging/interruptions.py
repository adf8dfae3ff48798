"""What training was interrupted for, as shares of its time: facts of a run, whatever its speed is told to be.

Time between the steps is in no step's seconds, so no steady speed shows it. Compiling and evaluating within steps come
in a few steps that are very long, which leave the speed undecided where there are few runs; where that is so, they
are told apart from it too.
"""

from __future__ import annotations

from statistics import median

from harness.comparison import BETWEEN, UNACCOUNTED, Interruption, Measured, Side

SHARE = "observed.between_steps_share"

WITHIN = ("compile", "evaluation", UNACCOUNTED)
"""The phases of a step that are interruptions; what no phase covers is where checkpoints are."""

LEAST = 0.05
"""Of a run's time, from which on more (or less) of it is a difference."""


def interruptions(before: Side, after: Side, decided: bool) -> tuple[Interruption, ...]:
    """Those that differ, the greatest difference first.

    decided  the speed is known to differ, and its split has the phases, or known to be the same, phases and all
    """
    names = (BETWEEN,) if decided else (BETWEEN, *WITHIN)
    found = [each for name in names if (each := _interruption(name, before, after)) is not None]
    return tuple(sorted(found, key=lambda each: -abs(each.after - each.before)))


def _interruption(name: str, *sides: Side) -> Interruption | None:
    """None where a side does not know its share, or the shares hardly differ."""
    shares = [[share for m in side.runs if (share := _share(name, m)) is not None] for side in sides]
    if not all(shares):
        return None
    found = Interruption(name, *map(median, shares))
    return found if abs(found.after - found.before) >= LEAST else None


def _share(name: str, run: Measured) -> float | None:
    """Of a run's time after the first step; None where it is not known."""
    between = run.observed.get(SHARE)
    if not isinstance(between, int | float):
        return None
    if name == BETWEEN:
        return float(between)
    total = sum(run.steady.phases.values()) if run.steady else 0.0
    return (1 - between) * run.steady.phases.get(name, 0.0) / total if run.steady and total else None
