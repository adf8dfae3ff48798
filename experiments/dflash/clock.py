"""Where the time of a step goes, without a synchronisation inside the step.

On the CPU the host's clock tells. On CUDA the host only queues work, so each phase is bracketed by two events in the
stream, which are read when the step has ended. A drafter has waited for its device by then, to read the loss; a
target waits for the last event, in its own thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import torch

if TYPE_CHECKING:
    from harness.run.events import StepTimer


class DeviceEvent(Protocol):
    """What ``torch.cuda.Event(enable_timing=True)`` can do."""

    def record(self) -> None: ...

    def synchronize(self) -> None: ...

    def elapsed_time(self, end_event: Any) -> float: ...


class PhaseClock:
    """Times the phases of one step on the clock that fits the device."""

    def __init__(
        self,
        timer: StepTimer,
        compile_seconds: Callable[[], float],
        new_event: Callable[[], DeviceEvent] | None,
    ) -> None:
        """``compile_seconds`` counts up; what it gains during a phase is compiling and not that phase.

        ``new_event`` is None for the host's clock.
        """
        self._timer = timer
        self._compile_seconds = compile_seconds
        self._new_event = new_event
        self._spans: list[tuple[str, DeviceEvent, DeviceEvent, float]] = []

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Everything queued or computed within belongs to phase ``name``. Phases do not nest."""
        if self._new_event is None:
            with self._timer.phase(name):
                yield
            return
        start, end = self._new_event(), self._new_event()
        compiled = self._compile_seconds()
        start.record()
        yield
        end.record()
        self._spans.append((name, start, end, self._compile_seconds() - compiled))

    def resolve(self) -> None:
        """Report the phases, once the device has passed the last of them; a second call adds nothing."""
        if self._spans:
            self._spans[-1][2].synchronize()  # events of one stream pass in order
        for name, start, end, compiled in self._spans:
            self._timer.add_phase(name, max(0.0, start.elapsed_time(end) / 1e3 - compiled))
        self._spans.clear()


def event_factory(device: torch.device) -> Callable[[], DeviceEvent] | None:
    """How to make events on ``device``; None where the host's clock is right."""
    if device.type != "cuda":
        return None
    return lambda: torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
