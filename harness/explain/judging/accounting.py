"""Where the difference between two sides went: an exact split of the logarithm of their ratio, and the bottleneck.

The time of a run that did W useful units is ``S = W P (c_1 + ... + c_n)``: P processed units for each useful one
(padding is processed too), and c_i seconds of phase i for each processed unit. So of two runs, with C the sum of c_i,

    ln(T1 / T0) = -ln(P1 / P0) - sum_i (c1_i - c0_i) / L(C1, C0),   L(a, b) = (a - b) / (ln a - ln b),  L(a, a) = a

for T = W / S: the additive logarithmic mean Divisia index (Ang 2004, "Decomposition analysis for policymaking in
energy"). It leaves no residual, negates where the sides are swapped, and is defined where a phase is zero. Of groups
it is the mean over all pairs of a run before and a run after, which sums to the logarithm of the ratio of the
geometric means. Seconds to the first step are split likewise, ``ln(S1 / S0) = sum_i (s1_i - s0_i) / L(S1, S0)``.

A contribution says what the phase gave, not what gave it to the phase.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from harness.bottleneck import busiest, longest_waiting
from harness.comparison import Contribution, Judgement, Measured, Side, Steady
from harness.evidence import Floats
from harness.figures import digits

PADDING = "padding"


def contributions(before: Side, after: Side, throughput: Judgement) -> tuple[Contribution, ...]:
    """What padding and each phase gave to ln(after / before) of the throughput: padding first, then the greatest first.

    Of the runs that have a steady state; none where a side has no such run.
    """
    sides = [[m.steady for m in side.runs if m.steady is not None] for side in (before, after)]
    if not all(sides):
        return ()
    padded = [np.array([_processed(run) / _useful(run) for run in side]) for side in sides]
    cost = [[_cost(run) for run in side] for side in sides]
    parts = _split(cost[0], cost[1], throughput, sign=-1.0)
    if all(np.all(each == 1.0) for each in padded):
        return parts
    log_ratio = float(np.mean(np.log(padded[0])) - np.mean(np.log(padded[1])))
    means = (float(each.mean()) for each in padded)
    return _shared([Contribution(PADDING, log_ratio, None, *means), *parts], throughput)


def first_step_contributions(before: Side, after: Side, first_step: Judgement) -> tuple[Contribution, ...]:
    """What each part of the way to the first step gave to ln(after / before) of its seconds, the greatest first."""
    sides = [[m.first_step for m in side.runs if m.first_step] for side in (before, after)]
    return _split(sides[0], sides[1], first_step, sign=1.0) if all(sides) else ()


def _useful(run: Steady) -> int:
    return run.tokens or run.steps


def _processed(run: Steady) -> int:
    return run.tokens + run.padding if run.tokens else run.steps


def _cost(run: Steady) -> dict[str, float]:
    """Seconds of each phase for each processed unit."""
    return {phase: seconds / _processed(run) for phase, seconds in run.phases.items()}


def _split(
    before: Sequence[Mapping[str, float]], after: Sequence[Mapping[str, float]], judged: Judgement, sign: float
) -> tuple[Contribution, ...]:
    """The contributions of parts whose sum is compared; ``sign`` -1 where a greater sum makes a smaller figure."""
    names = [name for name in dict.fromkeys(n for run in (*before, *after) for n in run) if _any(name, before, after)]
    first, second = (np.array([[run.get(name, 0.0) for name in names] for run in side]) for side in (before, after))
    means = _log_mean(second.sum(axis=1)[:, None], first.sum(axis=1)[None, :])  # (after, before): of each pair
    logs = sign * ((second[:, None, :] - first[None, :, :]) / means[:, :, None]).mean(axis=(0, 1))
    order = np.argsort(-np.abs(logs), kind="stable")
    low, high = first.mean(axis=0), second.mean(axis=0)
    found = [Contribution(names[i], float(logs[i]), None, float(low[i]), float(high[i])) for i in order]
    return _shared(found, judged)


def _any(name: str, *sides: Sequence[Mapping[str, float]]) -> bool:
    return any(run.get(name, 0.0) > 0 for side in sides for run in side)


def _log_mean(a: Floats, b: Floats) -> Floats:
    """The logarithmic mean of positive numbers, also near a = b, where the definition comes to 0 / 0."""
    apart = (a - b) / b
    logs = np.where(np.abs(apart) < 0.5, np.log1p(np.maximum(apart, -0.5)), np.log(a) - np.log(b))
    return np.asarray(np.divide(a - b, logs, out=np.broadcast_to(b, apart.shape).copy(), where=logs != 0))


def _shared(found: Sequence[Contribution], judged: Judgement) -> tuple[Contribution, ...]:
    """With shares of the sum, unless the ratio may be 1: parts of what may be nothing say nothing."""
    total = sum(c.log_ratio for c in found)
    ratio = judged.ratio
    known = ratio is not None and not ratio.low <= 1 <= ratio.high and total != 0
    return tuple(
        Contribution(c.phase, c.log_ratio, c.log_ratio / total if known else None, c.before, c.after) for c in found
    )


# --- the bottleneck --------------------------------------------------------------------------------------


def bottleneck(before: Side, after: Side) -> str:
    """One sentence on which role held up the others on each side; "" where a side has not two roles to compare."""
    waits = [_waiting(side.runs) for side in (before, after)]
    if any(len(each) < 2 for each in waits):
        return ""
    bound = [busiest(each) for each in waits]
    if bound == ["", ""]:
        return "On neither side does a role hold up the others."
    if bound[0] == bound[1]:
        role = longest_waiting(waits[1], bound[1])
        first, second = (_per_cent(each.get(role, 0.0)) for each in waits)
        return f"Both sides are {bound[1]}-bound: the {role} waits {first} of its time before and {second} after."
    said = [_bound(role, each) for role, each in zip(bound, waits, strict=True)]
    return f"The bottleneck changed hands: {said[0]} before, {said[1]} after."


def _waiting(runs: Sequence[Measured]) -> dict[str, float]:
    """The share of its time that each role waits, in the mean over the runs."""
    shares: dict[str, list[float]] = {}
    for run in runs:
        for name, role in run.roles.items():
            if role.seconds > 0:
                shares.setdefault(name, []).append(role.waiting / role.seconds)
    return {name: sum(found) / len(found) for name, found in shares.items()}


def _bound(role: str, waits: Mapping[str, float]) -> str:
    if not role:
        return "no role holds up the others"
    other = longest_waiting(waits, role)
    return f"{role}-bound (the {other} waits {_per_cent(waits[other])} of its time)"


def _per_cent(share: float) -> str:
    return f"{digits(100 * share, 2)} %"
