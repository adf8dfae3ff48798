"""The metric points that a run's files stand for. Pure: events and telemetry in, points out, no MLflow.

The points of a finished run depend on its files alone, in their order, and never on when or in how many pieces they
were read. So a mirror that was interrupted can start from the beginning and skip what it sent, and one that ran twice
sends the same points.

A role of several devices has the points of one: means over its devices, a throughput by the rule of the summary (rows:
tokens add up, the slowest device gives the seconds), and what its slowest device took.

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

from harness.records import Compile, Eval, Event, Step
from harness.rows import GrowingRows, Place, Row

DENSE = 1000
"""Steps that each have a point of their own."""

FIGURES = 3
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
    """The rows of one role between two points."""

    end: Place  # the last row that it stands for
    step: int = 0
    t: float = 0.0
    tokens: int = 0
    padding: int = 0
    rows: int = 0
    seconds: float = 0.0  # of the slowest device of each row
    devices: set[str] = field(default_factory=set)
    means: dict[str, _Mean] = field(default_factory=dict)

    def add(self, row: Row) -> None:
        self.rows += 1
        self.seconds += row.seconds
        for step in row.steps:
            self._add_step(step)

    def _add_step(self, event: Step) -> None:
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
        if self.tokens and self.seconds > 0:
            yield self._point("throughput/ktok_s", self.tokens / self.seconds / 1000)
        if self.padding:
            yield self._point("throughput/padding_percent", 100 * self.padding / (self.tokens + self.padding))
        for key, mean in self.means.items():
            yield self._point(key, mean.value)
        if len(self.devices) > 1:
            yield self._point("phase/slowest_step_ms", 1000 * self.seconds / self.rows)

    def _point(self, key: str, value: float) -> Point:
        return Point(key, value, self.t, self.step)


class _Role:
    """The steps of one role as they come, and the window that its whole rows are in."""

    def __init__(self) -> None:
        self._rows = GrowingRows()
        self._window: _Window | None = None

    def add(self, step: Step) -> Iterator[_Window]:
        """The windows that ``step`` completes."""
        for row in self._rows.add(step):
            yield from self._take(row)
        if self._window is not None and self._rows.reached > self._window.end:
            yield from self._leave()

    def close(self) -> Iterator[_Window]:
        """The windows that are left when nothing more comes."""
        for row in self._rows.close():
            yield from self._take(row)
        yield from self._leave()

    def _take(self, row: Row) -> Iterator[_Window]:
        again, number = row.place
        end = again, bucket(number)
        if self._window is not None and self._window.end != end:
            yield from self._leave()
        if self._window is None:
            self._window = _Window(end)
        self._window.add(row)

    def _leave(self) -> Iterator[_Window]:
        if self._window is not None:
            yield self._window
        self._window = None


class EventPoints:
    """Turns the events of one run, in the order of its file, into points."""

    def __init__(self) -> None:
        self._roles: dict[str, _Role] = {}
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
        for name, role in self._roles.items():
            for window in role.close():
                yield from self._named(name, window)

    def _step(self, event: Step) -> list[Point]:
        if self._counting is None and event.tokens:
            self._counting = event.role
        self.last_step = max(self.last_step, event.step)
        role = self._roles.get(event.role)
        if role is None:
            role = self._roles[event.role] = _Role()
        return [point for window in role.add(event) for point in self._named(event.role, window)]

    def _named(self, role: str, window: _Window) -> Iterator[Point]:
        if role == self._counting:
            yield from window.points()
        else:
            yield from (point._replace(key=f"{role}/{point.key.replace('/', '_')}") for point in window.points())


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
