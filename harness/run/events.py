"""What a training process imports to say what happens in it. Standard library only.

    record = Recorder.from_environment()
    config = record.config(ToyConfig)
    record.started(total_steps=config.steps)
    with record.step(1, role="drafter", device="cuda:5") as step:
        with step.phase("data"):
            batch = next(batches)
        step.count(tokens=batch.tokens, padding=batch.padding)
        step.metrics(loss=loss)
    record.finished()

Each event is one JSON object on one line of ``events.jsonl``, written by one ``write`` to a descriptor opened for
appending: threads and processes may share the file, and a kill tears at most the last line.
"""

from __future__ import annotations

import functools
import json
import math
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from harness.config import unflatten
from harness.records import (
    PHASES,
    Checkpoint,
    Compile,
    Eval,
    Event,
    Finished,
    Note,
    Started,
    Step,
    Value,
    event_to_json,
)

C = TypeVar("C")

_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode
_PHASES = frozenset(PHASES)


class Recorder:
    """Writes the events of one run. Threads may share it. Without a folder, events go nowhere."""

    def __init__(self, folder: Path | None, t0: float) -> None:
        """``t0`` is the ``time.monotonic()`` reading at the start of the run."""
        self.folder = folder
        self._t0 = t0
        self._lock = threading.Lock()
        self._file = -1
        if folder is not None:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._file = os.open(folder / "events.jsonl", flags, 0o644)

    @classmethod
    def from_environment(cls) -> Recorder:
        """The recorder of the run that started this process; one that writes nowhere if no run did."""
        run = os.environ.get("HARNESS_RUN")
        t0 = os.environ.get("HARNESS_T0")
        return cls(Path(run) if run else None, float(t0) if t0 else time.monotonic())

    def now(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._t0

    def config(self, cls: type[C]) -> C:
        """The settings that this run was asked for; the defaults of ``cls`` if no run was.

        Raises UsageError where ``spec.json`` and ``cls`` do not agree on what settings there are.
        """
        if self.folder is None:
            return cls()
        spec = json.loads((self.folder / "spec.json").read_text("utf-8"))
        return unflatten(cls, spec["config"])

    def write(self, event: Event) -> None:
        """Append ``event``. Raises OSError where the disk refuses: a run that cannot be recorded must not go on."""
        if self._file < 0:
            return
        line = (_to_line(event) + "\n").encode()
        with self._lock:
            written = os.write(self._file, line)
            while written < len(line):  # a nearly full disk takes a part; the next call says why
                written += os.write(self._file, line[written:])

    def started(self, total_steps: int | None = None, facts: Mapping[str, Value] | None = None) -> None:
        """Say once that this process is alive, and what it will compute: ``{"workload.data.digest": ...}``."""
        self.write(Started(self.now(), os.getpid(), total_steps, facts or {}))

    def compile(
        self,
        name: str,
        seconds: float,
        step: int = 0,
        hits: int = 0,
        misses: int = 0,
        bypasses: int = 0,
        reason: str = "",
    ) -> None:
        """A compilation of ``seconds`` that ended now, with the cache counters since the one before it."""
        self.write(Compile(self.now(), name, seconds, step, hits, misses, bypasses, reason))

    def eval(
        self,
        name: str,
        metrics: Mapping[str, float],
        lossless: bool | None = None,
        step: int = 0,
        seconds: float = 0.0,
    ) -> None:
        """The figures of one evaluation. ``lossless``: whether decoding gave the target's own greedy output."""
        self.write(Eval(self.now(), name, _floats(metrics), lossless, step, seconds))

    def checkpoint(self, path: str | Path, step: int = 0) -> None:
        """A file worth keeping was written."""
        self.write(Checkpoint(self.now(), str(path), step))

    def note(self, text: str, level: str = "info") -> None:
        """Something that a person should know. ``level`` is "info" or "warning"."""
        self.write(Note(self.now(), text, level))

    def finished(self, ok: bool = True, reason: str = "") -> None:
        """The run came to its own end; ``ok`` False where it judges itself a failure, for ``reason``."""
        self.write(Finished(self.now(), ok, reason))

    def step(self, number: int, role: str = "drafter", device: str = "cpu") -> StepTimer:
        """A context manager that times optimizer step ``number`` (from 1) and writes it at its end."""
        return StepTimer(self, number, role, device)


class StepTimer:
    """Times one step and its phases on the host's clock. One thread uses it: the one that takes the step."""

    def __init__(self, recorder: Recorder, number: int, role: str, device: str) -> None:
        self._recorder = recorder
        self._number = number
        self._role = role
        self._device = device
        self._phases: dict[str, float] = {}
        self._metrics: dict[str, float] = {}
        self._open: list[_Phase] = []
        self._tokens = 0
        self._padding = 0
        self._start = 0.0

    def phase(self, name: str) -> _Phase:
        """A context manager that times a phase. A phase inside a phase is taken out of the outer one."""
        if name not in _PHASES:
            raise ValueError(f"no phase is called {name!r}: the phases are {', '.join(PHASES)}")
        return _Phase(self, name)

    def add_phase(self, name: str, seconds: float) -> None:
        """Seconds of a phase that something else measured, such as a pair of CUDA events.

        Inside an open phase they are taken out of it, as seconds of compiling are out of a forward pass.
        """
        if name not in _PHASES or not 0 <= seconds < math.inf:
            raise ValueError(f"a phase is one of {', '.join(PHASES)} and takes time, not {name!r} of {seconds} s")
        self._phases[name] = self._phases.get(name, 0.0) + seconds
        if self._open:
            self._open[-1].inner += seconds

    def count(self, tokens: int, padding: int = 0) -> None:
        """Add to this step's non-padding tokens of training sequences, and to the padding computed beside them."""
        self._tokens += int(tokens)
        self._padding += int(padding)

    def metrics(self, **values: float) -> None:
        """Figures of this step, such as ``loss``. A tensor on a device is read, which waits for the device."""
        self._metrics.update(_floats(values))

    def __enter__(self) -> StepTimer:
        self._start = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            return  # a step that raised was not taken
        seconds = time.perf_counter() - self._start
        step = Step(
            self._recorder.now(),
            self._number,
            self._role,
            self._device,
            seconds,
            self._tokens,
            self._padding,
            complete(self._phases, seconds),
            self._metrics,
        )
        self._recorder.write(step)


class _Phase:
    """One stretch of a phase; ``inner`` seconds of it belong to phases inside it."""

    __slots__ = ("_name", "_start", "_step", "inner")

    def __init__(self, step: StepTimer, name: str) -> None:
        self._step = step
        self._name = name
        self._start = 0.0
        self.inner = 0.0

    def __enter__(self) -> None:
        self._step._open.append(self)
        self._start = time.perf_counter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        seconds = time.perf_counter() - self._start
        step = self._step
        step._open.pop()
        step._phases[self._name] = step._phases.get(self._name, 0.0) + max(0.0, seconds - self.inner)
        if step._open:
            step._open[-1].inner += seconds


def complete(phases: Mapping[str, float], seconds: float) -> dict[str, float]:
    """``phases`` and "other", which sum to ``seconds``.

    Phases measured on another clock can exceed the step by a little: then they are scaled to fit, none is dropped.
    """
    total = sum(phases.values())
    if total > seconds:
        return {"other": 0.0, **{name: value * (seconds / total) for name, value in phases.items()}}
    return {**phases, "other": phases.get("other", 0.0) + (seconds - total)}


def _floats(values: Mapping[str, float]) -> dict[str, float]:
    """Plain floats, whatever number type the caller has: a NumPy scalar or a tensor of one element is no JSON."""
    return {name: float(value) for name, value in values.items()}


def _to_line(event: Event) -> str:
    try:
        return _step_line(event) if isinstance(event, Step) else _encode(event_to_json(event))
    except ValueError:  # JSON has no NaN; a reader takes null for one
        return _encode({key: _finite(value) for key, value in event_to_json(event).items()})


def _step_line(step: Step) -> str:
    """What ``_encode`` would say, in half the time: steps are nearly all of the events. Times are to the nanosecond."""
    if not math.isfinite(step.seconds + sum(step.phases.values()) + sum(step.metrics.values())):
        raise ValueError("not JSON")
    phases = ",".join([f"{_quote(name)}:{value:.9f}" for name, value in step.phases.items()])
    metrics = ",".join([f"{_quote(name)}:{value!r}" for name, value in step.metrics.items()])
    return (
        f'{{"kind":"step","t":{step.t:.9f},"step":{step.step},"role":{_quote(step.role)},'
        f'"device":{_quote(step.device)},"seconds":{step.seconds:.9f},"tokens":{step.tokens},'
        f'"padding":{step.padding},"phases":{{{phases}}},"metrics":{{{metrics}}}}}'
    )


@functools.cache
def _quote(text: str) -> str:
    return _encode(text)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
