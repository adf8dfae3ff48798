"""What a unit of work costs, by phase: one bar a side for steady state, and each run over time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from harness import figures
from harness.comparison import UNACCOUNTED, Explanation, Measured, Side
from harness.view.curves import one_unit, representative, spans
from harness.view.report.plots import Clock, Scale, points, scale_to
from harness.view.words import plain

COLOURS = 8
"""Phases with a colour of their own; the others share a grey."""

OTHERS = "other phases"

COLUMNS = 130
"""Columns of a run's phases over time."""


@dataclass(frozen=True)
class Segment:
    phase: str
    colour: str  # a CSS class
    left: float  # per cent of the longer bar
    width: float


@dataclass(frozen=True)
class Row:
    """A phase in figures."""

    phase: str
    colour: str
    before: str
    after: str
    change: str


@dataclass(frozen=True)
class Bars:
    """Steady state: what a useful unit costs on either side. The segments of a bar sum to one over the throughput."""

    unit: str
    bars: Mapping[str, tuple[Segment, ...]]  # by side
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Layer:
    """The upper edge of a phase in the stack; the layer below it begins at its lower one."""

    phase: str
    colour: str
    points: str


@dataclass(frozen=True)
class Stack:
    side: str
    run: str
    unit: str
    scale: Scale
    layers: tuple[Layer, ...]  # from the bottom up


def colours(e: Explanation) -> dict[str, str]:
    """A CSS class for each phase, the same in every plot: the costliest phases have the colours."""
    total: dict[str, float] = {}
    for side in (e.before, e.after):
        run = representative(side)
        for name, values in run.profile.phases.items() if run else ():
            total[name] = total.get(name, 0.0) + math.fsum(values)
        for name, seconds in run.steady.phases.items() if run and run.steady else ():
            total[name] = total.get(name, 0.0) + seconds
    ordered = sorted((name for name in total if name != UNACCOUNTED), key=lambda name: -total[name])
    return {name: f"p{n}" if n < COLOURS else "rest" for n, name in enumerate(ordered)} | {UNACCOUNTED: "unaccounted"}


def steady_bars(e: Explanation, classes: Mapping[str, str]) -> Bars | None:
    """Both sides' costs; None where one has no steady state, or they are not of the same unit."""
    if not one_unit([*e.before.runs, *e.after.runs]):
        return None
    costs = {name: side_costs(side, e.unit) for name, side in (("before", e.before), ("after", e.after))}
    longest = max(sum(cost.values()) for cost in costs.values())
    if not all(costs.values()) or longest <= 0:
        return None
    names = sorted({name for cost in costs.values() for name in cost}, key=lambda name: _place(name, classes))
    bars = {side: tuple(_segments(cost, names, classes, longest)) for side, cost in costs.items()}
    rows = tuple(_row(name, classes.get(name, "rest"), costs) for name in names)
    total = _row("all", "", {side: {"all": sum(cost.values())} for side, cost in costs.items()})
    return Bars(figures.cost_unit(e.unit)[0], bars, (*rows, total))


def side_costs(side: Side, unit: str) -> dict[str, float]:
    """What a useful unit costs by phase, the mean over the side's runs; {} without a steady state."""
    found = [
        figures.costs(m.steady.phases, m.steady.tokens or m.steady.steps, m.steady.padding, unit)
        for m in side.runs
        if m.steady
    ]
    names = dict.fromkeys(name for cost in found for name in cost)
    return {name: math.fsum(cost.get(name, 0.0) for cost in found) / len(found) for name in names}


def _place(name: str, classes: Mapping[str, str]) -> tuple[int, str]:
    """Coloured phases by their colour, then the others, padding, and what no phase covers."""
    last = {"rest": 90, "padding": 98, UNACCOUNTED: 99}
    colour = "padding" if name == "padding" else classes.get(name, "rest")
    return (last[colour] if colour in last else int(colour[1:]), name)


