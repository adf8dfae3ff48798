"""The sum over the drafters of one process, each of which is a thread with a buffer on a device of its own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from experiments.dflash.step import Reduce
from experiments.dflash.topology.channel import WaitingRoom


class Meeting:
    """A barrier that can be used again and again, also for what was queued on CUDA devices: what one queues after it
    waits, on the device, for what the others queued before it."""

    def __init__(self, room: WaitingRoom, names: Sequence[str]) -> None:
        self._room = room
        self._names = names
        self._times = [0] * len(names)  # that each has come
        self._marks: list[torch.cuda.Event | None] = [None] * len(names)

    def meet(self, index: int, device: torch.device) -> None:
        """Wait until all have come as often as number ``index``, whose work is on ``device``."""
        with self._room.entered():
            self._marks[index] = _mark(device)
            self._times[index] += 1
            times = self._times[index]
            self._room.changed.notify_all()
            self._room.wait(lambda: min(self._times) >= times, self._names[index], lambda: self._late(times))
        for mark in self._marks:
            if mark is not None:
                torch.cuda.current_stream(device).wait_event(mark)

    def _late(self, times: int) -> str:
        return " and ".join(name for name, came in zip(self._names, self._times, strict=True) if came < times)


class ThreadSum:
    """Sums the drafters' buffers, each drafter a slice of all of them, from the first drafter to the last: the same
    bits in every buffer, whoever comes first. Between GPUs the slices travel as peer copies."""

    def __init__(self, room: WaitingRoom, names: Sequence[str]) -> None:
        self._handed_in = Meeting(room, names)  # two meetings: the marks of one outlast the other
        self._summed = Meeting(room, names)
        self._buffers: list[Tensor | None] = [None] * len(names)

    def of(self, index: int) -> Reduce:
        """The sum as drafter number ``index`` takes part in it."""
        return partial(self._reduce, index)

    def _reduce(self, index: int, buffer: Tensor) -> None:
        self._buffers[index] = buffer
        self._handed_in.meet(index, buffer.device)
        self._sum_slice(index, buffer)
        self._summed.meet(index, buffer.device)

    def _sum_slice(self, index: int, own: Tensor) -> None:
        buffers = [buffer for buffer in self._buffers if buffer is not None]
        size, count = len(own), len(buffers)
        part = slice(size * index // count, size * (index + 1) // count)
        total = buffers[0][part].to(own.device, copy=True)
        for buffer in buffers[1:]:
            total += buffer[part].to(own.device)
        for buffer in buffers:
            buffer[part].copy_(total)


def _mark(device: torch.device) -> torch.cuda.Event | None:
    """A point in what is queued on ``device`` by this thread; None on the CPU, where nothing is ever queued."""
    if device.type != "cuda":
        return None
    mark = torch.cuda.Event()  # type: ignore[no-untyped-call]
    mark.record(torch.cuda.current_stream(device))
    return mark
