"""Which of the changes can have done it: rules joined with what grew, ranked. Suspects, never causes.

A change is a suspect where a rule binds it to parts that grew, and it moved in the direction that makes them grow:

    score = prior of the rule x strength of the evidence x what it explains of the growth x how well the growth fits

What it explains is its share of all growth, no more of a phase than the figure can carry (a clock that fell by 3 %
explains 3 %). The fit asks whether the growth looks like that rule's: a clock slows all of a GPU's phases alike, and a
rule that could touch anything fits nothing in particular. Suspects are then taken one after the other, each on the
growth that those before it leave over, so that of two true changes the second stands above what repeats the first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from harness.comparison import Change, Contribution, Judgement, Side, Suspect
from harness.explain.facts import natural
from harness.explain.grown import Growth, Part, growth
from harness.explain.reasons import Figures, confirmed_by, figures_of, filled, signs_of, words_of
from harness.explain.rules import Rule, rules_for, touches
from harness.explain.words import listed

LEAST_EXPLAINED = 0.1
"""Of the growth, below which a change is no suspect: it cannot have done what was measured."""

BREADTH = 0.2
"""How much a rule loses for each doubling of the phases that it could touch, where the growth is anywhere."""

MOST = 12
"""Suspects that are named; nobody reads more, and a lower one explains next to nothing."""

LEAST_OF_BEST = 0.15
"""Of the best suspect's score, below which a change is not worth naming beside it."""

REPEATED = 0.25
"""Of its score that a suspect keeps where those above it leave nothing over."""

Key = tuple[str, str]
"""A figure, and a phase or part of it."""


@dataclass(frozen=True)
class _Candidate:
    """A rule that a change fits, and what it explains: for each part, at most 1."""

    rule: Rule
    lead: Change
    also: tuple[Change, ...]  # say the same thing
    signs: tuple[Change, ...]  # were seen with it
    strength: float
    explains: Mapping[Key, float]
    fit: Mapping[str, float]  # by figure


def suspects(
    changes: Sequence[Change],
    throughput: Judgement,
    first_step: Judgement,
    contributions: Sequence[Contribution],
    first_step_contributions: Sequence[Contribution],
    before: Side,
    after: Side,
) -> tuple[tuple[Suspect, ...], tuple[Change, ...]]:
    """The suspects in order, and the changes that are none. No suspects where neither figure really differs."""
    pairs = ((throughput, contributions), (first_step, first_step_contributions))
    grown = [found for judged, parts in pairs if (found := growth(judged, parts)) is not None]
    if not grown:
        return (), tuple(changes)
    known = Figures.of(before, after, sorted(changes, key=lambda change: natural(change.fact)))
    ordered = _in_order(_candidates(known.changes, grown, known), grown)
    named = tuple(
        _suspect(candidate, rank, score, grown, known, before, after)
        for rank, (candidate, score) in enumerate(ordered, start=1)
    )
    taken = {change.fact for suspect in named for change in (suspect.change, *suspect.also)}
    return named, tuple(change for change in changes if change.fact not in taken)


def unexplained(
    named: Sequence[Suspect],
    throughput: Judgement,
    first_step: Judgement,
    contributions: Sequence[Contribution],
    first_step_contributions: Sequence[Contribution],
) -> tuple[str, ...]:
    """What grew and no suspect touches, each a sentence: "nothing recorded explains the growth of forward"."""
    said = []
    for judged, parts in ((throughput, contributions), (first_step, first_step_contributions)):
        found = growth(judged, parts)
        if found is None:
            continue
        prefix = "first step: " if found.figure == "first step" else ""
        touched = {phase for suspect in named for phase in suspect.phases}
        left = [p.phase for p in found.grown if p.share >= LEAST_EXPLAINED and prefix + p.phase not in touched]
        if left:
            where = " of the time to the first step" if prefix else ""
            word = "growth" if found.slower else "fall"
            said.append(f"nothing recorded explains the {word} of {listed(left)}{where}")
    return tuple(said)


# --- what fits -------------------------------------------------------------------------------------------


def _candidates(changes: Sequence[Change], grown: Sequence[Growth], known: Figures) -> list[_Candidate]:
    """Every rule with what it can lead to here; of the rules that one change leads to, the best."""
    found: dict[str, tuple[float, _Candidate]] = {}
    slower = grown[0].slower
    slow_side = known.after if slower else known.before
    for rule, mine in rules_for(changes):
        if not mine or not all(need.holds(slow_side) for need in rule.needs):
            continue
        shown = rule.shown_by(changes, slower)
        for group in [mine] if rule.joined else _alike(mine):
            candidate = _candidate(rule, group, shown, grown)
            if candidate is None:
                continue
            score = _score(candidate, grown, {})
            best = found.get(candidate.lead.fact)
            if score > 0 and (best is None or score > best[0]):
                found[candidate.lead.fact] = (score, candidate)
    return [candidate for _, candidate in found.values()]


def _alike(changes: Sequence[Change]) -> list[tuple[Change, ...]]:
    """Changes that differ only in the number of a device are one."""
    groups: dict[tuple[str, ...], list[Change]] = {}
    for change in changes:
        groups.setdefault(tuple("#" if p.isdigit() else p for p in change.fact.split(".")), []).append(change)
    return [tuple(group) for group in groups.values()]


