"""How the machine was while a run went, from its telemetry: cards, processors, memory and disks, as observed facts.

    gpu.clock_mhz (median card), gpu.clock_min_mhz (slowest card), gpu.throttled_share (worst card),
    gpu.throttle_reason, gpu.power_w, gpu.temperature, gpu.use_pct, gpu.memory_used_bytes,
    gpu.others_bytes (held before the run began)
    cpu.others_pct, cpu.run_pct (of one core), cpu.throttled (share of the time at its quota)
    memory.available_bytes (least), memory.swap_bytes, memory.run_bytes, disk_read_bytes_s, disk_write_bytes_s

Medians, shares and means over a span of time: one moment decides nothing.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import numpy as np

from harness.evidence import Evidence, Floats, Series
from harness.records import Value

BUSY_PCT = 10.0
"""Use of a card, in per cent, below which it had no part in the run."""

AT_QUOTA = 0.95
"""Of its quota of processor time, from where on a run is held back by it."""

EARLY_S = 5.0
"""Seconds from the start of a run in which what a card holds is somebody else's."""

Span = tuple[float, float]
"""Seconds since the run began."""


@cache
def throttling() -> Mapping[str, str]:
    """What a person calls each reason that holds clocks down."""
    data = tomllib.loads(Path(__file__).with_name("observe.toml").read_text("utf-8"))
    return dict(data["throttling"])


def gauges(evidence: Evidence, span: Span) -> dict[str, Value | None]:
    """The facts, without their prefix; None for what was not measured."""
    return _of_gpus(evidence, span) | _of_machine(evidence, span)


def _of_gpus(evidence: Evidence, span: Span) -> dict[str, Value | None]:
    """Over the cards that had a part in the run."""
    cards = sorted({name.split(".")[1] for name in evidence.telemetry if name.startswith("gpu.")})
    use = {card: _median(evidence, f"gpu.{card}.use_pct", span) for card in cards}
    busy = [card for card in cards if (use[card] or 0.0) >= BUSY_PCT] or cards
    clocks = _each(evidence, busy, ("clock_sm_mhz", "clock_mhz"), span)
    throttled, reason = _throttled(evidence, busy, span)
    return {
        "gpu.clock_mhz": float(np.median(clocks)) if clocks else None,
        "gpu.clock_min_mhz": min(clocks, default=None),
        "gpu.throttled_share": throttled,
        "gpu.throttle_reason": reason,
        "gpu.power_w": _middle(_each(evidence, busy, ("power_w",), span)),
        "gpu.temperature": max(_each(evidence, busy, ("temperature_c",), span), default=None),
        "gpu.use_pct": _middle([value for card in busy if (value := use[card]) is not None]),
        "gpu.memory_used_bytes": max(_each(evidence, busy, ("memory_used_bytes",), span), default=None),
        "gpu.others_bytes": _others_bytes(evidence, busy, span),
    }


def _throttled(evidence: Evidence, cards: Iterable[str], span: Span) -> tuple[float | None, str | None]:
    """The share of samples in which the worst card was held back, and by what most often."""
    worst: float | None = None
    why: Counter[str] = Counter()
    for card in cards:
        prefix = f"gpu.{card}.throttle."
        by_reason = {
            name.removeprefix(prefix): inside
            for name, series in evidence.telemetry.items()
            if name.startswith(prefix) and len(inside := _inside(series, span))
        }
        if not by_reason:
            continue
        held = [values for reason, values in by_reason.items() if reason in throttling()]
        share = float(np.mean(np.any([v > 0 for v in held], axis=0))) if held else 0.0
        worst = max(worst or 0.0, share)
        for reason, values in by_reason.items():
            if reason in throttling():
                why[throttling()[reason]] += int((values > 0).sum())
    return worst, why.most_common(1)[0][0] if worst and why else None


