"""Why a change is suspected, in plain English: templates of ``rules.toml`` with the figures filled in.

A template whose figures are not all known is passed over for the next, so no sentence has a hole in it.

    {FACT<} {FACT>} {FACT~}    what a fact that moved was before, is after, and how it moved; the fact may be a glob
    {FACT?}                    nothing, where the fact is true after; else the template is passed over
    {now}                      nothing, where the later side is the slower one; else the template is passed over
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from harness import figures
from harness.comparison import Change, Measured, Side
from harness.explain.comparing.facts import are_numbers, same, values
from harness.explain.suspecting.grown import FIRST, Growth, Part
from harness.explain.words import listed, said, setting
from harness.records import IMPORTED, Value

MOST_PARTS = 3

AS_IT_WAS = "harness rerun {run} with {asked} as it was ({before})"
"""What confirms a change of which no rule knows better."""


@dataclass(frozen=True)
class Figures:
    """What the templates may ask for: both sides' facts."""

    before: Mapping[str, tuple[Value, ...]]
    after: Mapping[str, tuple[Value, ...]]
    changes: Sequence[Change]

    @classmethod
    def of(cls, before: Side, after: Side, changes: Sequence[Change]) -> Figures:
        return cls(values(before.runs), values(after.runs), changes)

    def pair(self, pattern: str) -> tuple[str, Value, Value] | None:
        """The first fact that fits, and its values before and after: of the changes, else as the first runs have it."""
        for change in self.changes:
            if fnmatchcase(change.fact, pattern):
                return change.fact, change.before, change.after
        fact = next((f for f in sorted({*self.before, *self.after}) if fnmatchcase(f, pattern)), None)
        if fact is None:
            return None
        return fact, self.before.get(fact, (None,))[0], self.after.get(fact, (None,))[0]


def filled(templates: Sequence[str], words: Mapping[str, str | None], known: Figures) -> str:
    """The first template of which every figure is known, filled in; "" where none is."""
    for template in templates:
        text = _fill(template, words, known)
        if text is not None:
            return text
    return ""


def _fill(template: str, words: Mapping[str, str | None], known: Figures) -> str | None:
    holes = []

    def figure(match: re.Match[str]) -> str:
        name = match[1]
        text = words[name] if name in words else _figure(name, known)
        if text is None:
            holes.append(name)
        return text or ""

    text = re.sub(r"\{([^{}]+)\}", figure, template)
    return None if holes else text


def _figure(name: str, known: Figures) -> str | None:
    """The text of ``FACT<``, ``FACT>``, ``FACT~`` or ``FACT?``; None where it is not known."""
    pair = known.pair(name[:-1])
    if pair is None:
        return None
    fact, before, after = pair
    if name[-1] == "?":
        return "" if after is True else None
    if name[-1] == "~":
        return moved(fact, before, after)
    value = before if name[-1] == "<" else after
    unmoved = name[-1] == "<" and before is not None and after is not None and same(before, after)
    return None if value is None or unmoved else said(fact, value)


def moved(fact: str, before: Value, after: Value) -> str | None:
    """ "fell by 40 % (from 2,400 MHz to 1,440 MHz)"; None where it did not move, or is not known on both sides."""
    if before is None or after is None or before == after:
        return None
    span = f"from {said(fact, before)} to {said(fact, after)}"
    if isinstance(before, str) or isinstance(after, str) or not are_numbers([before, after]) or not before:
        return f"went {span}"
    word = "rose" if after > before else "fell"
    share = abs(float(after) / float(before) - 1)
    return f"{word} {span}" if share > 3 else f"{word} by {figures.percent(share)} ({span})"


def words_of(change: Change, grown: Sequence[str] = (), slower: bool = True) -> dict[str, str | None]:
    """What a template may say of the leading change. ``asked`` is its name where it was recorded, not observed."""
    name = setting(change.fact)
    absent = "not set" if change.fact.startswith(("environment.variable.", "environment.cpu.limit")) else "not recorded"
    before, after = (absent if value is None else said(change.fact, value) for value in (change.before, change.after))
    was = f"is {after}, before: {before}"
    return {
        "before": before,
        "after": after,
        "moved": moved(change.fact, change.before, change.after) or was,
        "went": was if change.missing else f"went from {before} to {after}",
        "setting": name,
        "asked": None if change.kind == "observed" else name.removeprefix("variable."),
        "name": re.sub(r"^(package|variable|loaded|gpu\.\d+|torch)\.", "", name),
        "phases": _parts(grown),
        "grew": "grew" if slower else "shrank",
        "slows": "slows" if slower else "speeds up",
        "now": "" if slower else None,
    }


def _parts(grown: Sequence[str]) -> str:
    """Phases as a sentence has them; what grew in the first step too is said once."""
    steady = [phase for phase in grown if not phase.startswith(FIRST)]
    if steady or not grown:
        return listed(steady[:MOST_PARTS])
    return f"{listed([phase.removeprefix(FIRST) for phase in grown[:MOST_PARTS]])} in the first step"


def confirmed_by(templates: Sequence[str], change: Change, before: Side, after: Side, known: Figures) -> str:
    """What would confirm it; a key that was asked for is set back to what it was."""
    if not before.runs or not after.runs:
        return ""
    key, value = setting(change.fact), change.before
    shows, was = _having(after, change.fact, change.after), _having(before, change.fact, value)
    one, other = shows or after.runs[0], was or before.runs[0]
    run, again, earlier = one.run, _again(one), _again(other)
    words = {
        "run": again,
        "earlier": earlier,
        "env": run.spec.env or None,
        "key": None,
        "was": None,
        **words_of(change),
    }
    if key in run.spec.config and shows and was and not change.missing:
        words |= {"key": key, "was": str(value).lower() if isinstance(value, bool) else str(value)}
    return filled((*templates, AS_IT_WAS), words, known)


def _having(side: Side, fact: str, value: Value) -> Measured | None:
    """The side's first run of which the fact has that value: a side may vary, and a median may be no run's."""
    return next((m for m in side.runs if fact in m.facts and same(m.facts[fact], value)), None)


def _again(measured: Measured) -> str | None:
    """The run as ``harness rerun`` takes it; None for one that happened elsewhere and cannot run again here."""
    return None if IMPORTED in measured.facts else measured.run.id


def figures_of(growth: Growth, parts: Sequence[Part], unit: str) -> tuple[str, ...]:
    """ "forward: 12.1 ms per Ktok before, 19.8 after", for the parts that it can have made longer (or shorter)."""
    name, factor = figures.cost_unit(unit)
    said_of = []
    for part in parts[:MOST_PARTS]:
        pair = (part.before, part.after)
        if part.phase == "padding":
            a, b = map(figures.digits, pair)
            said_of.append(f"padding: {a} computed for each useful one before, {b} after")
        elif growth.figure == "interruptions":
            said_of.append(figures.shares_text(part.phase, *pair))
        elif growth.figure == "first step":
            a, b = map(figures.duration, pair)
            said_of.append(f"first step, {part.phase}: {a} before, {b} after")
        else:
            a, b = (figures.digits(factor * seconds) for seconds in pair)
            said_of.append(f"{part.phase}: {a} {name} before, {b} after")
    return tuple(said_of)


def signs_of(changes: Sequence[Change]) -> tuple[str, ...]:
    """What was seen with it, each a few words; not whole lists of names."""
    said_of = ((c, moved(c.fact, c.before, c.after)) for c in changes if not c.fact.endswith(".files"))
    return tuple(f"{setting(c.fact)} {words}" for c, words in said_of if words)
