"""Which of the changes can have done it: rules joined with what grew, ranked. Suspects, never causes.

A change is a suspect where a rule binds it to parts that grew, and it moved in the direction that makes them grow:

    score = its worth (prior of the rule x strength of the evidence x fit) x what it explains of the growth

What it explains is its share of all growth, no more of a phase than the figure can carry (a clock that fell by 3 %
explains 3 %). Suspects are taken one after the other, each on the growth that those before it leave over, so that of
two true changes the second stands above what repeats the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from harness.comparison import BETWEEN, Change, Side, Suspect
from harness.explain.comparing.facts import natural
from harness.explain.suspecting.candidates import Candidate, Key, candidates, explained
from harness.explain.suspecting.grown import FIRST, Growth
from harness.explain.suspecting.reasons import Figures, confirmed_by, figures_of, filled, signs_of, words_of
from harness.explain.words import listed

LEAST_EXPLAINED = 0.1
"""Of the growth, below which a change is no suspect: it cannot have done what was measured."""

BOTH = 0.3
"""How much each figure that it explains less adds: one change that explains both is likelier than one that does not."""

MOST = 12
"""Suspects that are named; nobody reads more, and a lower one explains next to nothing."""

LEAST_OF_BEST = 0.15
"""Of the best suspect's score, below which a change is not worth naming beside it."""

REPEATED = 0.25
"""Of its score that a suspect keeps where those above it leave nothing over."""


def suspects(
    changes: Sequence[Change], grown: Sequence[Growth], before: Side, after: Side
) -> tuple[tuple[Suspect, ...], tuple[Change, ...]]:
    """The suspects in order, and the changes that are none. No suspects where no figure really differs."""
    if not grown:
        return (), tuple(changes)
    known = Figures.of(before, after, sorted(changes, key=lambda change: natural(change.fact)))
    ordered = _in_order(candidates(known.changes, grown, known), grown)
    named = tuple(
        _suspect(candidate, rank, score, grown, known, before, after)
        for rank, (candidate, score) in enumerate(ordered, start=1)
    )
    taken = {change.fact for suspect in named for change in (suspect.change, *suspect.also)}
    return named, tuple(change for change in changes if change.fact not in taken)


def unexplained(named: Sequence[Suspect], grown: Sequence[Growth]) -> tuple[str, ...]:
    """What grew and no suspect touches, each a sentence: "nothing recorded explains the growth of forward"."""
    said = []
    touched = {phase for suspect in named for phase in suspect.phases}
    for found in grown:
        prefix = FIRST if found.figure == "first step" else ""
        left = [p.phase for p in found.grown if p.share >= LEAST_EXPLAINED and prefix + p.phase not in touched]
        if left:
            where = " of the time to the first step" if prefix else ""
            word = "growth" if found.slower else "fall"
            names = ["the time between the steps" if phase == BETWEEN else phase for phase in left]
            said.append(f"nothing recorded explains the {word} of {listed(names)}{where}")
    return tuple(said)


# --- the order -------------------------------------------------------------------------------------------


def _score(candidate: Candidate, grown: Sequence[Growth], left: Mapping[Key, float]) -> float:
    """The score on the growth that is left: of the figure that it explains best, and some of the others."""
    scores = []
    for growth_ in grown:
        whole = explained(candidate, growth_, {})
        if whole >= LEAST_EXPLAINED:
            amount = REPEATED * whole + (1 - REPEATED) * explained(candidate, growth_, left)
            scores.append(amount * candidate.worth.get(growth_.figure, 0.0))
    best = max(scores, default=0.0)
    return best + BOTH * (sum(scores) - best)


def _in_order(found: Sequence[Candidate], grown: Sequence[Growth]) -> list[tuple[Candidate, float]]:
    """The best first, then the best on what it leaves over, and so on."""
    left: dict[Key, float] = {}
    ordered: list[tuple[Candidate, float]] = []
    rest = [candidate for candidate in found if _score(candidate, grown, left) > 0]
    while rest and len(ordered) < MOST:
        scored = [(_score(c, grown, left), c.lead.fact, i) for i, c in enumerate(rest)]
        score, _, index = min(scored, key=lambda s: (-s[0], s[1]))
        if ordered and score < LEAST_OF_BEST * ordered[0][1]:
            break
        best = rest[index]
        ordered.append((best, score))
        said = {change.fact for change in (best.lead, *best.also, *best.signs)}
        rest = [candidate for candidate in rest if candidate.lead.fact not in said]
        for key, share in best.explains.items():
            left[key] = left.get(key, 1.0) * (1 - best.trust[key[0]] * share)
    return ordered


def _suspect(
    candidate: Candidate,
    rank: int,
    score: float,
    grown: Sequence[Growth],
    known: Figures,
    before: Side,
    after: Side,
) -> Suspect:
    rule, lead = candidate.rule, candidate.lead
    parts = [  # of the figures that it can have changed: less than that of another is chance
        (growth_, [p for p in growth_.grown if (growth_.figure, p.phase) in candidate.explains])
        for growth_ in grown
        if explained(candidate, growth_, {}) >= LEAST_EXPLAINED
    ]
    phases = [(FIRST if g.figure == "first step" else "") + p.phase for g, found in parts for p in found]
    slower = next(g.slower for g, _ in parts if g.figure in candidate.worth)
    words = words_of(lead, phases, slower)
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