def _candidate(
    rule: Rule, mine: Sequence[Change], shown: Sequence[Change], grown: Sequence[Growth]
) -> _Candidate | None:
    """The rule with what ``mine``, its changes, explain; None where they explain nothing. ``shown``: its signs."""
    fits: list[tuple[Change, float]] = []
    explains: dict[Key, float] = {}
    fit: dict[str, float] = {}
    for growth_ in grown:
        hits = [(c, s, phase) for c in mine for s, phase in [rule.strength(c, growth_.slower)] if s > 0]
        if not hits:
            continue
        reach = max(rule.reach(change) for change, _, _ in hits)
        patterns = rule.phases if growth_.figure == "throughput" else rule.first
        patterns = tuple(p.replace("{phase}", phase) for p in patterns for _, _, phase in hits)
        touched = [part for part in growth_.parts if growth_.unsplit or touches(patterns, part.phase)]
        for part in touched:
            if part.share:
                explains[growth_.figure, part.phase] = min(1.0, reach / part.growth) if part.growth else 1.0
        fit[growth_.figure] = _fit(rule, touched)
        fits += [(change, strength) for change, strength, _ in hits]
    if not explains:
        return None
    leading = sorted({c.fact: c for c, _ in fits}.values(), key=lambda c: (bool(c.missing), rule.place(c)))
    signs = tuple(sign for sign in shown if sign not in leading)
    strength = _together([max(s for c, s in fits if c is change) for change in leading], len(signs))
    # What only one side shows ("throttled by its temperature") weighs nothing, and belongs to it.
    one_sided = [c for c in mine if c.missing and c.kind == "observed" and c not in leading]
    return _Candidate(rule, leading[0], (*leading[1:], *one_sided), signs, strength, explains, fit)


def _together(strengths: Sequence[float], signs: int) -> float:
    """Evidence adds up: what one piece leaves open another may close, and a sign closes some of it."""
    left = math.prod(1 - min(s, 0.99) for s in sorted(strengths, reverse=True)[:3])
    return 1 - left * 0.6 ** min(signs, 3)


def _fit(rule: Rule, touched: Sequence[Part]) -> float:
    """How much the growth looks like the rule's, from 0 to 1."""
    if not any(part.share for part in touched):
        return 0.0
    if rule.spread == "any":
        return float(max(1, len(touched)) ** -BREADTH)
    timed = [part for part in touched if part.weight >= 0.02]
    total = sum(part.weight for part in timed)
    if not total:
        return 1.0
    finite = [part for part in timed if math.isfinite(part.growth)]
    reference = sum(p.growth * p.share for p in finite) / (sum(p.share for p in finite) or 1.0)
    reference *= 1.0 if rule.spread == "alike" else 0.4
    grown = sum(p.weight * (min(1.0, p.growth / reference) if reference else 1.0) for p in timed)
    return grown / total


# --- the order -------------------------------------------------------------------------------------------


def _score(candidate: _Candidate, grown: Sequence[Growth], explained: Mapping[Key, float]) -> float:
    """The candidate's score on the growth that is left, in the figure that it explains best."""
    best = 0.0
    for growth_ in grown:
        whole = left = 0.0
        for part in growth_.parts:
            key = (growth_.figure, part.phase)
            mine = part.share * candidate.explains.get(key, 0.0)
            whole += mine
            left += mine * (1 - explained.get(key, 0.0))
        if whole < LEAST_EXPLAINED:
            continue
        worth = REPEATED * whole + (1 - REPEATED) * left
        best = max(best, worth * candidate.fit.get(growth_.figure, 0.0))
    return candidate.rule.prior * candidate.strength * best


def _in_order(candidates: list[_Candidate], grown: Sequence[Growth]) -> list[tuple[_Candidate, float]]:
    """The best first, then the best on what it leaves over, and so on."""
    explained: dict[Key, float] = {}
    ordered: list[tuple[_Candidate, float]] = []
    rest = list(candidates)
    while rest and len(ordered) < MOST:
        scored = [(_score(c, grown, explained), c.lead.fact, i) for i, c in enumerate(rest)]
        score, _, index = min(scored, key=lambda s: (-s[0], s[1]))
        if ordered and score < LEAST_OF_BEST * ordered[0][1]:
            break
        best = rest.pop(index)
        ordered.append((best, score))
        trust = best.rule.prior * best.strength
        for key, share in best.explains.items():
            explained[key] = 1 - (1 - explained.get(key, 0.0)) * (1 - trust * share)
    return ordered


def _suspect(
    candidate: _Candidate,
    rank: int,
    score: float,
    grown: Sequence[Growth],
    known: Figures,
    before: Side,
    after: Side,
) -> Suspect:
    rule, lead = candidate.rule, candidate.lead
    parts = [
        (growth_, [p for p in growth_.grown if (growth_.figure, p.phase) in candidate.explains]) for growth_ in grown
    ]
    phases = [("first step: " if g.figure == "first step" else "") + p.phase for g, found in parts for p in found]
    words = words_of(lead, phases)
    unit = after.runs[0].unit if after.runs else "tokens"
    evidence = [line for g, found in parts for line in figures_of(g, found, unit)]
    mine = replace(known, changes=(lead, *candidate.also, *candidate.signs, *known.changes))
    return Suspect(
        change=lead,
        rule=rule.id,
        reason=filled((*rule.reason, "{setting} {moved}"), words, mine),
        rank=rank,
        score=score,
        evidence=(*evidence, *signs_of(candidate.signs)),
        confirm=confirmed_by(rule.confirm, lead, before, after, known),
        phases=tuple(phases),
        also=tuple(dict.fromkeys((*candidate.also, *candidate.signs))),
    )
