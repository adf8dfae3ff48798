"""A process a device, under torch.distributed: the crew as one rank of it sees it.

gloo carries what is on the CPU, NCCL what is on GPUs. Rank 0, a target, leads: it evaluates and records while the
others wait, and has the trained weights from drafter 0 at the end.
"""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import ProcessGroup

from experiments.dflash.attention import choose_attention
from experiments.dflash.compiling import CompileWatch
from experiments.dflash.config import DFlashConfig
from experiments.dflash.data import Dataset
from experiments.dflash.layout import layout_of, seat_of, seats_of_a_machine
from experiments.dflash.loops import serve_features, train_drafter
from experiments.dflash.model import DFlashDrafter
from experiments.dflash.step import DrafterSide, TargetSide, captured, drafter_side, fresh_drafter
from experiments.dflash.target import Target
from experiments.dflash.topology.devices import check_named, worker_device
from experiments.dflash.topology.passage import FeatureInlet, FeatureOutlet, Groups, Parcel, parcel_of
from experiments.dflash.topology.peers import KeptRecorder, talking
from harness.errors import HarnessError
from harness.places import places
from harness.records import Event, Value
from harness.run.events import Recorder

T = TypeVar("T")


@dataclass(frozen=True)
class _Boarded:
    """What a rank has come to, for rank 0 to compare."""

    host: str
    weights: str
    content: str


@dataclass(frozen=True)
class _Ended:
    """How a rank's training ended: a drafter's word and weights, and what it could not record itself."""

    given_up: str
    weights: str
    events: list[Event]


