"""The rules of ``rules.toml``, read and matched: which changes fit a rule, in which direction, how strongly.

A rule is data. This module says what its fields mean; ``suspects`` weighs what matched against what grew.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, Literal

from harness.comparison import Change
from harness.explain.comparing.facts import are_numbers, globs, is_chosen
from harness.records import PHASES, Value

Effect = Literal["", "inverse", "proportional", "square", "useful"]

SLACK = 1.4
"""How much further than its plain effect a change may carry: a clock also slows what waits for it."""

_EXPONENT: Mapping[str, float] = {"inverse": 1.0, "proportional": 1.0, "square": 2.0}

OBSERVED, RECORDED, DIRECTION_UNKNOWN, POSSIBLE = 1.0, 0.85, 0.7, 0.6
"""Strength of evidence: seen to happen; set so; set otherwise, which way is not known; another version."""

VARIED = 0.7
"""What is left of it where a setting varies inside a side: some of its runs may have been set like the other side's."""


@dataclass(frozen=True)
class Condition:
    """Facts by a glob, and the direction in which their change makes a run slower."""

    pattern: re.Pattern[str]
    direction: str  # "", "up", "down" or "to"
    values: tuple[str, ...] = ()  # of "to"
    phase: str = ""  # that the glob was written for with {phase}

    def strength(self, change: Change, slower: bool) -> float:
        """How well the change fits, 0 for not at all. ``slower``: the later side is the slower one."""
        if not self.pattern.match(change.fact):
            return 0.0
        fast, slow = (change.before, change.after) if slower else (change.after, change.before)
        if self.direction == "to":
            hit = _spelled(slow) in self.values and _spelled(fast) not in self.values
            return _grade(change) if hit else 0.0
        if not self.direction:
            return _grade(change)
        if change.missing and absence_tells(change.fact):  # without a limit: the other side has less
            return _grade(change) if (slow is None) == (self.direction == "up") else 0.0
        moved = _moved(fast, slow)
        if moved is None:
            return _grade(change) * DIRECTION_UNKNOWN
        return _grade(change) if (moved > 0) == (self.direction == "up") else 0.0


@dataclass(frozen=True)
class Need:
    """A condition on the slower side's value, for rules that know one bad state."""

    fact: str
    operator: str
    value: str

    def holds(self, facts: Mapping[str, Sequence[Value]]) -> bool:
        """Whether it holds for a value of a side's facts."""
        found = (str(value) for name, values in facts.items() if fnmatchcase(name, self.fact) for value in values)
        return any(_compare(value, self.operator, self.value) for value in found)


@dataclass(frozen=True)
class Rule:
    """One way in which a run gets slower; the fields are told at the head of ``rules.toml``."""

    id: str
    kind: str
    pattern: re.Pattern[str]  # of all of its facts
    facts: tuple[Condition, ...]
    signs: tuple[Condition, ...]
    needs: tuple[Need, ...]
    unless: re.Pattern[str]
    phases: tuple[str, ...]
    first: tuple[str, ...]
    spread: str
    effect: Effect
    scale: tuple[tuple[str, float], ...]
    prior: float
    joined: bool
    otherwise: bool
    by_files: bool
    reason: tuple[str, ...]
    confirm: tuple[str, ...]
    reference: str

    def names(self, fact: str) -> bool:
        """Whether the fact is one of the rule's, whichever way it moved."""
        return self.pattern.match(fact) is not None

    def strength(self, change: Change, slower: bool) -> tuple[float, str]:
        """How well a change fits as what led to it, and the phase that it is bound to ("" for none)."""
        first = next((c for c in self.facts if c.pattern.match(change.fact)), None)
        return (first.strength(change, slower) * self._size(change), first.phase) if first else (0.0, "")

    def place(self, change: Change) -> int:
        """Where the change's fact stands among the rule's: the first is named."""
        return next((i for i, c in enumerate(self.facts) if c.pattern.match(change.fact)), len(self.facts))

    def shown_by(self, changes: Iterable[Change], slower: bool) -> tuple[Change, ...]:
        """The changes that are signs of it."""
        return tuple(c for c in changes if not c.missing and any(s.strength(c, slower) > 0 for s in self.signs))

    def reach(self, change: Change) -> float:
        """Log growth that the change can bring a phase to; infinite where the rule does not say."""
        a, b = change.before, change.after
        if not self.effect or change.missing or not are_numbers([a, b]):
            return math.inf
        low, high = sorted((abs(float(a)), abs(float(b))))  # type: ignore[arg-type]
        if self.effect == "useful":
            return SLACK * math.log((1 - low) / (1 - high)) if high < 1 else math.inf
        if low == 0 or _is_share(change.fact):
            return math.inf
        return SLACK * _EXPONENT[self.effect] * math.log(high / low)

    def _size(self, change: Change) -> float:
        """Full evidence from the rule's scale on; less, but some, below it."""
        scale = next((size for fact, size in self.scale if fnmatchcase(change.fact, fact)), None)
        if scale is None or not are_numbers([change.before, change.after]):
            return 1.0
        return min(1.0, 0.3 + 0.7 * abs(float(change.after) - float(change.before)) / scale)  # type: ignore[arg-type]


