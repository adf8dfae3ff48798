"""What a run's series, events and logs show, as flat facts "observed.*": rules join them with recorded ones.

Everything is robust (medians and shares over the steady time) and None is never a fact: what was not seen is absent.

    padding_share, tokens_per_step (useful), devices    of the role that counts tokens
    cache_start, cache.hits, .misses, .bypasses, compile_s, recompiles (in steady time)
    gpu.clock_mhz (median card), gpu.clock_min_mhz (slowest card), gpu.throttled_share (worst card),
    gpu.throttle_reason, gpu.power_w, gpu.temperature, gpu.use_pct, gpu.memory_used_bytes,
    gpu.others_bytes (held before the run began)
    cpu.others_pct, cpu.run_pct (of one core), cpu.throttled (share of the time at its quota)
    memory.available_bytes (least), memory.swap_bytes, memory.run_bytes, disk_read_bytes_s, disk_write_bytes_s
    evals_per_1000_steps, eval_s, checkpoints_per_1000_steps, between_steps_share (of the steady time in no step)
    dense_fallback, recompile_limit, nccl_fallback, cudnn_fallback (said in a log), alloc_retries
    patch.files (that the run's patch touches)
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from harness.evidence import Evidence, Floats, Series, Steps
from harness.records import Value
from harness.steady import OVERLAP_S, counting_role

BUSY_PCT = 10.0
"""Use of a card, in per cent, below which it had no part in the run."""

AT_QUOTA = 0.95
"""Of its quota of processor time, from where on a run is held back by it."""

EARLY_S = 5.0
"""Seconds from the start of a run in which what a card holds is somebody else's."""

MOST_FILES = 12

Span = tuple[float, float]
"""Seconds since the run began."""


@dataclass(frozen=True)
class _Signs:
    said: Mapping[str, re.Pattern[str]]
    counted: Mapping[str, re.Pattern[str]]
    throttling: Mapping[str, str]


@cache
def _signs() -> _Signs:
    data = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    said, counted = (
        {e["name"]: re.compile("|".join(e["patterns"]), re.IGNORECASE) for e in data[kind]}
        for kind in ("said", "counted")
    )
    return _Signs(said, counted, data["throttling"])


def observe(evidence: Evidence, role: str = "", span: Span | None = None) -> dict[str, Value]:
    """The observed facts of one run.

    role  that counts tokens; the one with most of them where it is not given
    span  the steady time; from the end of the first step to the end of the last where it is not given
    """
    steps = evidence.steps.get(role or counting_role(evidence.steps) or "")
    span = span or _whole(steps, evidence)
    found: dict[str, Value | None] = {}
    if steps is not None and len(steps):
        found |= _of_steps(steps, span) | _of_breaks(evidence, steps, span)
    found |= _of_compiling(evidence, steps, span)
    found |= _of_gpus(evidence, span) | _of_machine(evidence, span) | _of_lines(evidence)
    found["patch.files"] = _patched(evidence.patch)
    return {f"observed.{name}": value for name, value in sorted(found.items()) if value is not None}


# --- steps and events ------------------------------------------------------------------------------------


def _whole(steps: Steps | None, evidence: Evidence) -> Span:
    if steps is None or not len(steps):
        return (evidence.started_t or 0.0, evidence.end)
    return (float(steps.t[0]), float(steps.t[-1]))


def _of_steps(steps: Steps, span: Span) -> dict[str, Value | None]:
    inside = (steps.t >= span[0]) & (steps.t <= span[1])
    tokens, padding = int(steps.tokens[inside].sum()), int(steps.padding[inside].sum())
    numbers = len(np.unique(steps.step[inside]))
    return {
        "padding_share": padding / (tokens + padding) if tokens + padding else None,
        "tokens_per_step": tokens / numbers if numbers and tokens else None,
        "devices": len(np.unique(steps.device)),
    }


