"""The figures of a run from its events alone. Pure: the same events give the same figures, anywhere and at any time.

Steady state. The steps of the role that counts tokens, one for each step number: tokens of its devices add up, and
its seconds are those of its slowest device. Left out, and counted:

- *compile steps*: a phase "compile", a ``Compile`` event of that number, or one that overlaps it in time;
- *warm-up*: the first step, and then what MSER-5 cuts off (White 1997, "An effective truncation heuristic for bias
  reduction in simulation output"): the d that minimises the squared standard error of the means of batches of five
  after d, d in the first half.

Throughput is the ratio of sums, tokens over seconds, of the steady steps. Its interval is that of non-overlapping
batch means (Schmeiser 1982) of the ratio's residuals ``tokens - R seconds`` with Student's t: successive steps are
alike, so steps may not be taken for independent, and means of long batches nearly may. In simulation it holds the
truth 95 times of 100 from some 400 steps on, 90 at 100 steps, fewer where steps are few and very much alike. It is
an interval *within* this run; the next run may differ by more.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from harness.records import CacheState, Compile, Eval, Event, Interval, Note, Step, Summary

FEWEST_STEPS = 8
"""Steady steps below which no throughput is given."""

MOST_WARNINGS = 10
"""Warnings that a summary keeps; all of them are in the events."""

OVERLAP_S = 1e-3
"""Seconds that a compilation and a step must share: clocks that are read one after the other overlap by less."""

Array = NDArray[np.float64]


@dataclass
class _Seen:
    """What the events say, sorted."""

    steps: list[Step] = field(default_factory=list)
    compiles: list[Compile] = field(default_factory=list)
    evals: dict[str, Eval] = field(default_factory=dict)
    warnings: dict[str, None] = field(default_factory=dict)  # in order, each once
    end: float = 0.0


def summarise(events: Iterable[Event], cache: CacheState | None = None) -> Summary:
    """The figures of ``events``; ``cache`` is what the compile caches held before."""
    seen = _sort(events)
    role = counting_role(seen.steps)
    counted = [step for step in seen.steps if step.role == role]
    rows = slowest_by_number(counted)
    compiling = _compile_numbers(counted, seen.compiles)
    candidates = [row for row in rows[1:] if row.step not in compiling]
    cut = warm_up([row.seconds for row in candidates], [row.tokens for row in candidates])
    steady = candidates[cut:]
    tokens = sum(step.tokens for step in counted)
    hits, misses, bypasses = (sum(getattr(c, name) for c in seen.compiles) for name in ("hits", "misses", "bypasses"))
    losses = [row.metrics["loss"] for row in rows if "loss" in row.metrics]
    verdicts = [e.lossless for e in seen.evals.values() if e.lossless is not None]
    return Summary(
        steps=len(rows),
        tokens=tokens,
        padding=sum(step.padding for step in counted),
        throughput_tok_s=throughput(steady),
        whole_run_tok_s=tokens / seen.end if seen.end > 0 and tokens else None,
        first_step_s=rows[0].t if rows else None,
        warmup_steps=cut + bool(rows and rows[0].step not in compiling),
        compile_steps=sum(row.step in compiling for row in rows),
        compile_s=sum(c.seconds for c in seen.compiles),
        cache_hits=hits,
        cache_misses=misses,
        cache_bypasses=bypasses,
        cache_start=cache_start(cache, hits, misses),
        phases=_phase_seconds(steady),
        evals={name: dict(e.metrics) for name, e in seen.evals.items()},
        lossless=all(verdicts) if verdicts else None,
        loss_first=losses[0] if losses else None,
        loss_last=losses[-1] if losses else None,
        warnings=tuple(seen.warnings),
    )


def _sort(events: Iterable[Event]) -> _Seen:
    seen = _Seen()
    for event in events:
        seen.end = max(seen.end, event.t)
        if isinstance(event, Step):
            seen.steps.append(event)
        elif isinstance(event, Compile):
            seen.compiles.append(event)
        elif isinstance(event, Eval):
            seen.evals[event.name] = event
        elif isinstance(event, Note) and event.level == "warning" and len(seen.warnings) < MOST_WARNINGS:
            seen.warnings[event.text] = None
    return seen


def counting_role(steps: Sequence[Step]) -> str | None:
    """The role whose steps consumed most tokens; the first of equals, and None without steps."""
    tokens: Counter[str] = Counter()
    for step in steps:
        tokens[step.role] += step.tokens
    return max(tokens, key=tokens.__getitem__, default=None)


def slowest_by_number(steps: Sequence[Step]) -> list[Step]:
    """One step for each number, in order: its slowest device's, with the tokens and padding of all of them."""
    groups: defaultdict[int, list[Step]] = defaultdict(list)
    for step in steps:
        groups[step.step].append(step)
    return [_joined(groups[number]) for number in sorted(groups)]


def _joined(group: Sequence[Step]) -> Step:
    slowest = max(group, key=lambda step: step.seconds)
    if len(group) == 1:
        return slowest
    changes = {
        "t": max(step.t for step in group),
        "tokens": sum(step.tokens for step in group),
        "padding": sum(step.padding for step in group),
        "metrics": _mean_metrics(group),
    }
    return Step(**{**vars(slowest), **changes})


