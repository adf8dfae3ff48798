"""What different work still allows to be held side by side: seconds a useful token, and an attention pair.

An attention pair is one query and one key of one head of one layer. For the DFlash drafter they follow from its
settings: anchors x block size queries a sequence, and as keys its tokens and those queries. Where one of them is not
known there is no figure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

import numpy as np

from harness.comparison import Measured, Side
from harness.records import Value

LEAST_SHARE = 0.02
"""Of the time on either side, below which a phase's own figure is not worth a line."""

ATTENDING = ("forward", "backward")
"""Phases in which the drafter attends; they do other things too, and the figure's name says so."""

Figure = tuple[str, float, float]


def normalised(before: Side, after: Side) -> tuple[Figure, ...]:
    """(name, before, after), geometric means over the runs; empty where a side has no steady state in tokens."""
    sides = [[m for m in side.runs if m.steady and m.steady.tokens and m.unit == "tokens"] for side in (before, after)]
    if not all(sides):
        return ()
    named: list[tuple[str, Callable[[Measured], float | None]]] = [
        ("useful tokens a second", lambda m: 1 / _per_token(m)),
        ("microseconds a useful token", lambda m: 1e6 * _per_token(m)),
    ]
    for phase in _phases([m for side in sides for m in side]):
        named.append((f"microseconds a useful token in {phase}", lambda m, p=phase: 1e6 * _per_token(m, (p,))))  # type: ignore[misc]
    named.append(("nanoseconds an attention pair, all of forward and backward", _per_pair))
    figures = []
    for name, figure in named:
        a, b = (_mean([figure(m) for m in side]) for side in sides)
        if a is not None and b is not None:
            figures.append((name, a, b))
    return tuple(figures)


def attention_pairs(facts: Mapping[str, Value]) -> float | None:
    """Attention pairs for each token of a sequence that the drafter trains on, padding too; None where unknown."""
    heads = _number(facts, "workload.model.heads")
    if heads == 0 and facts.get("workload.target.kind") == "tiny":  # for other targets the weights decide
        heads = _number(facts, "workload.target.heads")
    names = ("model.layers", "data.length", "train.anchors", "model.block_size")
    layers, length, anchors, block = (_number(facts, f"workload.{name}") for name in names)
    if not heads or not layers or not length or not anchors or not block:
        return None
    queries = anchors * block
    return layers * heads * queries * (length + queries) / length


def _per_token(m: Measured, phases: Sequence[str] | None = None) -> float:
    """Seconds a useful token, in all or in some phases."""
    assert m.steady is not None
    seconds = m.steady.seconds if phases is None else sum(m.steady.phases.get(p, 0.0) for p in phases)
    return seconds / m.steady.tokens


def _per_pair(m: Measured) -> float | None:
    """Nanoseconds an attention pair; padding has pairs too."""
    assert m.steady is not None
    pairs = attention_pairs(m.facts)
    seconds = sum(m.steady.phases.get(p, 0.0) for p in ATTENDING)
    processed = m.steady.tokens + m.steady.padding
    return 1e9 * seconds / (pairs * processed) if pairs and seconds else None


def _phases(runs: Sequence[Measured]) -> list[str]:
    """The phases that take a share worth a line in some run, the longest first."""
    shares: dict[str, list[float]] = {}
    for m in runs:
        assert m.steady is not None
        for phase, seconds in m.steady.phases.items():
            shares.setdefault(phase, []).append(seconds / m.steady.seconds)
    worth = {phase: fmean(found) for phase, found in shares.items() if max(found) >= LEAST_SHARE}
    return sorted(worth, key=lambda phase: -worth[phase])


def _mean(found: Sequence[float | None]) -> float | None:
    """Geometric mean, or None where a run has no figure or a figure is 0."""
    known = [value for value in found if value is not None and value > 0]
    return float(np.exp(np.mean(np.log(known)))) if len(known) == len(found) and known else None


def _number(facts: Mapping[str, Value], fact: str) -> float | None:
    value = facts.get(fact)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
