"""Telemetry on the clock of the runs: a lane for each thing that is measured, all devices and both sides in it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from harness import figures
from harness.comparison import Explanation, Lane, Measured
from harness.view.curves import representative
from harness.view.report.plots import Clock, Line, Scale, points, thin
from harness.view.words import plain

POINTS = 20_000
"""Points of all lanes together: what keeps the page small on a box of many GPUs."""

LEAST_SPAN = 0.2
"""Of the greatest value: a lane that hardly moves is drawn flat."""

UNITS = (
    ("_bytes_s", "MB/s", 1e6),
    ("_bytes", "GB", 1e9),
    ("_mhz", "MHz", 1.0),
    ("_pct", "%", 1.0),
    ("_w", "W", 1.0),
    ("_c", "°C", 1.0),
    ("_s", "s", 1.0),
)
"""What a series is in, by the end of its name, and how much of it one is."""

DEVICE = re.compile(r"^(gpu)s?[.](\d+)[.](.+)$")


@dataclass(frozen=True)
class Strip:
    """One lane: its lines, and in figures (side, mean, lowest, highest)."""

    title: str
    unit: str
    scale: Scale
    lines: tuple[Line, ...]
    rows: tuple[tuple[str, str, str, str], ...]
    differs: float  # how far the sides' means are apart, relative


def strips(e: Explanation, time: Clock) -> tuple[Strip, ...]:
    """The lanes of the runs that stand for the sides; those that differ most come first."""
    runs = [(name, representative(side)) for name, side in (("before", e.before), ("after", e.after))]
    found: dict[str, list[tuple[str, str, Lane]]] = {}
    for side, run in runs:
        for lane in _lanes(run):
            title, device = _title(lane.name)
            found.setdefault(title, []).append((side, device, lane))
    count = sum(len(lanes) for lanes in found.values())
    most = max(20, POINTS // count) if count else 0
    made = [_strip(title, lanes, time, most) for title, lanes in found.items()]
    return tuple(sorted(made, key=lambda strip: -strip.differs))


def _lanes(run: Measured | None) -> list[Lane]:
    return [lane for lane in run.lanes if lane.t and len(lane.t) == len(lane.values)] if run else []


def _title(name: str) -> tuple[str, str]:
    """("gpu clock_sm_mhz", "GPU 3"): devices of a kind share a lane."""
    found = DEVICE.match(name)
    return (f"{found[1]} {found[3]}", f"GPU {found[2]}") if found else (name, "")


def _strip(title: str, lanes: list[tuple[str, str, Lane]], time: Clock, most: int) -> Strip:
    suffix, unit, size = next((u for u in UNITS if title.endswith(u[0])), ("", "", 1.0))
    series = [
        (side, device, [(t, v / size) for t, v in zip(lane.t, lane.values, strict=True)])
        for side, device, lane in lanes
    ]
    values = [v for _, _, line in series for _, v in line]
    high = max(*values, 0.0) if len(values) > 1 else max(values[0], 0.0)
    low = min(*values, (1 - LEAST_SPAN) * high) if high > 0 else min(values)
    low = 0.0 if 0 <= low < 0.4 * high or unit == "%" else low
    if high <= low:
        high = low + 1
    pad = 0.04 * (high - low)
    scale = Scale(low - pad, high + pad)
    lines = tuple(
        Line(side, plain(device), (points(thin(line, most), time, scale),), len(lanes) > 2)
        for side, device, line in series
    )
    means = {side: [v for s, _, line in series if s == side for _, v in line] for side in ("before", "after")}
    rows = tuple(
        (side, *(figures.digits(f) for f in (sum(vs) / len(vs), min(vs), max(vs)))) for side, vs in means.items() if vs
    )
    return Strip(_spelled(title.removesuffix(suffix)), unit, scale, lines, rows, _apart(means))  # type: ignore[arg-type]


def _spelled(name: str) -> str:
    words = plain(re.sub(r"[._]", " ", name))
    return re.sub(r"^(gpu|cpu)\b", lambda found: found[0].upper(), words)


def _apart(values: dict[str, list[float]]) -> float:
    """Of two means, the difference over the greater; a side that has none is not known to differ."""
    if not all(values.values()):
        return 0.0
    before, after = (sum(v) / len(v) for v in values.values())
    greater = max(abs(before), abs(after))
    return abs(before - after) / greater if greater else 0.0
