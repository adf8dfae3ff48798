"""What the time of one run was spent on: its steady steps by phase, its roles, and the way to its first step.

Waits are opened. While the role that counts tokens waits, the others work: its ``wait`` becomes "ROLE.PHASE" of what
the other roles did in the time of the same step, in the proportion in which they did it. What they cannot have worked,
because they waited too, stays "wait". A role's devices count as one that does what they do in the mean; where several
roles work, all of them are taken for what was waited for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from harness.comparison import UNACCOUNTED, Role
from harness.devices import WAIT, device_shares, meanwhile, waits_of
from harness.evidence import Evidence, Floats, Steps, Whole
from harness.steady import Rows, SteadyState, shared

EVALUATION = "evaluation"

Seconds = dict[str, float]


class Spent(NamedTuple):
    """Of the steady time: seconds of each phase, which sum to its seconds, and how each role spent it."""

    phases: Seconds
    roles: dict[str, Role]


def spent(evidence: Evidence, role: str, state: SteadyState) -> Spent:
    """Where the steady time of ``role``, the one that counts, went."""
    steps, rows = evidence.steps[role], state.rows
    chosen = rows.slowest[state.steady]
    seconds = rows.seconds[state.steady]
    total = float(seconds.sum())
    phases = {name_of(name): float(column[chosen].sum()) for name, column in steps.phases.items()}
    phases[EVALUATION] = _evaluating(evidence, steps, chosen)
    phases[UNACCOUNTED] = 0.0  # it is what is left
    phases = _filled(phases, total)
    ends = rows.t[state.steady]
    others = meanwhile(evidence.steps, role, ends - seconds, ends)
    waits = steps.phases[WAIT][chosen] if WAIT in steps.phases else np.zeros(len(chosen))
    shares = waits_of(device_shares(evidence.steps, role, state))
    roles = {name: Role(total, share * total, len(evidence.steps[name].devices)) for name, share in shares.items()}
    if WAIT in phases:
        scale = phases.pop(WAIT) / float(waits.sum())
        opened = {name: scale * float(column.sum()) for name, column in open_waits(waits, others).items()}
        phases |= {name: seconds for name, seconds in opened.items() if seconds > 0}
    return Spent(phases, roles)


def name_of(phase: str) -> str:
    """What people call a phase of a step."""
    return UNACCOUNTED if phase == "other" else phase


def _filled(phases: Seconds, total: float) -> Seconds:
    """The phases that took time, and what none of them covers, with the sum ``total``.

    Phases of another clock can exceed the whole by a little: then they are scaled to fit.
    """
    named = {name: seconds for name, seconds in phases.items() if name != UNACCOUNTED and seconds > 0}
    covered = sum(named.values())
    if covered > total:
        named = {name: seconds * total / covered for name, seconds in named.items()}
    return {**named, UNACCOUNTED: max(0.0, total - covered)}


def _evaluating(evidence: Evidence, steps: Steps, chosen: Whole) -> float:
    """Seconds of evaluations that steps hold and no phase of theirs covers."""
    if not evidence.evals or "other" not in steps.phases:
        return 0.0
    held = shared(steps, [(e.t - e.seconds, e.t) for e in evidence.evals])
    return float(np.minimum(held, steps.phases["other"])[chosen].sum())


# --- waits -----------------------------------------------------------------------------------------------


def open_waits(waits: Floats, others: Mapping[str, Mapping[str, Floats]]) -> dict[str, Floats]:
    """Each stretch's seconds of waiting as "ROLE.PHASE" of what the others did in it, and the "wait" that is left.

    Roles that feed each other do not wait at once: as much of a wait as they worked in that stretch was for that.
    """
    work = {
        f"{role}.{name_of(phase)}": column
        for role, columns in others.items()
        for phase, column in columns.items()
        if phase != WAIT
    }
    busy = np.sum(list(work.values()), axis=0) if work else np.zeros_like(waits)
    part = np.divide(np.minimum(waits, busy), busy, out=np.zeros_like(busy), where=busy > 0)
    return {**{name: column * part for name, column in work.items()}, WAIT: np.maximum(0.0, waits - busy)}


# --- the way to the first step ---------------------------------------------------------------------------

Span = tuple[float, float]


def first_step(evidence: Evidence, steps: Steps, rows: Rows) -> Seconds:
    """Seconds from the start of the run to the end of its first step, by part; they sum to it.

    set-up                 until the child said what it would compute
    evaluation, compile    before the first step and in it
    before the first step  the rest of the time until it began
    PHASE                  of the first step, without what was compiled in it
    """
    end = float(rows.t[0])
    began = max(0.0, end - float(rows.seconds[0]))
    ready = min(began, evidence.started_t or 0.0)
    compiles = [(c.t - c.seconds, c.t) for c in evidence.compiles]
    both = [*compiles, *((e.t - e.seconds, e.t) for e in evidence.evals)]
    compiled = covered(compiles, 0.0, began)
    before = {
        "set-up": ready - covered(both, 0.0, ready),
        EVALUATION: covered(both, 0.0, began) - compiled,
        "before the first step": began - ready - covered(both, ready, began),
    }
    inside = _filled({name_of(n): float(c[rows.slowest[0]]) for n, c in steps.phases.items()}, end - began)
    inside = _without_compiling(inside, covered(compiles, began, end))
    inside["compile"] = inside.get("compile", 0.0) + compiled
    return {name: seconds for name, seconds in {**before, **inside}.items() if seconds > 1e-9}


def covered(spans: Sequence[Span], begin: float, end: float) -> float:
    """Seconds between ``begin`` and ``end`` that lie in at least one of the spans."""
    total, reached = 0.0, begin
    for low, high in sorted(spans):
        low, high = max(low, reached), min(high, end)
        if high > low:
            total += high - low
            reached = high
    return total


def _without_compiling(phases: Seconds, seconds: float) -> Seconds:
    """The phases of a step, with "compile" for what was compiled in it, unless the step tells its own.

    It is taken out of the longest phases: there it was compiled, as part of a forward or a backward pass.
    """
    if phases.get("compile", 0.0) > 0 or seconds <= 0:
        return dict(phases)
    left, found = seconds, dict(phases)
    for name in sorted(phases, key=phases.__getitem__, reverse=True):
        taken = min(left, found[name])
        found[name] -= taken
        left -= taken
    return {**found, "compile": seconds - left}
