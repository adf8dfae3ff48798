"""``harness diff``: the facts that differ between two sides, by kind."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness.comparison import Change, Side
from harness.view.words import by_kind, plain, side_name, side_of

NARROW = 90
"""Columns below which a fact and its two values stand under one another."""


def diff_view(before: Side, after: Side, changes: Sequence[Change], width: int) -> RenderableType:
    """What differs, by kind. Facts among ``changes`` that do not differ (``--all``) come after it."""
    same = [change for change in changes if _same(change)]
    different = [change for change in changes if not _same(change)]
    parts: list[RenderableType] = [Text(f"{side_name(before)} → {side_name(after)}", style="bold")]
    for kind, group in by_kind(different).items():
        parts.append(Text(f"\n{kind} ({len(group)})", style="bold"))
        parts.append(_stacked(group) if width < NARROW else _table(group))
    if not different:
        parts.append(Text("No recorded fact differs.", style="green"))
    unsaid = _count(before, after) - len(changes)
    if same:
        parts.append(Text(f"\nthe same on both sides ({len(same)})", style="bold"))
        parts.append(_pairs(same))
    elif unsaid > 0:
        parts.append(Text(f"\n{unsaid:,} facts are the same on both sides: shown with --all", style="dim"))
    return Group(*parts)


def _same(change: Change) -> bool:
    """A value and its type: True is not 1."""
    return not change.missing and not change.varies and repr(change.before) == repr(change.after)


def _count(before: Side, after: Side) -> int:
    return len({name for side in (before, after) for run in side.runs for name in (*run.facts, *run.observed)})


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


def _pairs(same: Sequence[Change]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", overflow="fold")
    table.add_column(overflow="fold")
    for changes in by_kind(same).values():
        for change in changes:
            table.add_row(Text(plain(change.fact)), Text(side_of(change, "before")))
    return table
