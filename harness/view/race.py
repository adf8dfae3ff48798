"""A race as a person sees it: the table of its cells, and the line while it goes. It draws, it does not print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness.figures import counted_text, duration
from harness.run.race.grid import WORK
from harness.run.race.outcome import Outcome
from harness.run.race.record import Tally, Try

STYLES: Mapping[Outcome, str] = {
    "passed": "green",
    "tracing error": "red",
    "segfault": "bold red",
    "hang": "bold yellow",
    "wrong result": "bold magenta",
    "error": "red",
}


def table(counted: Sequence[Tally], asked: int) -> RenderableType:
    """One row a cell: how many of its tries passed, and how the others ended. ``asked``: tries a cell."""
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for name in ("torch", "what", "backend", "shapes", "guard"):
        drawn.add_column(name, overflow="fold")
    drawn.add_column("passed", justify="right", no_wrap=True)
    drawn.add_column("the others", overflow="fold")
    for tally in counted:
        cell = tally.cell
        held = tally.passed == asked
        drawn.add_row(
            f"{cell.torch} ({cell.env})",
            WORK[cell.work] + ("" if cell.device == "cpu" else f" on {cell.device}"),
            cell.backend,
            cell.shapes,
            cell.guard,
            Text(f"{tally.passed}/{tally.tries}", "green" if held else "red" if tally.tries else "dim"),
            others(tally) if tally.tries else Text("not tried", "dim"),
        )
    return drawn


def others(tally: Tally) -> Text:
    """``segfault 3, hang 1; the tracing error seen in 2``: what did not pass, and what a segfault would hide."""
    ended = [(outcome, count) for outcome, count in tally.outcomes.most_common() if outcome != "passed"]
    text = Text(", ").join(Text(f"{outcome} {count}", STYLES[outcome]) for outcome, count in ended)
    if tally.seen and set(tally.outcomes) - {"tracing error", "passed"}:
        text.append(f"; the tracing error seen in {tally.seen}", "dim")
    return text


def so_far(tally: Tally, asked: int, number: int, cells: int) -> str:
    """One line while a cell is tried; ``number``: which of the ``cells`` it is, from 1."""
    counts = ", ".join(f"{outcome} {count}" for outcome, count in tally.outcomes.most_common())
    doing = f"try {tally.tries + 1} of {asked}" if tally.tries < asked else counted_text(asked, "try", "tries")
    took = f", {duration(tally.seconds / tally.tries)} each" if tally.tries else ""
    return f"cell {number} of {cells}: {tally.cell.name}: {doing}{f': {counts}' if counts else ''}{took}"


def failure(made: Try) -> RenderableType:
    """A try that did not pass, as it is told when it happens: what it was, and where."""
    verdict = made.verdict
    seen = (
        f", the tracing error seen {verdict.seen} times" if verdict.seen and verdict.outcome != "tracing error" else ""
    )
    head = Text.assemble(
        (f"try {made.number}: ", "dim"),
        (verdict.outcome, STYLES[verdict.outcome]),
        (f" after {duration(made.seconds)}{seen}: {verdict.detail}", "dim"),
    )
    return Group(
        head, *(Text(f"   {line.strip()}", "dim", no_wrap=True, overflow="ellipsis") for line in verdict.stack[:4])
    )
