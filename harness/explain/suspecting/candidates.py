"""What each rule can explain here: its changes joined with the parts that grew, before any is ranked.

The worth of a candidate in a figure is the prior of its rule x the strength of its evidence x how well the growth fits.
The fit asks whether the growth looks like that rule's: a clock slows all of a GPU's phases alike, and a rule that could
touch anything fits nothing in particular.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from harness.comparison import BETWEEN, Change
from harness.explain.suspecting.grown import Growth, Part
from harness.explain.suspecting.patches import reach_of
from harness.explain.suspecting.reasons import Figures
from harness.explain.suspecting.rules import Rule, rules_for, touches

BREADTH = 0.2
"""How much a rule that may touch any of n phases loses: it is worth n to the power of minus this."""

CLEARLY = 0.4
"""Of the mean growth of a rule's phases, from where on one of them clearly grew too."""

SIGN = 0.6
"""What each sign leaves of the doubt."""

SMALL = 0.02
"""Of the time, below which a phase says nothing of how the growth is spread."""

CONSEQUENCE = 0.9
"""Of the waiting that a starved role shows elsewhere, how much is put down to what starves it."""

Key = tuple[str, str]
"""A figure, and a phase or part of it."""


@dataclass(frozen=True)
class Candidate:
    """A rule that a change fits, and what it explains of the growth: of each part, at most all of it, 1."""

    rule: Rule
    lead: Change
    also: tuple[Change, ...]  # say the same thing
    signs: tuple[Change, ...]  # were seen with it
    explains: Mapping[Key, float]
    trust: Mapping[str, float]  # by figure: prior x strength
    worth: Mapping[str, float]  # by figure: trust x fit


def candidates(changes: Sequence[Change], grown: Sequence[Growth], known: Figures) -> list[Candidate]:
    """Every rule that a change fits; rules that one change leads to are one, told by the worthiest."""
    found: dict[str, list[Candidate]] = {}
    slower = grown[0].slower
    slow_side = known.after if slower else known.before
    for rule, mine in rules_for(changes):
        if not mine or not all(need.holds(slow_side) for need in rule.needs):
            continue
        shown = rule.shown_by(changes, slower)
        files = reach_of(changes) if rule.by_files else None
        for group in [mine] if rule.joined else _alike(mine):
            candidate = _candidate(rule, group, shown, files, grown)
            if candidate is not None:
                found.setdefault(candidate.lead.fact, []).append(candidate)
    return [_joined(each, grown) for each in found.values()]


def explained(candidate: Candidate, growth: Growth, left: Mapping[Key, float]) -> float:
    """What it explains of the growth of a figure, of which ``left`` (all, where it does not say) is to be explained."""
    keys = ((growth.figure, part.phase, part.share) for part in growth.parts)
    return sum(share * candidate.explains.get((f, p), 0.0) * left.get((f, p), 1.0) for f, p, share in keys)


def _joined(found: list[Candidate], grown: Sequence[Growth]) -> Candidate:
    """The one that explains most, with what the others explain of a figure that it does not touch."""

    def value(c: Candidate) -> float:
        return sum(c.worth.get(growth.figure, 0.0) * explained(c, growth, {}) for growth in grown)

    first, *others = sorted(found, key=lambda c: (-value(c), c.rule.id))
    for other in others:
        more = {figure for figure in other.worth if figure not in first.worth}
        first = replace(
            first,
            also=tuple(dict.fromkeys((*first.also, *other.also))) if more else first.also,
            explains={**{k: v for k, v in other.explains.items() if k[0] in more}, **first.explains},
            trust={**{f: v for f, v in other.trust.items() if f in more}, **first.trust},
            worth={**{f: v for f, v in other.worth.items() if f in more}, **first.worth},
        )
    return first


def _alike(changes: Sequence[Change]) -> list[tuple[Change, ...]]:
    """Changes that differ only in the number of a device are one."""
    groups: dict[tuple[str, ...], list[Change]] = {}
    for change in changes:
        groups.setdefault(tuple("#" if p.isdigit() else p for p in change.fact.split(".")), []).append(change)
    return [tuple(group) for group in groups.values()]


