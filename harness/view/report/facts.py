"""The fact table: every fact of either side, what differs and what does not."""

from __future__ import annotations

from dataclasses import dataclass

from harness import figures
from harness.comparison import Explanation, Measured, Side
from harness.records import Value
from harness.view.words import CHANGE_KINDS, plain

MOST = 1500
"""Facts in the page: beyond these only those that differ, and a line says so."""

Known = tuple[Value, ...]
"""The distinct values of a fact over a side's runs, in their order; () where no run recorded it."""


@dataclass(frozen=True)
class Fact:
    name: str
    kind: str
    before: str
    after: str
    differs: bool


@dataclass(frozen=True)
class Facts:
    rows: tuple[Fact, ...]
    kinds: tuple[str, ...]
    left_out: int  # facts that are the same on both sides and not in the page


def fact_table(e: Explanation) -> Facts:
    """What differs first, then the rest; each by kind and name."""
    before, after = (_values(side) for side in (e.before, e.after))
    names = sorted({*before, *after}, key=_place)
    rows = [_fact(name, before.get(name, ()), after.get(name, ())) for name in names]
    differing = [row for row in rows if row.differs]
    same = [row for row in rows if not row.differs]
    kept = same[: max(0, MOST - len(differing))]
    kinds = tuple(dict.fromkeys(row.kind for row in sorted(rows, key=lambda row: _place(row.name))))
    return Facts((*differing, *kept), kinds, len(same) - len(kept))


def _values(side: Side) -> dict[str, Known]:
    found: dict[str, Known] = {}
    for run in side.runs:
        for name, value in _of(run).items():
            have = found.setdefault(name, ())
            if repr(value) not in map(repr, have):
                found[name] = (*have, value)
    return found


def _of(run: Measured) -> dict[str, Value]:
    return {**run.facts, **run.observed}


def _fact(name: str, before: Known, after: Known) -> Fact:
    differs = set(map(repr, before)) != set(map(repr, after))  # repr: 1, 1.0 and True are not the same value
    return Fact(plain(name), plain(_kind(name)), _spelled(name, before), _spelled(name, after), differs)


def _spelled(name: str, values: Known) -> str:
    if not values:
        return ""
    shown = ", ".join(figures.shortened(plain(figures.fact(name, value))) or '""' for value in values[:4])
    return shown + (f" and {len(values) - 4} more" if len(values) > 4 else "")


def _kind(name: str) -> str:
    return name.partition(".")[0]


def _place(name: str) -> tuple[int, str]:
    kind = _kind(name)
    return (CHANGE_KINDS.index(kind) if kind in CHANGE_KINDS else len(CHANGE_KINDS), name)