def _mean_metrics(group: Sequence[Step]) -> dict[str, float]:
    names = dict.fromkeys(name for step in group for name in step.metrics)
    values = {name: [step.metrics[name] for step in group if name in step.metrics] for name in names}
    return {name: sum(found) / len(found) for name, found in values.items()}


def _compile_numbers(steps: Sequence[Step], compiles: Sequence[Compile]) -> set[int]:
    """The numbers of the steps in which something was compiled, on any of the role's devices."""
    numbers = {step.step for step in steps if step.phases.get("compile", 0.0) > 0}
    numbers |= {c.step for c in compiles if c.step and c.seconds > OVERLAP_S}
    spans = [(c.t - c.seconds, c.t) for c in compiles if c.seconds > OVERLAP_S]
    if spans:
        starts = np.array([step.t - step.seconds for step in steps])
        ends = np.array([step.t for step in steps])
        for begin, end in spans:
            shared = np.minimum(ends, end) - np.maximum(starts, begin)
            numbers |= {steps[int(i)].step for i in np.flatnonzero(shared > OVERLAP_S)}
    return numbers


def warm_up(seconds: Sequence[float], tokens: Sequence[int]) -> int:
    """How many of the first steps are warm-up, by MSER-5 on seconds a token; by MSER on steps where they are few."""
    size = 5 if len(seconds) >= 40 else 1
    count = len(seconds) // size
    if count < 4:
        return 0
    took = np.asarray(seconds[: count * size], dtype=np.float64).reshape(count, size).sum(axis=1)
    done = np.asarray(tokens[: count * size], dtype=np.float64).reshape(count, size).sum(axis=1)
    return mser(took / done if np.all(done > 0) else took) * size


def mser(values: Array) -> int:
    """The d <= n/2 that minimises ``sum((values[d:] - mean)^2) / (n - d)^2``; the least d of equals."""
    reversed_ = (values - values.mean())[::-1]  # centred, so that the difference of sums keeps its digits
    left = np.arange(1, len(values) + 1)
    squares = np.cumsum(reversed_**2) - np.cumsum(reversed_) ** 2 / left
    scores = (np.maximum(squares, 0.0) / left**2)[::-1]
    candidates = scores[: len(values) // 2 + 1]
    noise = 1e-24 * max(1.0, float(np.sum(values**2)))  # rounding must not pick a winner among equals
    return int(np.flatnonzero(candidates <= candidates.min() + noise)[0])


def throughput(steady: Sequence[Step]) -> Interval | None:
    """Useful tokens a second and the 95 % interval within the run; None where the steps or their tokens are too few."""
    seconds = np.array([step.seconds for step in steady], dtype=np.float64)
    tokens = np.array([step.tokens for step in steady], dtype=np.float64)
    if len(steady) < FEWEST_STEPS or seconds.sum() <= 0 or tokens.sum() <= 0:
        return None
    return ratio_interval(tokens, seconds)


def ratio_interval(tokens: Array, seconds: Array) -> Interval:
    """``sum(tokens) / sum(seconds)``, with the interval of batch means of its residuals.

    The batches are as many as they are long, between 4 and 20 of them. What correlation is left between successive
    batches widens the interval by that of an autoregressive process, as in Skart (Tafazzoli and Wilson 2011).
    """
    ratio = float(tokens.sum() / seconds.sum())
    batches = min(20, max(4, math.isqrt(len(tokens))))
    means = np.array([part.mean() for part in np.array_split(tokens - ratio * seconds, batches)])
    squares = float(np.sum(means**2))
    if squares == 0:
        return Interval(ratio, ratio, ratio)
    correlation = float(np.sum(means[1:] * means[:-1])) / squares + 1 / batches  # without the term it is low by that
    correlation = min(0.9, max(0.0, correlation))
    variance = float(means.var(ddof=1)) / batches * (1 + correlation) / (1 - correlation)
    half = float(stdtrit(batches - 1, 0.975)) * math.sqrt(variance) / float(seconds.mean())
    return Interval(ratio, max(0.0, ratio - half), ratio + half)


def _phase_seconds(steady: Sequence[Step]) -> Mapping[str, float]:
    """Seconds of each phase over the steady steps; they sum to the seconds that the throughput is over."""
    total: defaultdict[str, float] = defaultdict(float)
    for step in steady:
        for name, seconds in step.phases.items():
            total[name] += seconds
    return dict(total)


def cache_start(before: CacheState | None, hits: int, misses: int) -> str:
    """``cold``: nothing that was compiled was there. ``warm``: all of it was. ``partial``: some. Else ``unknown``.

    A hit is not a saving: a warm cache may still compile for long, so compile seconds stand beside it.
    """
    if before is None:
        return "unknown"
    if before.entries == 0:
        return "cold"
    if not hits and not misses:
        return "unknown"
    if not hits:
        return "cold"
    return "partial" if misses else "warm"
