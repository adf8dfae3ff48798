"""What a capture gave, for people: one sentence, what stands for what, and what to type next."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness import figures
from harness.frozen import Frozen
from harness.places import program


def report(frozen: Frozen) -> RenderableType:
    """The capture, its rebuilt wheels, what to know of it, and how to use it."""
    total, rebuilt = len(frozen.kept), len(frozen.rebuilt)
    first = f"{frozen.name} is captured: {total} distributions, {len(frozen.proven)} of them proven byte for byte"
    first += f" against the index and {rebuilt} kept as local wheels" if rebuilt else " against the index"
    parts: list[RenderableType] = [Text(first, style="green" if not frozen.left_out else "yellow"), _rows(frozen)]
    parts += [Text(f"warning: {line}", style="yellow") for line in frozen.warnings]
    parts.append(Text.assemble((f"{program()} sync {frozen.name}", "bold"), "  # builds it here from its lock"))
    return Group(*parts)


def _rows(frozen: Frozen) -> Table:
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="dim")
    rows.add_column(overflow="fold")
    torch = f", torch {frozen.torch}" if frozen.torch else ""
    driver = f", driver {frozen.driver}" if frozen.driver else ""
    rows.add_row("from", f"{frozen.source}: Python {frozen.python}{torch}{driver}")
    rows.add_row("lock", f"{frozen.lock} ({frozen.lock_digest[:12]})")
    for kept in frozen.rebuilt:
        rows.add_row("local wheel", f"{kept.wheel}, {figures.size(kept.bytes)}: {kept.why}")
    if frozen.wheels:
        rows.add_row("wheels", ", ".join(frozen.wheels))
        rows.add_row("", f"{figures.size(frozen.bytes_in_git)} for git, {figures.size(frozen.bytes_elsewhere)} not")
    rows.add_row("caches", _caches(frozen))
    rows.add_row("loaded", f"{frozen.loaded} libraries written down")
    rows.add_row("kept in", frozen.folder)
    return rows


def _caches(frozen: Frozen) -> str:
    if frozen.caches is None or not frozen.caches.state.entries:
        return "none copied"
    held = figures.held(frozen.caches.state)
    why_not = f"not filled in for its runs: {frozen.caches.why_not}"
    return f"{held} copied; " + (f"its runs start with them: {frozen.caches.root}" if frozen.caches.root else why_not)