def _segments(cost: Mapping[str, float], names: list[str], classes: Mapping[str, str], longest: float) -> list[Segment]:
    left, found = 0.0, []
    for name in names:
        width = 100 * cost.get(name, 0.0) / longest
        if width > 0:
            colour = "padding" if name == "padding" else classes.get(name, "rest")
            found.append(Segment(plain(name), colour, round(left, 3), round(width, 3)))
        left += width
    return found


def _row(name: str, colour: str, costs: Mapping[str, Mapping[str, float]]) -> Row:
    before, after = (costs[side].get(name, 0.0) for side in ("before", "after"))
    change = after - before
    return Row(
        plain(name),
        "padding" if name == "padding" else colour,
        figures.digits(before),
        figures.digits(after),
        "0" if abs(change) < 1e-9 else figures.signed(change, figures.digits(abs(change))),
    )


def stacks(e: Explanation, time: Clock, classes: Mapping[str, str]) -> tuple[Stack, ...]:
    """The phases of the run that stands for each side, over time, on one scale; none where they have two units."""
    if not one_unit([*e.before.runs, *e.after.runs]):
        return ()
    runs = [(name, representative(side)) for name, side in (("before", e.before), ("after", e.after))]
    shown = [(name, run, _columns(run, e.unit)) for name, run in runs if run and run.profile.phases and run.profile.t]
    steady = sorted(total for _, _, columns in shown for _, _, _, total, is_steady in columns if is_steady) or sorted(
        total for _, _, columns in shown for _, _, _, total, _ in columns
    )
    if not steady:
        return ()
    scale = scale_to(1.25 * steady[min(len(steady) - 1, int(0.98 * len(steady)))])
    return tuple(_stack(name, run, columns, scale, time, classes, e.unit) for name, run, columns in shown)


Column = tuple[float, float, dict[str, float], float, bool]
"""(begin, end, cost by phase, their sum, steady)."""


def _columns(run: Measured, unit: str) -> list[Column]:
    """What a unit cost in each stretch of the run: seconds by phase over the units that it did."""
    factor = figures.cost_unit(unit)[1]
    where, profile = spans(run.profile), run.profile
    size = math.ceil(len(where) / COLUMNS)
    found = []
    for first in range(0, len(where), size):
        part = range(first, min(first + size, len(where)))
        seconds = {name: math.fsum(values[n] for n in part) for name, values in profile.phases.items()}
        units = math.fsum(profile.rate[n] * sum(values[n] for values in profile.phases.values()) for n in part)
        if units > 0:
            costs = {name: factor * value / units for name, value in seconds.items()}
            steady = all(profile.steady[n] for n in part)
            found.append((where[part[0]][0], where[part[-1]][1], costs, sum(costs.values()), steady))
    return found


def _stack(
    side: str, run: Measured, columns: list[Column], scale: Scale, time: Clock, classes: Mapping[str, str], unit: str
) -> Stack:
    """Each layer as a staircase; where nothing ran between two columns it goes down to the ground."""
    names = sorted(run.profile.phases, key=lambda name: _place(name, classes))
    coloured = [name for name in names if classes.get(name, "rest") != "rest"]
    groups = {name: [name] for name in coloured}
    if len(coloured) < len(names):
        groups[OTHERS] = [name for name in names if name not in groups]
    below = [0.0] * len(columns)
    layers = []
    for label, members in groups.items():
        below = [
            base + sum(costs[m] for m in members) for base, (_, _, costs, _, _) in zip(below, columns, strict=True)
        ]
        edge: list[tuple[float, float]] = []
        for n, ((begin, end, _, _, _), top) in enumerate(zip(columns, below, strict=True)):
            if n and begin - columns[n - 1][1] > 0.002 * time.end:
                edge += [(columns[n - 1][1], 0.0), (begin, 0.0)]
            edge += [(begin, top), (end, top)]
        layers.append(Layer(plain(label), classes.get(label, "rest"), points(edge, time, scale)))
    return Stack(side, plain(run.run.id), figures.cost_unit(unit)[0], scale, tuple(layers))
