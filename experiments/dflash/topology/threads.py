"""Target and drafter threads of one process, a thread a device, joined by bounded queues and a sum over drafters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import torch

from experiments.dflash.attention import choose_attention
from experiments.dflash.clock import PhaseClock
from experiments.dflash.compiling import CompileWatch
from experiments.dflash.config import DFlashConfig
from experiments.dflash.data import Batch, Dataset
from experiments.dflash.layout import Seat, Share, layout_of
from experiments.dflash.loops import serve_features, train_drafter
from experiments.dflash.model import DFlashDrafter
from experiments.dflash.step import DrafterSide, Features, Reduce, TargetSide, captured, drafter_side, fresh_drafter
from experiments.dflash.target import Target
from experiments.dflash.topology.channel import Channel, WaitingRoom
from experiments.dflash.topology.devices import check_named, note_simulated, worker_device
from experiments.dflash.topology.summing import ThreadSum
from experiments.dflash.topology.together import Workers
from experiments.dflash.topology.travel import Courier, CudaRuntime, Parcel
from harness.errors import UsageError
from harness.records import Value
from harness.run import compile_guard
from harness.run.events import Recorder

T = TypeVar("T")


@dataclass(frozen=True)
class FromTargets:
    """A drafter's end of its channel."""

    channel: Channel[Parcel[torch.cuda.Stream]]
    targets: Sequence[str]

    def receive(self, share: Share, _batch: Batch, clock: PhaseClock) -> Features:
        """Waits for the target; what this thread queues next waits, on the device, for the features to arrive."""
        with clock.phase("wait"):
            parcel = self.channel.take(self.targets[share.target])
        with clock.phase("communication"):
            return parcel.open()


@dataclass(frozen=True)
class ToDrafters:
    """A target's end of all channels."""

    channels: Sequence[Channel[Parcel[torch.cuda.Stream]]]
    couriers: Sequence[Courier[torch.cuda.Stream]]
    name: str

    def send(self, share: Share, features: Features, clock: PhaseClock) -> None:
        """Waits for the drafter to have room, and starts the features on their way into it."""
        channel = self.channels[share.drafter]
        with clock.phase("wait"):
            channel.await_place(share.step, self.name)
        parcel = self.couriers[share.drafter].send(features)  # only queues, on streams that this clock does not see
        channel.put(share.step, parcel, self.name)


