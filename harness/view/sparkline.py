"""Throughput over time in a line of text for each run, on one clock and one scale, with the shifts marked."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness import figures
from harness.comparison import Explanation, Measured, Shift
from harness.view.curves import binned, end_of, one_unit, representative, steady_rates
from harness.view.words import plain

LEVELS = "▁▂▃▄▅▆▇█"
LEAST_SPAN = 0.25
"""Of the highest rate: a smaller range is not blown up to the full height, or noise would look like a fall."""

OUTLIERS = 0.02
"""Of the steady blocks, at either end of their rates: one block that stood still does not flatten the rest."""


def sparkline(values: Sequence[float | None], low: float, high: float) -> str:
    """A character a value: a space for None, the lowest bar for ``low`` and below, the highest for ``high``."""
    scale = (len(LEVELS) - 1) / (high - low)
    levels = (None if v is None else min(len(LEVELS) - 1, max(0, round((v - low) * scale))) for v in values)
    return "".join(" " if level is None else LEVELS[level] for level in levels)


def over_time(e: Explanation, width: int) -> RenderableType | None:
    """Both sides' throughput over time, each by the run that stands for it.

    None where neither has a series, and where one counts tokens and the other steps.
    """
    picked = [("before", "cyan", representative(e.before)), ("after", "yellow", representative(e.after))]
    runs = [(name, style, run) for name, style, run in picked if run is not None and run.profile.t]
    if not runs or not one_unit([run for _, _, run in runs]):
        return None
    end = max(end_of(run) for _, _, run in runs)
    rates = sorted(steady_rates([run for _, _, run in runs]))
    high, lowest = (rates[round(q * (len(rates) - 1))] for q in (1 - OUTLIERS, OUTLIERS))
    if not (end > 0 and high > 0):
        return None
    low = min(lowest, (1 - LEAST_SPAN) * high)
    cells = max(10, width - 10)
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    for name, style, run in runs:
        table.add_row(name, Text(sparkline(binned(run.profile, end, cells), low, high), style=style))
        if marks := _marks(run, end, cells):
            table.add_row("", marks)
    bars = f"the lowest bar is {figures.rate(low, e.unit)} or less, the highest {figures.rate(high, e.unit)} or more"
    shifts = [shift_text(shift, e.unit, name) for name, _, run in runs for shift in run.shifts]
    lines = [Text(f"^ {text}", style="yellow") for text in shifts]
    return Group(
        Text("Throughput over time", style="bold"),
        table,
        Text(f"0 to {figures.duration(end)}; {bars}", style="dim"),
        *lines,
    )


def _marks(run: Measured, end: float, cells: int) -> str:
    """A line with a ^ under each shift; "" without shifts."""
    at = {min(cells - 1, int(shift.t / end * cells)) for shift in run.shifts}
    return "".join("^" if n in at else " " for n in range(max(at) + 1)) if at else ""


def shift_text(shift: Shift, unit: str, side: str) -> str:
    """``after, from 12:05 (step 812) on: 21.5 Ktok/s → 12.8 Ktok/s; GPU 3 began to throttle``."""
    until = "on" if shift.until is None else f"until {figures.duration(shift.until)}"
    matched = f"; {'; '.join(map(plain, shift.matched))}" if shift.matched else ""
    pair = f"{figures.rate(shift.before, unit)} → {figures.rate(shift.after, unit)}"
    return f"{side}, from {figures.duration(shift.t)} (step {shift.step:,}) {until}: {pair}{matched}"