def _of_breaks(evidence: Evidence, steps: Steps, span: Span) -> dict[str, Value | None]:
    """What training was interrupted for: counts for each 1,000 steps between the first step and the last."""
    first, last = float(steps.t.min()), float(steps.t.max())
    thousand = int(steps.step.max() - steps.step.min()) / 1000
    evals = [e for e in evidence.evals if first <= e.t <= last]
    saved = [c for c in evidence.checkpoints if first <= c.t <= last]
    one = steps.device == steps.device[0]
    inside = one & (steps.t > span[0]) & (steps.t <= span[1])
    length, within = span[1] - span[0], float(steps.seconds[inside].sum())
    return {
        "evals_per_1000_steps": len(evals) / thousand if thousand else None,
        "eval_s": float(np.median([e.seconds for e in evals])) if evals else None,
        "checkpoints_per_1000_steps": len(saved) / thousand if thousand else None,
        "between_steps_share": max(0.0, 1 - within / length) if length > 0 and inside.any() else None,
    }


def _of_compiling(evidence: Evidence, steps: Steps | None, span: Span) -> dict[str, Value | None]:
    compiles = evidence.compiles
    found: dict[str, Value | None] = {"cache_start": _cache_start(evidence)}
    if compiles:
        found |= {f"cache.{name}": sum(getattr(c, name) for c in compiles) for name in ("hits", "misses", "bypasses")}
    early = sum(c.seconds for c in compiles if c.t <= span[0])
    if steps is not None and len(steps) and not early and "compile" in steps.phases:
        early = float(steps.phases["compile"][steps.t <= span[0]].sum())
    if compiles or early:
        found["compile_s"] = early
    if steps is not None and len(steps):
        found["recompiles"] = sum(c.t > span[0] and c.seconds > OVERLAP_S for c in compiles)
    return found


def _cache_start(evidence: Evidence) -> Value:
    """As the summary judged it by hits and misses; else as the fingerprint saw it."""
    judged = evidence.run.result.summary.cache_start
    return evidence.facts.get("state.cache.start") if judged == "unknown" else judged


# --- telemetry -------------------------------------------------------------------------------------------


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
        held = [values for reason, values in by_reason.items() if reason in _signs().throttling]
        share = float(np.mean(np.any([v > 0 for v in held], axis=0))) if held else 0.0
        worst = max(worst or 0.0, share)
        for reason, values in by_reason.items():
            if reason in _signs().throttling:
                why[_signs().throttling[reason]] += int((values > 0).sum())
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


def _others_pct(evidence: Evidence, span: Span) -> float | None:
    """What all but the run took of the processors, in per cent of one core. The machine's use is of all its cores."""
    machine, run = evidence.telemetry.get("cpu.use_pct"), evidence.telemetry.get("run.cpu_pct")
    cores = evidence.facts.get("environment.cpu.count")
    if machine is None or run is None or not isinstance(cores, int | float) or len(machine.t) != len(run.t):
        return None
    others = np.maximum(0.0, machine.values * float(cores) - run.values)
    inside = _inside(Series(machine.t, others), span)
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


# --- lines -----------------------------------------------------------------------------------------------


def _of_lines(evidence: Evidence) -> dict[str, Value | None]:
    """What notes and logs say. Without any line nothing was said, and that is no answer."""
    lines = [*(note.text for note in evidence.notes), *evidence.stdout, *evidence.stderr]
    used = evidence.facts.get("execution.attention.used")
    if not lines and used is None:
        return {}
    found: dict[str, Value | None] = {
        name: any(pattern.search(line) for line in lines) for name, pattern in _signs().said.items()
    }
    found |= {name: sum(bool(p.search(line)) for line in lines) for name, p in _signs().counted.items()}
    found["dense_fallback"] = bool(found["dense_fallback"]) or str(used) in ("dense", "math", "eager")
    return found | dict(_counters(evidence))


def _counters(evidence: Evidence) -> Iterator[tuple[str, Value]]:
    """Counters that telemetry carries outdo what lines let one count."""
    totals = [s.values for name, s in evidence.telemetry.items() if name.endswith("alloc_retries") and s.values.size]
    if totals:
        yield "alloc_retries", int(sum(float(np.nanmax(v) - np.nanmin(v)) for v in totals))


def _patched(patch: str) -> str | None:
    """The files that a patch touches, the first of them; None without a patch."""
    names = list(dict.fromkeys(re.findall(r"^\+\+\+ b/(.+)$|^--- a/(.+)$", patch, re.MULTILINE)))
    files = sorted({a or b for a, b in names})
    more = f" and {len(files) - MOST_FILES} more" if len(files) > MOST_FILES else ""
    return ", ".join(files[:MOST_FILES]) + more if files else None
