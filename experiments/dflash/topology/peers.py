"""Talking to the other ranks, and keeping for them what this one cannot record itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from harness.records import Event, Step
from harness.run.events import Recorder


class PeerLost(Exception):
    """Another rank could not be reached: it has ended, and why is for it to say."""


@contextmanager
def talking() -> Iterator[None]:
    """Every call of torch.distributed goes in here: what it raises follows from another rank's end.

    gloo raises a bare RuntimeError, and so a context is the only way to tell.
    """
    try:
        yield
    except RuntimeError as error:
        raise PeerLost(str(error).strip().splitlines()[0]) from error


class KeptRecorder(Recorder):
    """Keeps the events of a rank on a machine where there is no run folder, for rank 0 to record at the end."""

    def __init__(self, t0: float) -> None:
        super().__init__(None, t0)
        self.kept: list[Event] = []

    def write(self, event: Event) -> None:
        """Remember ``event``."""
        self.kept.append(event)

    def seen_from(self, leader: float, machine: int) -> list[Event]:
        """What was kept, on a clock that is ``leader`` seconds ahead, with devices that name the machine, from 1."""
        moved = [replace(event, t=event.t + leader) for event in self.kept]
        return [replace(e, device=f"{e.device}@{machine}") if isinstance(e, Step) else e for e in moved]
