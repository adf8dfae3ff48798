"""The metric points that a run's files stand for. Pure: events and telemetry in, points out, no MLflow.

The points of a finished run depend on its files alone, in their order, and never on when or in how many pieces they
were read. So a mirror that was interrupted can start from the beginning and skip what it sent, and one that ran twice
sends the same points.

Thinning. Steps 1 to 1,000 each give a point. Beyond that each doubling of the step number gives 500 points:
every 2nd step up to 2,000, every 4th up to 4,000, and so on, about 6,000 for a million steps. Nothing is dropped: a
point stands for all the steps since the point before it (tokens over seconds, mean seconds of a phase, mean loss).
Telemetry samples are thinned in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from harness import figures
from harness.records import CacheState, Compile, Eval, Event, Step, Summary

DENSE = 1000
"""Steps that each have a point of their own."""

FIGURES = 2
"""Raised when a finished run has points that it did not have before: a mirror of fewer is not complete."""

COMPARED = ("before", "after", "step")
"""Evaluations of the thing that is trained; any other name is a baseline."""


class Point(NamedTuple):
    """One value of one metric. ``t``: seconds since the run began."""

    key: str
    value: float
    t: float
    step: int


def bucket(number: int) -> int:
    """The step whose point also stands for step ``number`` (from 1): ``number`` itself up to ``DENSE``."""
    stride = 1 << ((number - 1) // DENSE).bit_length()
    return -(-number // stride) * stride


@dataclass
class _Mean:
    total: float = 0.0
    count: int = 0

    def add(self, value: float | None) -> None:
        self.total += math.nan if value is None else value  # JSON has no NaN: events.jsonl has null for it
        self.count += 1

    @property
    def value(self) -> float:
        return self.total / self.count


@dataclass
class _Window:
    """The steps of one role between two points, over all of its devices."""

    bucket: int
    step: int = 0
    t: float = 0.0
    tokens: int = 0
    padding: int = 0
    devices: set[str] = field(default_factory=set)
    means: dict[str, _Mean] = field(default_factory=dict)

    def add(self, event: Step) -> None:
        self.step, self.t = max(self.step, event.step), max(self.t, event.t)
        self.tokens += event.tokens
        self.padding += event.padding
        self.devices.add(event.device)
        self._add("phase/step_ms", 1000 * event.seconds)
        for name, seconds in event.phases.items():
            self._add(f"phase/{name}_ms", 1000 * seconds)
        for name, value in event.metrics.items():
            self._add(name, value)

    def _add(self, key: str, value: float | None) -> None:
        mean = self.means.get(key)
        if mean is None:
            mean = self.means[key] = _Mean()
        mean.add(value)

    def points(self) -> Iterator[Point]:
        step = self.means["phase/step_ms"]
        seconds = step.total / 1000 / len(self.devices)  # the devices of a role work side by side
        if self.tokens and seconds > 0:
            yield self._point("throughput/ktok_s", self.tokens / seconds / 1000)
        if self.padding:
            yield self._point("throughput/padding_percent", 100 * self.padding / (self.tokens + self.padding))
        for key, mean in self.means.items():
            yield self._point(key, mean.value)

    def _point(self, key: str, value: float) -> Point:
        return Point(key, value, self.t, self.step)


class EventPoints:
    """Turns the events of one run, in the order of its file, into points."""

    def __init__(self) -> None:
        self._windows: dict[str, _Window] = {}
        self._counting: str | None = None  # the role that consumes the tokens: its metrics have no prefix
        self._compile_s = 0.0
        self.last_step = 0
        self.last_t = 0.0

    def feed(self, event: Event) -> Iterable[Point]:
        """The points that ``event`` completes."""
        self.last_t = max(self.last_t, event.t)
        if isinstance(event, Step):
            return self._step(event)
        if isinstance(event, Eval):
            return eval_points(event, self.last_step)
        if isinstance(event, Compile):
            self._compile_s += event.seconds
            return [Point("compile/seconds", self._compile_s, event.t, event.step or self.last_step)]
        return ()

    def close(self) -> Iterator[Point]:
        """The points of the steps since the last whole window; call it once, after the last event."""
        for role in list(self._windows):
            yield from self._emit(role)

    def _step(self, event: Step) -> list[Point]:
        if self._counting is None and event.tokens:
            self._counting = event.role
        self.last_step = max(self.last_step, event.step)
        window = self._windows.get(event.role)
        done: list[Point] = []
        if window is not None and event.step > window.bucket:
            done = list(self._emit(event.role))
            window = None
        if window is None:
            window = self._windows[event.role] = _Window(bucket(event.step))
        window.add(event)
        return done

    def _emit(self, role: str) -> Iterator[Point]:
        points = self._windows.pop(role).points()
        if role == self._counting:
            yield from points
        else:
            yield from (point._replace(key=f"{role}/{point.key.replace('/', '_')}") for point in points)


def eval_points(event: Eval, last_step: int) -> list[Point]:
    """Points of one evaluation: a line from before to after in ``accept_length``, a point for each baseline."""
    compared = event.name in COMPARED
    step = event.step or (last_step if event.name == "after" else 0)
    named = {(_eval_key(event.name, metric, compared)): value for metric, value in event.metrics.items()}
    if compared and event.lossless is not None:
        named["eval/lossless"] = float(event.lossless)
    return [Point(key, math.nan if value is None else float(value), event.t, step) for key, value in named.items()]


def _eval_key(name: str, metric: str, compared: bool) -> str:
    if compared:
        return metric if metric == "accept_length" else f"eval/{metric}"
    return f"baseline/{name}" if metric == "accept_length" else f"baseline/{name}_{metric}"


class TelemetryPoints:
    """Turns telemetry samples into points ``system/NAME``: one slash, and MLflow has a section and a page for them."""

    def __init__(self) -> None:
        self._seen = 0
        self._t = 0.0
        self._means: dict[str, _Mean] = {}

    def feed(self, sample: Mapping[str, Any]) -> list[Point]:
        self._seen += 1
        self._t = float(sample["t"])
        for key, value in _numbers("system/", sample):
            self._means.setdefault(key, _Mean()).add(value)
        return self.close() if bucket(self._seen) == self._seen else []

    def close(self) -> list[Point]:
        """The samples since the last point. Their step is the second of the run, so that the axis reads as time."""
        points = [Point(key, mean.value, self._t, round(self._t)) for key, mean in self._means.items()]
        self._means = {}
        return points


def _numbers(prefix: str, sample: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """``system/cpu_use_pct``, ``system/gpu0_clock_sm_mhz``: the numbers of a sample, however deep; bytes as MB."""
    for name, value in sample.items():
        if name in ("t", "schema", "index"):
            continue
        if isinstance(value, int | float) and "bytes" in name:
            yield f"{prefix}{name.replace('bytes', 'mb')}", value / 1e6
        elif isinstance(value, int | float):
            yield f"{prefix}{name}", float(value)
        elif name == "throttle" and value is not None:
            yield f"{prefix}throttled", float(bool(value))
        elif isinstance(value, Mapping):
            yield from _numbers(f"{prefix}{name}_", value)
        elif isinstance(value, list):
            for index, item in enumerate(value):
                if isinstance(item, Mapping):
                    yield from _numbers(f"{prefix}{name.removesuffix('s')}{index}_", item)


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
    return [Point(key, value, t, step) for key, value in (named | _costs(summary)).items() if value is not None]


def _costs(summary: Summary) -> dict[str, float]:
    """What a useful Ktok cost in steady state, by phase: the rows of ``explain``'s table, for the compare view.

    They sum to ``all``, which is one over the throughput. Last of all points, so that a mirror made before they were
    there goes on where it stopped. The share of padding is the whole run's.
    """
    if summary.throughput_tok_s is None or not summary.tokens:
        return {}
    useful = summary.throughput_tok_s.value * sum(summary.phases.values())
    costs = figures.costs(summary.phases, useful, useful * summary.padding / summary.tokens)
    name = figures.cost_unit("tokens")[0]
    spelled = {"unaccounted" if phase == "other" else phase: value for phase, value in costs.items()}
    return {f"steady/{name}: {phase}": value for phase, value in (spelled | {"all": sum(costs.values())}).items()}


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


INDUCTOR = ("fxgraph", "aotautograd", "inductor")
"""Kinds of entry in a cache root that are inductor's."""


def _kilo(value: float | None) -> float | None:
    return None if value is None else value / 1000