class ProcessCrew:
    """One rank. The default process group is there, and has as many ranks as the topology has seats."""

    def __init__(self, config: DFlashConfig, recorder: Recorder) -> None:
        check_named(config.topology)
        self._config = config
        self._recorder = recorder
        self._layout = layout_of(config.topology, config.train.batch, "")
        self._seat = seat_of(self._layout, dist.get_rank())
        self._device = worker_device(self._seat.device)
        self._side: DrafterSide | None = None
        self._form_groups()

    @property
    def leads(self) -> bool:
        return self._seat.rank == 0

    def _form_groups(self) -> None:
        """They go with the process, all at once: it does nothing else than this training."""
        patience = timedelta(seconds=self._config.topology.patience)
        if self._device.type == "cuda":
            torch.cuda.set_device(self._device)
        with talking():
            words = dist.new_group(backend="gloo", timeout=patience)
            tensors = words if self._device.type == "cpu" else self._nccl(None, patience)
            ranks = [seat.rank for seat in self._layout.drafters]
            on_cpu = self._device.type == "cpu"
            sums = dist.new_group(ranks, backend="gloo", timeout=patience) if on_cpu else self._nccl(ranks, patience)
        self._groups = Groups(words, tensors)
        self._drafters: ProcessGroup = sums

    def _nccl(self, ranks: list[int] | None, patience: timedelta) -> ProcessGroup:
        group: ProcessGroup = dist.new_group(ranks, backend="nccl", timeout=patience, device_id=self._device)
        return group

    def make(self, what: Callable[[], T]) -> T:
        """Rank 0 first, then a rank of each other machine, then the others, who find what those have made."""
        local = self._seat.rank % seats_of_a_machine(self._config.topology)
        turn = 0 if self.leads else 1 if local == 0 else 2
        made: list[T] = []
        for now in range(3):
            if now == turn:
                made.append(what())
            with talking():
                dist.barrier(group=self._groups.words)
        return made[0]

    def board(self, target: Target, dataset: Dataset) -> None:
        """A target moves to its device; a drafter takes embedding and head there, and makes a fresh drafter."""
        self._compare(target, dataset)
        self._dataset = dataset
        self._parcel: Parcel = parcel_of(self._config, self._layout, target, dataset)
        if self._seat.role == "drafter":
            self._side = drafter_side(self._config, target, target.lend(self._device), self._device)
            return
        target.model.to(self._device)  # type: ignore[arg-type]  # transformers wraps it in an untyped decorator
        self.target = target
        if self.leads:
            self.drafter: DFlashDrafter = fresh_drafter(self._config, target, self._device)

    def _compare(self, target: Target, dataset: Dataset) -> None:
        mine = _Boarded(socket.gethostname(), weights_digest(target.model), dataset.content)
        everyone: list[_Boarded | None] = [None] * dist.get_world_size()
        with talking():
            dist.all_gather_object(everyone, mine, group=self._groups.words)
        boarded = [one for one in everyone if one is not None]
        refuse_unequal(boarded)

    def facts(self) -> Mapping[str, Value]:
        """What the drafters' devices make of "auto"."""
        config = self._config
        attention = choose_attention(config.attention, config.compile, self._device, config.attention_fallback)
        return {
            "execution.attention.used": attention,
            "execution.device.kind": self._device.type,
            "execution.device.used": self._layout.devices,
        }

    def train(self) -> str:
        """This rank's part of all steps; on rank 0, why the drafters gave the training up."""
        ahead = self._start_together()
        mine = self._serve() if self._side is None else self._learn(self._side)
        return self._conclude(mine, ahead)

    def _start_together(self) -> float:
        """Wait until all are here, so that no step waits for an evaluation. Returns how far rank 0's clock is ahead."""
        clock: list[float] = [0.0]
        with talking():
            dist.barrier(group=self._groups.words)
            clock[0] = self._recorder.now()
            dist.broadcast_object_list(clock, src=0, group=self._groups.words)
        return clock[0] - self._recorder.now()

    def _serve(self) -> _Ended:
        outlet = FeatureOutlet(self._layout, self._groups, self._parcel)
        side = TargetSide(self._config, self.target)
        serve_features(side, self._seat, self._layout, self._dataset, outlet, self._recorder, lambda: outlet.stopped)
        return _Ended("", "", [])

    def _learn(self, side: DrafterSide) -> _Ended:
        reduce = self._sum if len(self._layout.drafters) > 1 else None
        with CompileWatch(self._recorder) as watch:
            side = captured(side, self._parcel.rows, self._parcel.positions)
            inlet = FeatureInlet(self._config, self._layout, self._seat, self._groups, self._parcel, self._device)
            given_up = train_drafter(
                side, self._seat, self._layout, self._dataset, inlet, reduce, self._recorder, watch
            )
        inlet.close()
        return _Ended(given_up, weights_digest(side.drafter), [])

    def _sum(self, flat: Tensor) -> None:
        with talking():
            dist.all_reduce(flat, group=self._drafters)

    def _conclude(self, mine: _Ended, ahead: float) -> str:
        """Bring together on rank 0 what the run keeps: the word, the weights, other machines' events."""
        if isinstance(self._recorder, KeptRecorder):
            machine = self._seat.rank // seats_of_a_machine(self._config.topology) + 1
            mine = replace(mine, events=self._recorder.seen_from(ahead, machine))
        everyone: list[_Ended | None] | None = [None] * dist.get_world_size() if self.leads else None
        with talking():
            dist.gather_object(mine, everyone, dst=0, group=self._groups.words)
            self._hand_over_weights()
            if self._device.type == "cuda":  # all at once: rank 0 has an evaluation to go, which NCCL must not wait for
                dist.destroy_process_group(self._groups.tensors)
        if everyone is None:
            return mine.given_up
        ended = [one for one in everyone if one is not None]
        for event in (event for one in ended for event in one.events):
            self._recorder.write(event)
        first, *others = [ended[seat.rank] for seat in self._layout.drafters]
        apart = [str(index) for index, other in enumerate(others, 1) if other.weights != first.weights]
        if apart:
            raise HarnessError(
                f"drafter 0 and drafter {', '.join(apart)} ended with different weights: a sum of their "
                "gradients did not come out the same on both"
            )
        return first.given_up

    def _hand_over_weights(self) -> None:
        giver = self._layout.drafters[0].rank
        if self._side is not None and self._seat.rank == giver:
            for tensor in self._side.drafter.state_dict().values():
                dist.send(tensor, dst=0, group=self._groups.tensors)
        elif self.leads:
            for tensor in self.drafter.state_dict().values():
                dist.recv(tensor, src=giver, group=self._groups.tensors)


def weights_digest(model: nn.Module) -> str:
    """Of the bits of every weight."""
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def refuse_unequal(boarded: list[_Boarded]) -> None:
    """Raises HarnessError that names the ranks whose target or data is not rank 0's."""
    first = boarded[0]
    for what, same in (
        ("target", [one.weights == first.weights for one in boarded]),
        ("training data", [one.content == first.content for one in boarded]),
    ):
        others = [f"rank {rank} on {one.host}" for rank, one in enumerate(boarded) if not same[rank]]
        if others:
            raise HarnessError(
                f"the {what} of {', '.join(others)} is not that of rank 0 on {first.host}, to the bit: "
                f"copy {places().models} from there"
            )
