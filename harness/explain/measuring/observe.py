"""What a run's series, events and logs show, as flat facts "observed.*": rules join them with recorded ones.

Everything is robust (medians and shares over the steady time) and None is never a fact: what was not seen is absent.

    padding_share, tokens_per_step (useful), devices    of the role that counts tokens
    cache_start, cache.hits, .misses, .bypasses, compile_s, recompiles and compile_share (of the steady time)
    evals_per_1000_steps, eval_s, checkpoints_per_1000_steps, between_steps_share (of the steady time in no step)
    dense_fallback, recompile_limit, nccl_fallback, cudnn_fallback (said in a log), alloc_retries
    patch.files (that the run's patch touches)
    and how the machine was meanwhile: gauges.py
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from harness.evidence import Evidence, Steps
from harness.explain.measuring.gauges import Span, gauges
from harness.explain.measuring.spent import covered
from harness.records import Value
from harness.rows import OVERLAP_S
from harness.steady import Mask, counting_role

__all__ = ["Span", "observe"]


@dataclass(frozen=True)
class _Signs:
    said: Mapping[str, re.Pattern[str]]
    counted: Mapping[str, re.Pattern[str]]


@cache
def _signs() -> _Signs:
    data = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    said, counted = (
        {e["name"]: re.compile("|".join(e["patterns"]), re.IGNORECASE) for e in data[kind]}
        for kind in ("said", "counted")
    )
    return _Signs(said, counted)


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
    found |= gauges(evidence, span) | _of_lines(evidence)
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
    ordered = np.sort(steps.step[inside])  # np.unique hashes, which takes a second of a million steps
    numbers = int(np.count_nonzero(np.diff(ordered))) + (len(ordered) > 0)
    return {
        "padding_share": padding / (tokens + padding) if tokens + padding else None,
        "tokens_per_step": tokens / numbers if numbers and tokens else None,
        "devices": int(np.count_nonzero(np.bincount(steps.device))),
    }


def _of_breaks(evidence: Evidence, steps: Steps, span: Span) -> dict[str, Value | None]:
    """What training was interrupted for: counts for each 1,000 steps between the first step and the last."""
    first, last = float(steps.t.min()), float(steps.t.max())
    thousand = int(steps.step.max() - steps.step.min()) / 1000
    evals = [e for e in evidence.evals if first <= e.t <= last]
    saved = [c for c in evidence.checkpoints if first <= c.t <= last]
    inside = _of_one(steps, span)
    length, within = span[1] - span[0], float(steps.seconds[inside].sum())
    return {
        "evals_per_1000_steps": len(evals) / thousand if thousand else None,
        "eval_s": float(np.median([e.seconds for e in evals])) if evals else None,
        "checkpoints_per_1000_steps": len(saved) / thousand if thousand else None,
        "between_steps_share": _share(length - within, length) if length > 0 and inside.any() else None,
    }


def _of_compiling(evidence: Evidence, steps: Steps | None, span: Span) -> dict[str, Value | None]:
    compiles = evidence.compiles
    found: dict[str, Value | None] = {"cache_start": _cache_start(evidence)}
    if compiles:
        found |= {f"cache.{name}": sum(getattr(c, name) for c in compiles) for name in ("hits", "misses", "bypasses")}
    early = sum(c.seconds for c in compiles if c.t <= span[0])
    if steps is not None and len(steps) and not early and "compile" in steps.phases:
        early = float(steps.phases["compile"][steps.t <= span[0]].sum())
    if compiles or early or evidence.started_t is not None:  # a child that tells of itself tells of compiling too
        found["compile_s"] = early
    if steps is not None and len(steps):
        found["recompiles"] = sum(c.t > span[0] and c.seconds > OVERLAP_S for c in compiles)
        found["compile_share"] = _compiling(evidence, steps, span)
    return found


def _compiling(evidence: Evidence, steps: Steps, span: Span) -> float | None:
    """Of the span's time, what went into compiling: in the steps that are left out for it too."""
    length = span[1] - span[0]
    if length <= 0 or not (evidence.compiles or "compile" in steps.phases):
        return None
    told = covered([(c.t - c.seconds, c.t) for c in evidence.compiles], *span)
    if "compile" in steps.phases:
        told = max(told, float(steps.phases["compile"][_of_one(steps, span)].sum()))
    return _share(told, length)


def _of_one(steps: Steps, span: Span) -> Mask:
    """The steps of one device that ended in the span."""
    inside: Mask = (steps.device == steps.device[0]) & (steps.t > span[0]) & (steps.t <= span[1])
    return inside


def _share(part: float, whole: float) -> float:
    """From 0 to 1, without the dust of sums of floats."""
    return round(min(1.0, max(0.0, part / whole)), 6)


def _cache_start(evidence: Evidence) -> Value:
    """As the summary judged it by hits and misses; else as the fingerprint saw it."""
    judged = evidence.run.result.summary.cache_start
    return evidence.facts.get("state.cache.start") if judged == "unknown" else judged


# --- lines -----------------------------------------------------------------------------------------------


def _of_lines(evidence: Evidence) -> dict[str, Value | None]:
    """What notes and logs say. Where there is no line, only a run that told of itself shows that nothing was said."""
    lines = [*(note.text for note in evidence.notes), *evidence.stdout, *evidence.stderr]
    used = evidence.facts.get("execution.attention.used")
    if not lines and used is None and evidence.started_t is None:
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
    """The files that a patch touches; None without a patch."""
    names = re.findall(r"^\+\+\+ b/(.+)$|^--- a/(.+)$", patch, re.MULTILINE)
    return ", ".join(sorted({a or b for a, b in names})) or None
