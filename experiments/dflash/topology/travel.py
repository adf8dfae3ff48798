"""How features get from a target's device to a drafter's while both go on computing.

A target sends as soon as it has queued its work: the copy runs on streams of its own, ordered by events, and no host
waits for it. Where one GPU can reach the other's memory it is a peer copy; else it goes through a ring of pinned
host buffers. On one device nothing travels; on a GPU its reader still waits, in its stream, for what made it.

Not yet run on a GPU (docs/gpu.md). The order of the copies is tested on simulated streams, in random schedules.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from experiments.dflash.step import Features

S = TypeVar("S")


class Runtime(Protocol[S]):
    """What is needed of a device's runtime; ``S`` is its stream. Nothing here waits on the host."""

    def current(self, device: torch.device) -> S: ...

    def new_stream(self, device: torch.device) -> S: ...

    def record(self, stream: S) -> Any: ...

    def wait(self, stream: S, event: Any) -> None: ...

    def peers(self, one: torch.device, other: torch.device) -> bool: ...

    def pinned(self, like: Tensor) -> Tensor: ...

    def empty(self, like: Tensor, device: torch.device, stream: S) -> Tensor: ...

    def copy(self, into: Tensor, source: Tensor, leaving: S, arriving: S) -> None:
        """Queue a copy between two devices, after what both streams were given so far and before what ``arriving`` is
        given next; or, where both are one stream, in it."""

    def keep(self, tensor: Tensor, stream: S) -> None:
        """Its memory is not used again before ``stream`` has passed what it was given so far."""


class CudaRuntime:
    """torch.cuda."""

    def current(self, device: torch.device) -> torch.cuda.Stream:
        return torch.cuda.current_stream(device)

    def new_stream(self, device: torch.device) -> torch.cuda.Stream:
        return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def record(self, stream: torch.cuda.Stream) -> torch.cuda.Event:
        event: torch.cuda.Event = stream.record_event()
        return event

    def wait(self, stream: torch.cuda.Stream, event: torch.cuda.Event) -> None:
        stream.wait_event(event)

    def peers(self, one: torch.device, other: torch.device) -> bool:
        return one == other or torch.cuda.can_device_access_peer(one, other)

    def pinned(self, like: Tensor) -> Tensor:
        return torch.empty(like.shape, dtype=like.dtype, pin_memory=True)

    def empty(self, like: Tensor, device: torch.device, stream: torch.cuda.Stream) -> Tensor:
        with torch.cuda.stream(stream):  # the stream that the allocator takes it to be used on
            return torch.empty(like.shape, dtype=like.dtype, device=device)

    def copy(self, into: Tensor, source: Tensor, leaving: torch.cuda.Stream, arriving: torch.cuda.Stream) -> None:
        # Between two GPUs torch copies on the source's current stream, and orders it with the destination's.
        with torch.cuda.stream(arriving), torch.cuda.stream(leaving):
            into.copy_(source, non_blocking=True)

    def keep(self, tensor: Tensor, stream: torch.cuda.Stream) -> None:
        tensor.record_stream(stream)


@dataclass(frozen=True, eq=False)
class Parcel(Generic[S]):
    """Features under way to a device. ``arrived`` is None where nothing travels."""

    features: Features
    runtime: Runtime[S]
    device: torch.device
    arrived: Any = None

    def open(self) -> Features:
        """The features; what is queued from now on by this thread, on their device, waits for them."""
        if self.arrived is not None:
            stream = self.runtime.current(self.device)
            self.runtime.wait(stream, self.arrived)
            for tensor in (self.features.features_BSF, self.features.label_BS):
                self.runtime.keep(tensor, stream)
        return self.features


@dataclass(eq=False)
class _Slot:
    """A pinned copy of one share, and the event after which it may be written again."""

    tensors: tuple[Tensor, ...]
    free: Any = None


class Courier(Generic[S]):
    """Brings the features of one target to one drafter. Only the target's thread uses it."""

    def __init__(self, source: torch.device, device: torch.device, depth: int, runtime: Runtime[S]) -> None:
        """``depth``: pinned buffers, where they are needed: that many shares may be half-way."""
        self._source = source
        self._device = device
        self._runtime = runtime
        self._depth = depth
        self._ring: list[_Slot] = []
        self._sent = 0
        if device.type != "cpu":
            self._leaving = runtime.new_stream(source)
            self._arriving = runtime.new_stream(device)
            self._direct = runtime.peers(source, device)

    def send(self, features: Features) -> Parcel[S]:
        """Queue the journey of ``features``, behind what this thread has queued on the source so far."""
        runtime, device = self._runtime, self._device
        if device.type == "cpu":
            return Parcel(features, runtime, device)
        if device == self._source and self._direct:  # two threads on one GPU: they are there already
            return Parcel(features, runtime, device, runtime.record(runtime.current(device)))
        tensors = (features.features_BSF, features.label_BS)
        runtime.wait(self._leaving, runtime.record(runtime.current(self._source)))
        there = tuple(runtime.empty(tensor, device, self._arriving) for tensor in tensors)
        if self._direct:
            for into, tensor in zip(there, tensors, strict=True):
                runtime.copy(into, tensor, self._leaving, self._arriving)
        else:
            self._through_host(there, tensors)
        for tensor in tensors:
            runtime.keep(tensor, self._leaving)
        self._sent += 1
        return Parcel(Features(*there), runtime, device, runtime.record(self._arriving))

    def _through_host(self, there: tuple[Tensor, ...], tensors: tuple[Tensor, ...]) -> None:
        runtime = self._runtime
        if len(self._ring) < self._depth:
            self._ring.append(_Slot(tuple(runtime.pinned(tensor) for tensor in tensors)))
        slot = self._ring[self._sent % self._depth]
        if slot.free is not None:
            runtime.wait(self._leaving, slot.free)
        for host, tensor in zip(slot.tensors, tensors, strict=True):
            runtime.copy(host, tensor, self._leaving, self._leaving)
        runtime.wait(self._arriving, runtime.record(self._leaving))
        for into, host in zip(there, slot.tensors, strict=True):
            runtime.copy(into, host, self._arriving, self._arriving)
        slot.free = runtime.record(self._arriving)