class ThreadCrew:
    """All workers of a training in this process."""

    leads = True

    def __init__(self, config: DFlashConfig, recorder: Recorder) -> None:
        check_named(config.topology)
        self._config = config
        self._recorder = recorder
        self._layout = layout_of(config.topology, config.train.batch, config.device)
        self._devices = [worker_device(seat.device) for seat in self._layout.drafters]
        self._guard = guard(config, self._devices[0])
        note_simulated(config.topology, recorder)

    def make(self, what: Callable[[], T]) -> T:
        """At once: there is one process."""
        return what()

    def board(self, target: Target, dataset: Dataset) -> None:
        """A replica of the target for each target thread, since transformers hooks a model's modules while it runs, and
        for each drafter thread a drafter with its own copy of what it borrows."""
        first, *others = (worker_device(seat.device) for seat in self._layout.targets)
        self._sides = [drafter_side(self._config, target, target.lend(on), on) for on in self._devices]
        self._replicas = [target.on(device) for device in others]
        target.model.to(first)  # type: ignore[arg-type]  # transformers wraps it in an untyped decorator
        self.target = target
        self.drafter: DFlashDrafter = fresh_drafter(self._config, target, first)
        self._dataset = dataset

    def facts(self) -> Mapping[str, Value]:
        """What the devices made of "auto", and whether the compile guard is on."""
        return {
            "execution.attention.used": self._sides[0].attention,
            "execution.device.kind": self._devices[0].type,
            "execution.device.used": self._layout.devices,
            "execution.topology.guarded": self._guard is not None,
        }

    def train(self) -> str:
        """All workers at once, until the last drafter is done."""
        layout, patience = self._layout, self._config.topology.patience
        room = WaitingRoom(patience, self._guard.gate.lending) if self._guard else WaitingRoom(patience)
        workers = Workers(room)
        names = [seat.name for seat in layout.drafters]
        channels = [Channel[Parcel[torch.cuda.Stream]](room, name, self._config.topology.queue) for name in names]
        for seat, target in zip(layout.targets, (self.target, *self._replicas), strict=True):
            workers.add(seat, self._guarded(partial(self._serve, seat, target, channels, room)))
        total = ThreadSum(room, names) if len(names) > 1 else None
        given_up: dict[int, str] = {}
        with CompileWatch(self._recorder) as watch:
            sides = [captured(side, layout.rows, self._dataset.positions) for side in self._sides]
            for seat, side, channel in zip(layout.drafters, sides, channels, strict=True):
                reduce = total.of(seat.index) if total else None
                workers.add(seat, self._guarded(partial(self._draft, seat, side, channel, reduce, watch, given_up)))
            workers.run()
        self.drafter.load_state_dict(self._sides[0].drafter.state_dict())
        return given_up[0]  # all have come to the same: they decide by figures that are sums over all of them

    def _guarded(self, work: Callable[[], None]) -> Callable[[], None]:
        """``work`` that stands still, but where it waits for others, while another thread compiles.

        Code that is not compiled reads torch's process-wide flags too: transformers, told by ``is_compiling`` that it
        is being traced, collects hidden states in a variable that all threads share, and so do its targets.
        """
        return self._guard.gate.reads(lambda: work()) if self._guard else work

    def _serve(
        self, seat: Seat, target: Target, channels: Sequence[Channel[Parcel[torch.cuda.Stream]]], room: WaitingRoom
    ) -> None:
        self._sit_down(seat)
        queue, runtime = self._config.topology.queue, CudaRuntime()
        couriers = [Courier(worker_device(seat.device), device, queue, runtime) for device in self._devices]
        side, outlet = TargetSide(self._config, target), ToDrafters(channels, couriers, seat.name)
        serve_features(side, seat, self._layout, self._dataset, outlet, self._recorder, room.closed)

    def _draft(
        self,
        seat: Seat,
        side: DrafterSide,
        channel: Channel[Parcel[torch.cuda.Stream]],
        reduce: Reduce | None,
        watch: CompileWatch,
        given_up: dict[int, str],
    ) -> None:
        self._sit_down(seat)
        inlet = FromTargets(channel, [target.name for target in self._layout.targets])
        given_up[seat.index] = train_drafter(
            side, seat, self._layout, self._dataset, inlet, reduce, self._recorder, watch
        )

    def _sit_down(self, seat: Seat) -> None:
        """What torch keeps for each thread: the number of threads that help it on the CPU, its CUDA device and stream.

        With a stream of its own, a worker overlaps with the one that shares its GPU.
        """
        torch.set_num_threads(self._config.threads)
        device = worker_device(seat.device)
        if device.type == "cuda":
            torch.cuda.set_device(device)
            own = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            own.wait_stream(torch.cuda.default_stream(device))  # on which the weights were made
            torch.cuda.set_stream(own)


def guard(config: DFlashConfig, device: torch.device) -> compile_guard.Guard | None:
    """What makes compiling from threads safe, if anything will be compiled on ``device``.

    Raises UsageError where the compile guard has not been shown on this version of torch.
    """
    flex = choose_attention(config.attention, config.compile, device, config.attention_fallback) == "flex"
    if config.compile == "none" and not flex:
        return None
    if not compile_guard.shown(torch.__version__):
        raise UsageError(
            f"topology.kind=threads would compile from several threads of torch {torch.__version__}, and the compile "
            f"guard has been shown on torch {', '.join(compile_guard.SHOWN)} alone: use topology.kind=processes, or "
            f"compile=none{' and attention=sdpa' if flex else ''}"
        )
    return compile_guard.install()
