"""The figures of a run from its events alone. Pure: the same events give the same figures, anywhere and at any time.

``harness/steady.py`` says which steps are steady, and what the throughput over them is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from harness.bottleneck import busiest
from harness.devices import device_shares, waits_of
from harness.evidence import Steps
from harness.records import CacheState, Compile, Eval, Event, Note, Step, Summary
from harness.run.growing import GrowingSteps
from harness.steady import SteadyState, counting_role, steady_state

MOST_WARNINGS = 10
"""Warnings that a summary keeps; all of them are in the events."""


@dataclass
class _Seen:
    """What the events say, sorted."""

    steps: GrowingSteps = field(default_factory=GrowingSteps)
    compiles: list[Compile] = field(default_factory=list)
    evals: dict[str, Eval] = field(default_factory=dict)
    warnings: dict[str, None] = field(default_factory=dict)  # in order, each once
    end: float = 0.0


def summarise(events: Iterable[Event], cache: CacheState | None = None) -> Summary:
    """The figures of ``events``; ``cache`` is what the compile caches held before."""
    seen = _sort(events)
    hits, misses, bypasses = (sum(getattr(c, name) for c in seen.compiles) for name in ("hits", "misses", "bypasses"))
    verdicts = [e.lossless for e in seen.evals.values() if e.lossless is not None]
    return replace(
        _of_steps(seen),
        compile_s=sum(c.seconds for c in seen.compiles),
        cache_hits=hits,
        cache_misses=misses,
        cache_bypasses=bypasses,
        cache_start=cache_start(cache, hits, misses),
        evals={name: dict(e.metrics) for name, e in seen.evals.items()},
        lossless=all(verdicts) if verdicts else None,
        warnings=tuple(seen.warnings),
    )


def _sort(events: Iterable[Event]) -> _Seen:
    seen = _Seen()
    for event in events:
        seen.end = max(seen.end, event.t)
        if isinstance(event, Step):
            seen.steps.add(vars(event))
        elif isinstance(event, Compile):
            seen.compiles.append(event)
        elif isinstance(event, Eval):
            seen.evals[event.name] = event
        elif isinstance(event, Note) and event.level == "warning" and len(seen.warnings) < MOST_WARNINGS:
            seen.warnings[event.text] = None
    return seen


def _of_steps(seen: _Seen) -> Summary:
    """The figures of the role that counts tokens, and how all roles spent its steady time."""
    roles = seen.steps.finish()
    role = counting_role(roles)
    if role is None:
        return Summary()
    steps = roles[role]
    state = steady_state(steps, seen.compiles)
    tokens = int(steps.tokens.sum())
    losses = _losses(steps, state)
    throughput = state.throughput()
    devices = device_shares(roles, role, state) if throughput else ()  # too few steps say nothing of them
    waits = waits_of(devices)
    return Summary(
        steps=len(state.rows),
        tokens=tokens,
        padding=int(steps.padding.sum()),
        throughput_tok_s=throughput if tokens else None,
        whole_run_tok_s=tokens / seen.end if seen.end > 0 and tokens else None,
        first_step_s=float(state.rows.t[0]),
        warmup_steps=state.warm_up,
        compile_steps=int(np.count_nonzero(state.compiling)),
        phases=_phase_seconds(steps, state),
        waits=waits,
        bound=busiest(waits),
        devices=devices,
        loss_first=losses[0],
        loss_last=losses[1],
    )


def _phase_seconds(steps: Steps, state: SteadyState) -> Mapping[str, float]:
    """Seconds of each phase over the steady steps; they sum to the seconds that the throughput is over."""
    steady = state.rows.slowest[state.steady]
    total = {name: float(column[steady].sum()) for name, column in steps.phases.items()}
    return {name: seconds for name, seconds in total.items() if seconds}


def _losses(steps: Steps, state: SteadyState) -> tuple[float | None, float | None]:
    """The loss of the first row and of the last one that have any, each the mean over its devices."""
    loss = steps.loss
    reported = np.flatnonzero(~np.isnan(loss)) if loss is not None else np.zeros(0, dtype=np.int64)
    if loss is None or not len(reported):
        return None, None
    rows = state.rows.row_of[reported]
    first, last = (float(loss[reported[rows == row]].mean()) for row in (rows.min(), rows.max()))
    return (first if math.isfinite(first) else math.nan), (last if math.isfinite(last) else math.nan)


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