@cache
def rules() -> tuple[Rule, ...]:
    """All rules, in the order of the data file beside this module."""
    data = _data()
    return tuple(_rule(entry, data["groups"]) for entry in data["rule"])


def rules_for(changes: Sequence[Change]) -> list[tuple[Rule, tuple[Change, ...]]]:
    """Each rule with the changes that it names; one that holds otherwise names only what no other does.

    What a rule without a prior names is known to do no harm, whatever other rules would make of it.
    """
    harmless = [rule for rule in rules() if not rule.prior]
    changes = [c for c in changes if not any(rule.names(c.fact) for rule in harmless)]
    held = [rule for rule in rules() if not any(rule.unless.match(c.fact) for c in changes)]
    mine = [(rule, tuple(c for c in changes if rule.names(c.fact))) for rule in held]
    named = {c.fact for rule, found in mine for c in found if not rule.otherwise}
    return [(r, tuple(c for c in found if c.fact not in named) if r.otherwise else found) for r, found in mine]


def touches(patterns: Sequence[str], phase: str) -> bool:
    """Whether one of the globs fits the phase."""
    return any(fnmatchcase(phase, pattern) for pattern in patterns)


def absence_tells(fact: str) -> bool:
    """Whether a fact that is not recorded was not set, or had no limit."""
    return _absent().match(fact) is not None


@cache
def _data() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


def _rule(entry: Mapping[str, Any], groups: Mapping[str, Sequence[str]]) -> Rule:
    def phases(key: str) -> tuple[str, ...]:
        return tuple(p for name in entry.get(key, ()) for p in (groups[name[1:]] if name[0] == "@" else (name,)))

    def conditions(key: str) -> tuple[Condition, ...]:
        return tuple(c for text in entry.get(key, ()) for c in _conditions(text))

    facts = conditions("facts")
    return Rule(
        id=entry["id"],
        kind=entry["kind"],
        pattern=re.compile("|".join(condition.pattern.pattern for condition in facts)),
        facts=facts,
        signs=conditions("signs"),
        needs=tuple(Need(*text.split(" ", 2)) for text in entry.get("needs", ())),
        unless=globs(entry.get("unless", ())),
        phases=phases("phases"),
        first=phases("first"),
        spread=entry.get("spread", "any"),
        effect=entry.get("effect", ""),
        scale=tuple(entry.get("scale", {}).items()),
        prior=entry["prior"],
        joined=entry.get("joined", True),
        otherwise=entry.get("otherwise", False),
        by_files=entry.get("by_files", False),
        reason=tuple(entry["reason"]),
        confirm=tuple(entry.get("confirm", ())),
        reference=entry.get("reference", ""),
    )


def _conditions(text: str) -> list[Condition]:
    """``"GLOB up"`` as a condition; with {phase} in it one for each phase."""
    glob, *rest = text.split()
    direction, values = (rest[0] if rest else ""), tuple(rest[1].lower().split(",")) if len(rest) > 1 else ()
    phases = [phase for phase in PHASES if phase != "other"] if "{phase}" in glob else [""]
    return [Condition(globs([glob.replace("{phase}", p)]), direction, values, p) for p in phases]


def _grade(change: Change) -> float:
    """How strong the evidence is by what the fact is."""
    known = 1.0 if not change.missing else 0.9 if absence_tells(change.fact) else 0.5
    if change.kind == "observed":
        return 0.0 if change.missing else OBSERVED
    if change.varies and is_chosen(change.fact):
        known *= VARIED
    if change.fact.startswith("environment.package."):
        return known * (POSSIBLE if _minor(change.before) != _minor(change.after) else 0.75 * POSSIBLE)
    return known * RECORDED


@cache
def _absent() -> re.Pattern[str]:
    return globs(_data()["absence"]["tells"])


def _minor(version: Value) -> tuple[str, ...]:
    return tuple(re.split(r"[.+]", str(version))[:2])


def _moved(fast: Value, slow: Value) -> int | None:
    """1 where the slower side has more, -1 where it has less, None where that cannot be said."""
    a, b = _number(fast), _number(slow)
    if a is None or b is None:
        for words in _data()["ordinals"]["values"]:
            if _spelled(fast) in words and _spelled(slow) in words:
                a, b = words.index(_spelled(fast)), words.index(_spelled(slow))
                break
    if a is None or b is None or a == b:
        return None
    return 1 if b > a else -1


def _number(value: Value) -> float | None:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _spelled(value: Value) -> str:
    return str(value).lower()


def _is_share(fact: str) -> bool:
    """Shares of the time carry no ratio: 0.01 to 0.4 is not 40 times as slow."""
    return fact.endswith(("_share", ".throttled"))


def _compare(found: str, operator: str, wanted: str) -> bool:
    if operator == "=":
        return fnmatchcase(found.lower(), wanted.lower())
    a, b = ([int(n) for n in re.findall(r"\d+", text.split("+")[0])] for text in (found, wanted))
    return a >= b if operator == ">=" else a < b
