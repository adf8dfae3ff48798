"""What changed: the recorded and observed facts in which two sides differ.

Four rules keep it honest. A fact that no run of a side recorded is unknown there, never equal; but that nothing was
seen of something (0, False) differs in nothing from not having looked. A fact that varies inside a side has changed
where the sides share no value; one that was chosen (a setting, a package, the code) also where a side has a value that
the other lacks. A figure that varies by itself (a clock, free memory) has changed only where the sides' ranges lie
apart by more than its threshold in ``facts.toml``.
"""

from __future__ import annotations

import math
import re
import statistics
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import translate
from functools import cache
from pathlib import Path
from typing import TypeGuard

from harness.comparison import Change, Measured, Side
from harness.records import KINDS, Value

ORDER = {kind: place for place, kind in enumerate((*KINDS, "observed"))}
"""Kinds in the order in which a person reads them."""

CHOSEN = ("execution", "environment", "code")
"""Kinds of facts that somebody set, and that do not move by themselves."""


@dataclass(frozen=True)
class Level:
    """How far a figure moves by itself: a change is at least ``relative`` of the greater value and ``absolute``."""

    pattern: re.Pattern[str]
    relative: float
    absolute: float

    def apart(self, before: Sequence[float], after: Sequence[float]) -> bool:
        """Whether the ranges lie apart, and the medians by more than chance."""
        if max(before) >= min(after) and max(after) >= min(before):
            return False
        a, b = statistics.median(before), statistics.median(after)
        return abs(b - a) >= max(self.relative * max(abs(a), abs(b)), self.absolute)


@dataclass(frozen=True)
class Knowledge:
    """``facts.toml``, read."""

    noise: re.Pattern[str]
    levels: tuple[Level, ...]


def globs(patterns: Iterable[str]) -> re.Pattern[str]:
    """One expression that fits a fact's name where one of the globs does."""
    return re.compile("|".join(translate(pattern) for pattern in patterns) or r"(?!)")


@cache
def knowledge() -> Knowledge:
    """What is known of facts, from the data file beside this module."""
    data = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    levels = (Level(globs(e["facts"]), e.get("relative", 0.0), e.get("absolute", 0.0)) for e in data["levels"])
    return Knowledge(globs(data["noise"]), tuple(levels))


def changes(before: Side, after: Side, everything: bool = False) -> tuple[Change, ...]:
    """The facts that differ, by kind and then by name; with ``everything`` also those that do not, and noise."""
    left, right = values(before.runs), values(after.runs)
    found = []
    for fact in left.keys() | right.keys():
        a, b = left.get(fact, ()), right.get(fact, ())
        if everything or (differ(fact, a, b) and not is_noise(fact)):
            missing = "before" if not a else "after" if not b else ""
            varies = _distinct(a) > 1 or _distinct(b) > 1
            one, other = (_lacking(a, b) or a, _lacking(b, a) or b) if is_chosen(fact) else (a, b)
            found.append(Change(fact, _one(one), _one(other), missing, varies))  # type: ignore[arg-type]
    return tuple(sorted(found, key=lambda change: (ORDER.get(change.kind, len(ORDER)), natural(change.fact))))


def by_kind(found: Sequence[Change]) -> dict[str, tuple[Change, ...]]:
    """Changes under their kinds, in the order of reading; no kind without one."""
    kinds = sorted({change.kind for change in found}, key=lambda kind: ORDER.get(kind, len(ORDER)))
    return {kind: tuple(change for change in found if change.kind == kind) for kind in kinds}


def values(runs: Sequence[Measured]) -> dict[str, tuple[Value, ...]]:
    """What each fact, recorded or observed, was in the runs that have it. None and "unknown" are as good as absent."""
    found: dict[str, list[Value]] = {}
    for run in runs:
        for fact, value in (*run.facts.items(), *run.observed.items()):
            if value is not None and value != "unknown":
                found.setdefault(fact, []).append(value)
    return {fact: tuple(each) for fact, each in found.items()}


def differ(fact: str, before: Sequence[Value], after: Sequence[Value]) -> bool:
    """Whether the fact changed between the sides; a side without a value is unknown, and that is a change."""
    if not before or not after:
        return not fact.startswith("observed.") or any(before) or any(after)
    level = next((each for each in knowledge().levels if each.pattern.match(fact)), None)
    if level is not None and are_numbers(before) and are_numbers(after):
        return level.apart(before, after)
    if is_chosen(fact):
        return bool(_lacking(before, after) or _lacking(after, before))
    return not any(same(a, b) for a in before for b in after)


def is_chosen(fact: str) -> bool:
    """Whether somebody set it, so that a side in which it varies has runs of several ways."""
    return fact.partition(".")[0] in CHOSEN


def is_noise(fact: str) -> bool:
    """Whether a difference in it says nothing: times, process ids, the load at the start."""
    return knowledge().noise.match(fact) is not None


def are_numbers(found: Sequence[Value]) -> TypeGuard[Sequence[float]]:
    """Whether all are finite numbers; a bool is none."""
    return all(isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v) for v in found)


def same(a: Value, b: Value) -> bool:
    """Equal in type and value: True is not 1, and 1 is 1.0."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, int | float) and isinstance(b, int | float):
        return a == b or math.isclose(a, b, rel_tol=1e-9) or (math.isnan(a) and math.isnan(b))
    return a == b


def _lacking(found: Sequence[Value], other: Sequence[Value]) -> list[Value]:
    """The values that the other side has in none of its runs."""
    return [value for value in found if not any(same(value, each) for each in other)]


def _one(found: Sequence[Value]) -> Value:
    """One value to show for a side: the only one, the median of numbers, or "this | that"."""
    if not found:
        return None
    if _distinct(found) == 1:
        return found[0]
    if are_numbers(found):
        return statistics.median(found)
    return " | ".join(sorted({str(value) for value in found}))


def _distinct(found: Sequence[Value]) -> int:
    return len({(isinstance(value, bool), value) for value in found})


def natural(fact: str) -> tuple[tuple[bool, int, str], ...]:
    """Sorts gpu.2 before gpu.10."""
    return tuple((part.isdigit(), int(part) if part.isdigit() else 0, part) for part in fact.split("."))