def _candidate(
    rule: Rule,
    mine: Sequence[Change],
    shown: Sequence[Change],
    files: tuple[str, ...] | None,
    grown: Sequence[Growth],
) -> Candidate | None:
    """The rule with what ``mine``, its changes, explain; None where that is nothing. ``shown``: its signs."""
    explains: dict[Key, float] = {}
    trust: dict[str, float] = {}
    worth: dict[str, float] = {}
    leading: dict[str, Change] = {}
    for growth in grown:
        hits = [(c, s, phase) for c in mine for s, phase in [rule.strength(c, growth.slower)] if s > 0]
        patterns = rule.first if growth.figure == "first step" else rule.phases
        patterns = patterns if files is None else files
        patterns = tuple(p.replace("{phase}", phase) for p in patterns for _, _, phase in hits)
        touched = [part for part in growth.parts if hits and _may_touch(growth, patterns, part)]
        if not any(part.share for part in touched):
            continue
        reach = max(rule.reach(change) for change, _, _ in hits)
        explains |= {(growth.figure, p.phase): min(1.0, reach / p.growth) for p in touched if p.share and p.growth}
        explains |= {(growth.figure, p.phase): CONSEQUENCE for p in _consequences(growth, touched)}
        signs = sum(sign not in mine for sign in shown)
        trust[growth.figure] = rule.prior * _together([strength for _, strength, _ in hits], signs)
        worth[growth.figure] = trust[growth.figure] * _fit(rule.spread, touched)
        leading |= {change.fact: change for change, _, _ in hits}
    if not explains:
        return None
    lead, *also = sorted(leading.values(), key=lambda c: (bool(c.missing), rule.place(c)))
    # What only one side shows ("throttled by its temperature") weighs nothing, and belongs to it.
    also += [c for c in mine if c.missing and c.kind == "observed" and c.fact not in leading]
    signs_ = tuple(sign for sign in shown if sign.fact not in leading)
    return Candidate(rule, lead, tuple(also), signs_, explains, trust, worth)


def _may_touch(growth: Growth, patterns: Sequence[str], part: Part) -> bool:
    """Whether a rule with these phases may make the part longer: a pause only where it is meant by name."""
    if part.phase == BETWEEN:
        return BETWEEN in patterns
    return growth.unsplit or touches(patterns, part.phase)


def _consequences(growth: Growth, touched: Sequence[Part]) -> list[Part]:
    """What grew only because a role was starved: it then waits at its collectives too, for whoever is served last.

    A starved role shows in the work of another that it waited for ("target.data"): all of that is one wait.
    """
    starved = any("." in part.phase and part in growth.grown for part in touched)
    waiting = [p for p in growth.parts if "." in p.phase or p.phase in ("wait", "communication")] if starved else []
    return [part for part in waiting if part.share and part not in touched]


def _together(strengths: Sequence[float], signs: int) -> float:
    """Evidence adds up: what one piece leaves open another may close, and a sign closes some of it."""
    left = math.prod(1 - min(s, 0.99) for s in sorted(strengths, reverse=True)[:3])
    return 1 - left * SIGN ** min(signs, 3)


def _fit(spread: str, touched: Sequence[Part]) -> float:
    """How much the growth looks like the rule's, from 0 to 1."""
    if spread == "any":
        return float(len(touched) ** -BREADTH)
    timed = [part for part in touched if part.weight >= SMALL]
    finite = [part for part in timed if math.isfinite(part.growth)]
    shares = sum(part.share for part in finite)
    if not shares:
        return 1.0
    reference = sum(p.growth * p.share for p in finite) / shares * (1.0 if spread == "alike" else CLEARLY)
    return sum(p.weight * min(1.0, p.growth / reference) for p in timed) / sum(p.weight for p in timed)
