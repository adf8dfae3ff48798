"""The whole answer for two sides: pure, from what was measured of each run. It composes; each part decides alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, pairwise

from harness.comparison import Change, Explanation, History, Interruption, Judgement, Measured, Side, Suspect
from harness.explain.comparing import comparable, facts
from harness.explain.failing.crashed import crashed
from harness.explain.judging import accounting
from harness.explain.judging.interruptions import interruptions
from harness.explain.judging.judge import MARGIN, judge
from harness.explain.sentence import Parts, first_sentence
from harness.explain.suspecting import suspects
from harness.explain.suspecting.grown import Figure, growth, interrupted, told_by

LEAST_START_S = 0.25
"""Seconds by which a first step must come later before anybody is told: a run of hours does not feel less."""


def explain(before: Side, after: Side, history: History | None = None, margin: float = MARGIN) -> Explanation:
    """What differs between two sides of at least one run each, in which order it matters.

    margin  relative difference of throughput (or of the time to the first step) below which it is called the same
    """
    history = history or History()
    before, after = _in_time(before), _in_time(after)
    changes = facts.changes(before, after)
    compared = comparable.compare(before, after, changes)
    same_unit = len({m.unit for m in (*before.runs, *after.runs)}) == 1
    throughput, first_step = _judged(before, after, history, margin, same_unit)
    steady_parts = accounting.contributions(before, after, throughput) if same_unit else ()
    first_parts = accounting.first_step_contributions(before, after, first_step)
    crash = crashed(before, after, changes) if before.failed or after.failed else None
    steady = growth(throughput, steady_parts)
    breaks = interruptions(before, after, decided=steady is not None or throughput.verdict == "SAME")
    grown = [each for each in (steady, interrupted(breaks), growth(first_step, first_parts)) if each is not None]
    named, rest = suspects.suspects(changes, grown, before, after)
    named = _by_weight(named, throughput, breaks)
    left_over = suspects.unexplained(named, grown)
    if compared.comparability == "NOT_COMPARABLE":
        throughput, first_step = _not_judged(throughput), _not_judged(first_step)
    if crash is not None:
        named = _ranked((*crash.suspects, *named))
    parts = Parts(before, after, compared, throughput, first_step, steady_parts, breaks, named, crash)
    return Explanation(
        sentence=first_sentence(parts),
        comparability=compared.comparability,
        reasons=compared.reasons,
        verdict=throughput.verdict,
        throughput=throughput,
        first_step=first_step,
        contributions=steady_parts,
        first_step_contributions=first_parts,
        interruptions=breaks,
        suspects=named,
        also_changed=_unnamed(rest, named),
        fair_pair=compared.fair_pair,
        bottleneck=accounting.bottleneck(before, after),
        normalised=compared.normalised if compared.comparability in ("NOT_COMPARABLE", "UNKNOWN") else (),
        notes=(*compared.notes, *left_over, *(crash.notes if crash else ()), *_gaps(before, after)),
        before=before,
        after=after,
        unit=before.runs[0].unit if same_unit else "",
    )


def _in_time(side: Side) -> Side:
    """In whatever order the runs were named, the answer is the same."""
    return replace(side, runs=tuple(sorted(side.runs, key=lambda m: (m.run.result.started_at, m.run.id))))


def _judged(before: Side, after: Side, history: History, margin: float, same_unit: bool) -> tuple[Judgement, Judgement]:
    sides = (before, after)
    rates = [[m.steady.throughput.value for m in side.runs if m.steady] if same_unit else [] for side in sides]
    firsts = [[m.first_step_s for m in side.runs if m.first_step_s and m.first_step_s > 0] for side in sides]
    within = tuple(_within(m) for side in sides for m in side.runs if m.steady and not m.shifts)
    turns = _in_turns(before, after)
    throughput = judge("throughput", *rates, history=history.rates, within=within, margin=margin, interleaved=turns)
    if not same_unit:
        throughput = replace(throughput, words="not compared: one side counts tokens, the other steps")
    soonest = min(chain(*firsts), default=math.inf)
    first_margin = max(margin, LEAST_START_S / soonest)
    first_step = judge("first step", *firsts, history=history.first_steps, margin=first_margin, interleaved=turns)
    return throughput, first_step


def _in_turns(before: Side, after: Side) -> bool | None:
    """Whether runs of both sides were made in turns, so that what drifts touches both alike; None without repeats."""
    if min(len(before.runs), len(after.runs)) < 2:
        return None
    starts = sorted((m.run.result.started_at, number) for number, side in enumerate((before, after)) for m in side.runs)
    return sum(a[1] != b[1] for a, b in pairwise(starts)) > 1


def _within(run: Measured) -> float:
    """Relative standard error of a run's throughput, from its 95 % interval; of one without shifts.

    A change of level makes that interval wide and is no noise: it is what the run is slow from.
    """
    assert run.steady is not None
    interval = run.steady.throughput
    return (interval.high - interval.low) / (2 * 1.96 * interval.value)


def _by_weight(
    named: tuple[Suspect, ...], throughput: Judgement, breaks: Sequence[Interruption]
) -> tuple[Suspect, ...]:
    """Where the training differs, hours of it come before minutes of starting, and of it what it lost more by."""
    if throughput.verdict not in ("SLOWER", "FASTER") and not breaks:
        return named
    steps = abs(math.log(throughput.ratio.value)) if throughput.ratio else 0.0
    order: list[Figure] = ["throughput", "interruptions", "first step"]
    if breaks and breaks[0].weight > steps:
        order[:2] = ["interruptions", "throughput"]
    return _ranked(sorted(named, key=lambda suspect: min(map(order.index, told_by(suspect)))))


def _not_judged(figure: Judgement) -> Judgement:
    """The figures stay, the verdict goes: different work is neither slower nor faster."""
    return replace(
        figure, verdict="UNKNOWN", basis="none", p=None, more_runs=None, words="not judged: it is not the same work"
    )


def _ranked(found: Sequence[Suspect]) -> tuple[Suspect, ...]:
    """Each fact once, in the order given, ranked anew."""
    once = {s.change.fact: s for s in reversed(found)}
    kept = [s for s in found if once.pop(s.change.fact, None) is not None]
    return tuple(replace(s, rank=rank) for rank, s in enumerate(kept, 1))


def _unnamed(changes: Sequence[Change], named: Sequence[Suspect]) -> tuple[Change, ...]:
    taken = {change.fact for s in named for change in (s.change, *s.also)}
    return tuple(change for change in changes if change.fact not in taken)


def _gaps(before: Side, after: Side) -> tuple[str, ...]:
    return tuple(f"{m.run.id}: {gap}" for side in (before, after) for m in side.runs for gap in m.gaps)
