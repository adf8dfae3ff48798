"""``harness diff``: the facts that differ between two sides, by kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness import figures
from harness.comparison import Change
from harness.records import Value
from harness.view.words import by_kind, plain, side_of

NARROW = 90
"""Columns below which a fact and its two values stand under one another."""


def diff_view(
    changes: Sequence[Change],
    names: tuple[str, str],
    width: int,
    same: Mapping[str, Value] | None = None,
    equal: int = 0,
) -> RenderableType:
    """What differs, by kind. ``same``: the facts that do not, shown after it (``--all``); else ``equal`` says how many.

    ``names``: what the two sides are called.
    """
    parts: list[RenderableType] = [Text(f"{plain(names[0])} → {plain(names[1])}", style="bold")]
    for kind, group in by_kind(changes).items():
        parts.append(Text(f"\n{kind} ({len(group)})", style="bold"))
        parts.append(_stacked(group) if width < NARROW else _table(group))
    if not changes:
        parts.append(Text("No recorded fact differs.", style="green"))
    if same is not None:
        parts.append(Text(f"\nthe same on both sides ({len(same)})", style="bold"))
        parts.append(_pairs(same))
    elif equal:
        parts.append(Text(f"\n{equal:,} facts are the same on both sides: shown with --all", style="dim"))
    return Group(*parts)


def _name(change: Change) -> str:
    """Without its kind, which the heading says."""
    return plain(change.fact.partition(".")[2] or change.fact) + (" (varies)" if change.varies else "")


def _value(change: Change, side: str, style: str) -> Text:
    missing = change.missing == side
    return Text(side_of(change, "before" if side == "before" else "after"), style="dim italic" if missing else style)


def _table(changes: Sequence[Change]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(overflow="fold", ratio=2)
    table.add_column(overflow="fold", ratio=3)
    table.add_column(overflow="fold", ratio=3)
    table.expand = True
    for change in changes:
        table.add_row(Text(_name(change)), _value(change, "before", "cyan"), _value(change, "after", "yellow"))
    return table


def _stacked(changes: Sequence[Change]) -> RenderableType:
    return Group(
        *(
            Text.assemble(_name(c), "\n  ", _value(c, "before", "cyan"), " → ", _value(c, "after", "yellow"))
            for c in changes
        )
    )


def _pairs(facts: Mapping[str, Value]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", overflow="fold")
    table.add_column(overflow="fold")
    for name, value in sorted(facts.items()):
        table.add_row(Text(plain(name)), Text(plain(figures.fact(name, value))))
    return table
