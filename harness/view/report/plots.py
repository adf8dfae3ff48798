"""The geometry of the plots over time: numbers in, coordinates out. The template draws, the script reads them back.

Every plot is ``WIDE`` by ``HIGH`` whatever its size on the page (it is stretched), and all share one clock, so that one
moment stands at one place in all of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from harness import figures
from harness.comparison import Explanation, Measured, Profile, Side
from harness.view.curves import end_of, one_unit, representative, spans, steady_rates
from harness.view.sparkline import shift_text
from harness.view.words import plain

WIDE, HIGH = 10_000, 4_000

POINTS = 8_000
"""Points of all lines of a plot together."""

HEADROOM = 1.08
"""The top of a scale above the greatest steady value."""

LONG = 4
"""Times the usual length of a block: one that is longer stands for itself."""

TICKS_S = (0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 86400)


@dataclass(frozen=True)
class Tick:
    at: float  # per cent of the plot, from the left or from the bottom
    text: str


@dataclass(frozen=True)
class Clock:
    """The time axis of all plots: [0, ``end``] seconds."""

    end: float
    ticks: tuple[Tick, ...]

    def x(self, t: float) -> int:
        return round(WIDE * t / self.end)

    def percent(self, t: float) -> float:
        return round(100 * t / self.end, 2)


@dataclass(frozen=True)
class Scale:
    """A value axis, in the unit that is shown."""

    low: float
    high: float
    ticks: tuple[Tick, ...] = ()

    def y(self, value: float) -> int:
        return round(HIGH * (self.high - value) / (self.high - self.low))


@dataclass(frozen=True)
class Line:
    """One run's line: several pieces where it was interrupted."""

    side: str  # "before" or "after"
    label: str
    pieces: tuple[str, ...]
    faint: bool = False


@dataclass(frozen=True)
class Flag:
    """A moment worth a line through the plot, numbered, with its sentence below."""

    side: str
    number: int
    at: float
    text: str
    kind: str = "shift"  # or "end": the run failed there


@dataclass(frozen=True)
class Mark:
    """An event of a run, drawn as a tick in a strip of its own."""

    at: float
    kind: str
    text: str


@dataclass(frozen=True)
class Plot:
    title: str
    unit: str
    scale: Scale
    lines: tuple[Line, ...]
    flags: tuple[Flag, ...] = ()
    marks: dict[str, tuple[Mark, ...]] = field(default_factory=dict)
    rows: tuple[tuple[str, ...], ...] = ()  # the same in figures: (time, before, after)


def clock(e: Explanation) -> Clock | None:
    """The clock that holds the longest of the runs; None where no run has any series."""
    end = max((end_of(run) for side in (e.before, e.after) for run in side.runs), default=0.0)
    if end <= 0:
        return None
    step = next((s for s in TICKS_S if end / s <= 8), 86400.0)
    times = [n * step for n in range(math.floor(end / step) + 1)]
    label = figures.clock if end >= 60 else lambda t: f"{t:g} s"
    return Clock(end, tuple(Tick(round(100 * t / end, 2), label(t)) for t in times))


def scale_to(high: float, low: float = 0.0) -> Scale:
    """A scale with two to five round ticks."""
    rough = (high - low) / 4
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(m * size for m in (1, 2, 2.5, 5, 10) if m * size >= rough)
    ticks = (n * step for n in range(math.ceil(low / step), math.floor(high / step) + 1))
    return Scale(low, high, tuple(Tick(round(100 * (t - low) / (high - low), 2), f"{t:,.6g}") for t in ticks))


