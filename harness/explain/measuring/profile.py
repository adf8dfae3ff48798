"""A run over time, thin enough to be drawn: its rate and phases in blocks of steps, its marks, its telemetry."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from harness.comparison import UNACCOUNTED, Lane, Profile
from harness.devices import WAIT, meanwhile
from harness.evidence import Evidence, Floats, Series, Whole
from harness.explain.measuring.spent import name_of, open_waits
from harness.figures import duration
from harness.rows import OVERLAP_S
from harness.steady import SteadyState

MOST = 400
"""Points of a curve: more than a picture has columns are not seen."""

MOST_MARKS = 60
"""Marks of one kind: of compilations the longest, of others the first."""

Mark = tuple[float, str, str]


def profile(evidence: Evidence, role: str, state: SteadyState) -> Profile:
    """All rows of the role that counts, those that are not steady too."""
    rows = state.rows
    size = -(-len(rows) // MOST)
    starts = np.arange(0, len(rows), size)
    seconds, units = np.add.reduceat(rows.seconds, starts), np.add.reduceat(state.units, starts)
    last = np.append(starts[1:], len(rows)) - 1
    steady = np.add.reduceat(state.steady.astype(np.int64), starts)
    return Profile(
        t=_plain(rows.t[last]),
        rate=_plain(np.divide(units, seconds, out=np.zeros_like(units), where=seconds > 0)),
        phases={name: _plain(column) for name, column in _phases(evidence, role, state, starts, last).items()},
        steady=tuple((2 * steady > last - starts).tolist()),
        marks=tuple(sorted(_marks(evidence))),
    )


def _phases(evidence: Evidence, role: str, state: SteadyState, starts: Whole, last: Whole) -> dict[str, Floats]:
    """Seconds of each phase in each block, waits opened; they sum to the block's seconds."""
    rows, steps = state.rows, evidence.steps[role]
    seconds = np.add.reduceat(rows.seconds, starts)
    found = {
        name: np.add.reduceat(column[rows.slowest], starts) for name, column in steps.phases.items() if name != "other"
    }
    covered = np.sum(list(found.values()), axis=0) if found else np.zeros_like(seconds)
    scale = np.divide(seconds, covered, out=np.ones_like(seconds), where=covered > seconds)
    found = {name: column * scale for name, column in found.items()}
    found[UNACCOUNTED] = np.maximum(0.0, seconds - covered)
    if WAIT in found:
        begin = rows.t[starts] - rows.seconds[starts]
        found |= open_waits(found.pop(WAIT), meanwhile(evidence.steps, role, begin, rows.t[last]))
    return {name_of(name): column for name, column in found.items() if column.any()}


def _marks(evidence: Evidence) -> Iterator[Mark]:
    compiles = sorted((c for c in evidence.compiles if c.seconds > OVERLAP_S), key=lambda c: -c.seconds)
    yield from _some((c.t, "compile", f"{c.name}, {duration(c.seconds)}") for c in compiles)
    yield from _some((e.t, "eval", f"{e.name}, {duration(e.seconds)}" if e.seconds else e.name) for e in evidence.evals)
    yield from _some((c.t, "checkpoint", c.path) for c in evidence.checkpoints)
    yield from _some((n.t, "warning", n.text) for n in evidence.notes if n.level == "warning")


def _some(marks: Iterable[Mark]) -> list[Mark]:
    return list(marks)[:MOST_MARKS]


def lanes(evidence: Evidence) -> tuple[Lane, ...]:
    """Every series of telemetry, of which a long one is medians of its neighbours."""
    thin = ((name, *_thin(series)) for name, series in sorted(evidence.telemetry.items()))
    return tuple(Lane(name, _plain(t), _plain(values)) for name, t, values in thin if len(t))


def _thin(series: Series) -> tuple[Floats, Floats]:
    """At most ``MOST`` points: the median of each bin, in time and in value."""
    known = np.isfinite(series.values)
    t, values = series.t[known], series.values[known]
    size = -(-len(t) // MOST)
    if size <= 1:
        return t, values
    whole = len(t) // size * size
    columns = []
    for column in (t, values):
        medians = np.median(column[:whole].reshape(-1, size), axis=1)
        rest = [float(np.median(column[whole:]))] if whole < len(column) else []
        columns.append(np.append(medians, rest))
    return columns[0], columns[1]


def _plain(column: Floats) -> tuple[float, ...]:
    return tuple(column.tolist())
