"""The points of a run that has ended: its figures, and what the compile caches held. Pure, as all points are.

They come after the points of its events, and new ones last, so that a mirror made before there were those goes on
where it stopped.
"""

from __future__ import annotations

from harness import figures
from harness.mirror.points import Point
from harness.records import CacheState, Summary

INDUCTOR = ("fxgraph", "aotautograd", "inductor")
"""Kinds of entry in a cache root that are inductor's."""


def summary_points(summary: Summary, t: float, step: int) -> list[Point]:
    """The figures of the whole run, once, at its end: what a table of runs is sorted by."""
    throughput = summary.throughput_tok_s
    named: dict[str, float | None] = {
        "throughput/steady_ktok_s": _kilo(throughput.value if throughput else None),
        "throughput/steady_low_ktok_s": _kilo(throughput.low if throughput else None),
        "throughput/steady_high_ktok_s": _kilo(throughput.high if throughput else None),
        "throughput/whole_run_ktok_s": _kilo(summary.whole_run_tok_s),
        "time/first_step_s": summary.first_step_s,
        "time/compile_s": summary.compile_s,
        "cache/hits": float(summary.cache_hits),
        "cache/misses": float(summary.cache_misses),
    }
    known = named | _costs(summary) | _waits(summary)
    return [Point(key, value, t, step) for key, value in known.items() if value is not None]


def _costs(summary: Summary) -> dict[str, float]:
    """What a useful Ktok cost in steady state, by phase: the rows of ``explain``'s table, for the compare view.

    They sum to ``all``, which is one over the throughput. The share of padding is the whole run's.
    """
    if summary.throughput_tok_s is None or not summary.tokens:
        return {}
    useful = summary.throughput_tok_s.value * sum(summary.phases.values())
    costs = figures.costs(summary.phases, useful, useful * summary.padding / summary.tokens)
    name = figures.cost_unit("tokens")[0]
    spelled = {"unaccounted" if phase == "other" else phase: value for phase, value in costs.items()}
    return {f"steady/{name}: {phase}": value for phase, value in (spelled | {"all": sum(costs.values())}).items()}


def _waits(summary: Summary) -> dict[str, float]:
    """``wait/ROLE``: the share of the steady time that a role waited for another; none where there is one alone."""
    return {f"wait/{role}": share for role, share in summary.waits.items()} if len(summary.waits) > 1 else {}


def cache_points(state: CacheState | None, t: float, step: int) -> list[Point]:
    """What the compile caches held at ``t``, in MB: in all, inductor's and Triton's."""
    if state is None:
        return []
    megabytes = {"total": state.bytes / 1e6, "inductor": 0.0, "triton": 0.0}  # an empty cache is a point too
    for kind, held in state.by_kind.items():
        name = "triton" if "triton" in kind else "inductor" if kind in INDUCTOR else kind
        megabytes[name] = megabytes.get(name, 0.0) + held["bytes"] / 1e6
    points = [Point(f"cache/{name}_mb", value, t, step) for name, value in megabytes.items()]
    return [*points, Point("cache/entries", float(state.entries), t, step)]


def _kilo(value: float | None) -> float | None:
    return None if value is None else value / 1000
