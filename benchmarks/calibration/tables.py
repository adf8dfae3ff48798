"""A table as text: in the terminal and in docs/calibration.md the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """Figures with their heading; ``note`` says how to read them."""

    title: str
    note: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def text(self) -> str:
        """In Markdown, its columns level."""
        widths = [max(len(row[i]) for row in (self.header, *self.rows)) for i in range(len(self.header))]
        lines = [_line(self.header, widths), _line(["-" * width for width in widths], widths)]
        return "\n".join([f"## {self.title}", "", self.note, "", *lines, *(_line(row, widths) for row in self.rows)])


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"


def percent(share: float) -> str:
    """``4.3 %``."""
    return f"{100 * share:.1f} %"