def throughput(e: Explanation, time: Clock) -> Plot | None:
    """Every run's throughput over time; of a side of several, all but the one that stands for it faint.

    None where no run has a rate, and where some count tokens and others steps.
    """
    factor = 1000 if e.unit == "tokens" else 1
    sides = {"before": e.before, "after": e.after}
    runs = [run for side in sides.values() for run in side.runs if run.profile.t]
    rates = steady_rates(runs)
    if not rates or max(rates) <= 0 or not one_unit(runs):
        return None
    scale = scale_to(HEADROOM * max(rates) / factor)
    most = max(40, POINTS // len(runs))
    lines = [
        Line(name, plain(run.run.id), _pieces(run.profile, time, scale, factor, most), run is not representative(side))
        for name, side in sides.items()
        for run in side.runs
        if run.profile.t
    ]
    lines.sort(key=lambda line: not line.faint)  # what matters is drawn last, above the others
    flags = tuple(_flags(e, time))
    marks = {name: _marks(side, time) for name, side in sides.items()}
    unit = figures.rate_unit(e.unit)
    return Plot("Throughput", unit, scale, tuple(lines), flags, marks, _rows(sides, time, e.unit))


def _pieces(profile: Profile, time: Clock, scale: Scale, factor: float, most: int) -> tuple[str, ...]:
    """The polyline points of a run, broken where nothing was trained for more than a few blocks.

    A block far longer than the others, as one with a first step that compiles, is a level line of its own: a slant to
    its neighbour's middle would show rates that nobody saw.
    """
    blocks = [(begin, end, rate / factor) for (begin, end), rate in zip(spans(profile), profile.rate, strict=True)]
    usual = sorted(end - begin for begin, end, _ in blocks)[len(blocks) // 2]
    pieces: list[list[tuple[float, float]]] = [[]]
    for n, (begin, end, rate) in enumerate(blocks):
        if end - begin > LONG * usual:
            pieces += [[(begin, rate), (end, rate)], []]
            continue
        if pieces[-1] and begin - blocks[n - 1][1] > 2 * usual:
            pieces.append([])
        pieces[-1].append(((begin + end) / 2, rate))
    share = most / len(blocks)
    return tuple(points(thin(piece, max(2, math.ceil(share * len(piece)))), time, scale) for piece in pieces if piece)


def points(values: Iterable[tuple[float, float]], time: Clock, scale: Scale) -> str:
    """``"x,y x,y"`` of (seconds, value)."""
    return " ".join(f"{time.x(t)},{scale.y(value)}" for t, value in values)


def thin(values: Sequence[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    """At most ``most`` points, each the mean of as many neighbours."""
    size = max(1, math.ceil(len(values) / max(1, most)))
    groups = [values[n : n + size] for n in range(0, len(values), size)]
    return [(sum(t for t, _ in group) / len(group), sum(v for _, v in group) / len(group)) for group in groups]


def _flags(e: Explanation, time: Clock) -> Iterable[Flag]:
    found: list[tuple[str, float, str, str]] = []
    for name, side in (("before", e.before), ("after", e.after)):
        for run in side.runs:
            who = f"{name}, {plain(run.run.id)}" if len(side.runs) > 1 else name
            found += [(name, s.t, shift_text(s, e.unit, who), "shift") for s in run.shifts]
            if run.failure is not None:
                end = end_of(run)
                found.append((name, end, f"{who}: failed at {figures.duration(end)}", "end"))
    for number, (name, t, text, kind) in enumerate(sorted(found, key=lambda item: item[1]), 1):
        yield Flag(name, number, time.percent(min(t, time.end)), text, kind)


def _marks(side: Side, time: Clock) -> tuple[Mark, ...]:
    run = representative(side)
    marks = run.profile.marks if run else ()
    return tuple(
        Mark(time.percent(min(t, time.end)), plain(kind), f"{figures.duration(t)} {plain(text)}")
        for t, kind, text in marks
    )


def _rows(sides: dict[str, Side], time: Clock, unit: str, count: int = 20) -> tuple[tuple[str, ...], ...]:
    """The plot in figures: the rate of the runs that stand for the sides, at ``count`` moments."""
    picked = [representative(side) for side in sides.values()]
    rows = []
    for n in range(count):
        t = (n + 0.5) * time.end / count
        rows.append((figures.duration(t), *(_rate_at(run, t, unit) for run in picked)))
    return tuple(rows)


def _rate_at(run: Measured | None, t: float, unit: str) -> str:
    inside = (
        [rate for (begin, end), rate in zip(spans(run.profile), run.profile.rate, strict=True) if begin <= t <= end]
        if run
        else []
    )
    return figures.rate(inside[0], unit) if inside else "-"