def _others_bytes(evidence: Evidence, cards: Iterable[str], span: Span) -> float | None:
    """What others hold on a card: as telemetry says, else what it held before this run can have used it."""
    cards = tuple(cards)
    said = _each(evidence, cards, ("others_bytes",), span)
    if said:
        return max(said)
    until = min(EARLY_S, evidence.started_t if evidence.started_t is not None else span[0])
    held = []
    for card in cards:
        series = evidence.telemetry.get(f"gpu.{card}.memory_used_bytes")
        if series is not None and (early := series.values[series.t <= until]).size:
            held.append(float(early.min()))
    return max(held, default=None)


def _of_machine(evidence: Evidence, span: Span) -> dict[str, Value | None]:
    series = evidence.telemetry
    return {
        "cpu.others_pct": _others_pct(evidence, span),
        "cpu.run_pct": _median(evidence, "run.cpu_pct", span),
        "cpu.throttled": _at_quota(evidence, span),
        "memory.available_bytes": _least(series.get("memory.available_bytes"), span),
        "memory.swap_bytes": _median(evidence, "memory.swap_used_bytes", span),
        "memory.run_bytes": _median(evidence, "run.memory_bytes", span),
        "disk_read_bytes_s": _mean(series.get("run.disk_read_bytes_s"), span),
        "disk_write_bytes_s": _mean(series.get("run.disk_write_bytes_s"), span),
    }


def others(evidence: Evidence) -> Series | None:
    """What all but the run take of the processors, in per cent of one core. The machine's use is of all its cores."""
    machine, run = evidence.telemetry.get("cpu.use_pct"), evidence.telemetry.get("run.cpu_pct")
    cores = evidence.facts.get("environment.cpu.count")
    if machine is None or run is None or not isinstance(cores, int | float) or len(machine.t) != len(run.t):
        return None
    return Series(machine.t, np.maximum(0.0, machine.values * float(cores) - run.values))


def _others_pct(evidence: Evidence, span: Span) -> float | None:
    series = others(evidence)
    inside = _inside(series, span) if series is not None else np.empty(0)
    return float(np.median(inside)) if inside.size else None


def _at_quota(evidence: Evidence, span: Span) -> float | None:
    """The share of the time in which the run was held back by its quota: as the kernel counts it, else by its use."""
    counted = evidence.telemetry.get("cpu.throttled")
    if counted is not None:
        return _mean(counted, span)
    limit, run = evidence.facts.get("environment.cpu.limit"), evidence.telemetry.get("run.cpu_pct")
    if not isinstance(limit, int | float) or run is None:
        return None
    inside = _inside(run, span)
    return float(np.mean(inside >= AT_QUOTA * 100 * float(limit))) if inside.size else None


def _inside(series: Series, span: Span) -> Floats:
    """The values in the span that are numbers; all of them where a short run has no sample in it."""
    inside = series.values[(series.t >= span[0]) & (series.t <= span[1])]
    inside = inside if inside.size else series.values
    return inside[np.isfinite(inside)]


def _median(evidence: Evidence, name: str, span: Span) -> float | None:
    series = evidence.telemetry.get(name)
    inside = _inside(series, span) if series is not None else np.empty(0)
    return float(np.median(inside)) if inside.size else None


def _each(evidence: Evidence, cards: Iterable[str], names: Iterable[str], span: Span) -> list[float]:
    """The median of each card that has one of the series."""
    names = tuple(names)
    found = ((_median(evidence, f"gpu.{card}.{name}", span) for name in names) for card in cards)
    return [value for each in found if (value := next((v for v in each if v is not None), None)) is not None]


def _middle(found: list[float]) -> float | None:
    return float(np.median(found)) if found else None


def _least(series: Series | None, span: Span) -> float | None:
    """The fifth percentile: the least, but for a moment."""
    inside = _inside(series, span) if series is not None else np.empty(0)
    return float(np.percentile(inside, 5)) if inside.size else None


def _mean(series: Series | None, span: Span) -> float | None:
    inside = _inside(series, span) if series is not None else np.empty(0)
    return float(inside.mean()) if inside.size else None
