"""Features travel whole, whatever order the streams of two devices run in, and no memory is used again too early.

The streams are simulated: what is queued runs later, in a random order that keeps only what streams and events promise.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from experiments.dflash.step import Features
from experiments.dflash.topology.travel import Courier, Parcel

TARGET, DRAFTER = torch.device("cuda", 0), torch.device("cuda", 1)
Work = Callable[[], bool]
"""One thing in a stream; False: it must be tried again later."""


class Event:
    passed = False


@dataclass(eq=False)
class Stream:
    queue: list[Work] = field(default_factory=list)

    def do(self, work: Callable[[], object]) -> None:
        self.queue.append(lambda: (work(), True)[1])


class Simulated:
    """A runtime of two devices. ``forget`` leaves something out, for the tests of this test."""

    def __init__(self, peers: bool, forget: str = "") -> None:
        self._peers = peers
        self._forget = forget
        self._current = {TARGET: Stream(), DRAFTER: Stream()}
        self.streams = list(self._current.values())
        self.kept: list[tuple[Tensor, Stream]] = []
        self.made_on: list[tuple[Tensor, Stream]] = []

    def current(self, device: torch.device) -> Stream:
        return self._current[device]

    def threads(self, device: torch.device, stream: Stream) -> None:
        """From now on the thread speaks whose current stream on ``device`` that is."""
        self._current[device] = stream

    def new_stream(self, device: torch.device) -> Stream:
        assert device in self._current
        self.streams.append(Stream())
        return self.streams[-1]

    def record(self, stream: Stream) -> Event:
        event = Event()
        stream.do(lambda: setattr(event, "passed", True))
        return event

    def wait(self, stream: Stream, event: Event) -> None:
        if self._forget != "wait":
            stream.queue.append(lambda: event.passed)

    def peers(self, one: torch.device, other: torch.device) -> bool:
        assert one == TARGET
        return one == other or self._peers

    def pinned(self, like: Tensor) -> Tensor:
        return torch.full_like(like, -2)

    def empty(self, like: Tensor, device: torch.device, stream: Stream) -> Tensor:
        assert device == DRAFTER
        made = torch.full_like(like, -3)
        self.made_on.append((made, stream))
        return made

    def copy(self, into: Tensor, source: Tensor, leaving: Stream, arriving: Stream) -> None:
        if leaving is not arriving:
            before, done = self.record(arriving), Event()
            leaving.queue.append(lambda: before.passed)
        leaving.do(lambda: into.copy_(source))
        if leaving is not arriving:
            leaving.do(lambda: setattr(done, "passed", True))
            arriving.queue.append(lambda: done.passed)

    def keep(self, tensor: Tensor, stream: Stream) -> None:
        if self._forget != "keep":
            self.kept.append((tensor, stream))

    def drop(self, tensor: Tensor, owner: Stream) -> None:
        """Nobody holds it any more: as torch's allocator, let its owner's stream write over it once it may."""
        passed = [self.record(stream) for kept, stream in self.kept if kept is tensor]
        owner.queue.append(lambda: all(event.passed for event in passed) and bool(tensor.fill_(-9).numel()))

    def run(self, order: random.Random) -> None:
        while waiting := [stream for stream in self.streams if stream.queue]:
            order.shuffle(waiting)
            assert any(stream.queue[0]() and [stream.queue.pop(0)] for stream in waiting), "a deadlock of the streams"


def journeys(peers: bool, seed: int, depth: int = 2, shares: int = 6, forget: str = "") -> list[float]:
    """What the drafter's stream reads of each share; share n is made of n."""
    runtime = Simulated(peers, forget)
    courier = Courier(TARGET, DRAFTER, depth, runtime)
    target, drafter = runtime.current(TARGET), runtime.current(DRAFTER)
    read: list[float] = []
    for number in range(shares):
        made = Features(torch.full((1, 2, 3), -1.0), torch.full((1, 2), -1))
        for tensor in (made.features_BSF, made.label_BS):
            target.do(lambda tensor=tensor, number=number: tensor.fill_(number))  # type: ignore[misc]
        parcel: Parcel[Stream] = courier.send(made)
        for tensor in (made.features_BSF, made.label_BS):
            runtime.drop(tensor, target)
        got = parcel.open()
        drafter.do(lambda got=got: read.append(float(got.features_BSF.mean())))  # type: ignore[misc]
        drafter.do(lambda got=got: read.append(float(got.label_BS.float().mean())))  # type: ignore[misc]
        for tensor in (got.features_BSF, got.label_BS):
            (owner,) = (stream for made_there, stream in runtime.made_on if made_there is tensor)
            runtime.drop(tensor, owner)
    runtime.run(random.Random(seed))
    return read


@pytest.mark.parametrize("peers", [True, False])
@pytest.mark.parametrize("depth", [1, 3])
def test_features_arrive_whole_in_any_schedule(peers: bool, depth: int) -> None:
    for seed in range(40):
        assert journeys(peers, seed, depth) == [number for number in range(6) for _ in range(2)]


@pytest.mark.parametrize("peers", [True, False])
@pytest.mark.parametrize("forget", ["wait", "keep"])
def test_the_schedules_find_a_forgotten_wait_and_memory_given_back_too_early(peers: bool, forget: str) -> None:
    expected = [number for number in range(6) for _ in range(2)]
    assert any(journeys(peers, seed, forget=forget) != expected for seed in range(40))


def shared(seed: int, forget: str = "") -> list[float]:
    """What a drafter's stream reads of each share where the target's stream is on the same device."""
    runtime = Simulated(peers=True, forget=forget)
    courier = Courier(TARGET, TARGET, 2, runtime)
    target, drafter = runtime.current(TARGET), runtime.new_stream(TARGET)
    read: list[float] = []
    for number in range(6):
        made = Features(torch.full((1, 2, 3), -1.0), torch.full((1, 2), -1))
        for tensor in (made.features_BSF, made.label_BS):
            target.do(lambda tensor=tensor, number=number: tensor.fill_(number))  # type: ignore[misc]
        parcel = courier.send(made)
        runtime.threads(TARGET, drafter)
        got = parcel.open()
        runtime.threads(TARGET, target)
        assert got is made
        drafter.do(lambda got=got: read.append(float(got.features_BSF.mean())))  # type: ignore[misc]
        for tensor in (got.features_BSF, got.label_BS):
            runtime.drop(tensor, target)
    runtime.run(random.Random(seed))
    return read


def test_on_one_gpu_nothing_travels_and_the_readers_stream_waits_for_the_makers() -> None:
    for seed in range(40):
        assert shared(seed) == list(range(6))
    for forget in ("wait", "keep"):
        assert any(shared(seed, forget) != list(range(6)) for seed in range(40))


def test_on_the_cpu_nothing_travels() -> None:
    cpu = torch.device("cpu")
    features = Features(torch.ones(1, 2, 3), torch.ones(1, 2))
    assert Courier(cpu, cpu, 2, Simulated(peers=True)).send(features).open() is features
