"""Which device does what in a training, and who computes which share of it. Standard library only.

A step's batch is split evenly over the drafters: drafter ``m`` takes a *share*, the same rows of every step. The
target's features for a share are computed by one target device, in turn: share ``i``, counted over all steps, by
target ``i mod N``. So everybody knows from whom each share comes, and the order of arrival cannot matter.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from harness.config import execution

Kind = Literal["inline", "threads", "processes"]
Role = Literal["target", "drafter"]


@dataclass(frozen=True)
class TopologyConfig:
    """How the devices work together.

    inline     target and drafter take turns on one device (``device``): the specification of the other two
    threads    one process, a thread for each of a device's roles; compiling is made safe by the compile guard
    processes  a process a device, under torch.distributed; on one machine or several
    """

    kind: Kind = execution("inline")
    targets: str = execution("")  # "cuda:0,cuda:1": devices that run the frozen target ("cpu:0,cpu:1" are simulated)
    drafters: str = execution("")  # devices that train the drafter, each on its share of the batch
    queue: int = execution(2)  # shares of features that may wait for each drafter
    nodes: int = execution(1)  # machines, each with these devices (processes)
    rendezvous: str = execution("")  # HOST:PORT of the first machine, where there are several
    patience: float = execution(3600.0)  # seconds that one worker waits for another before the run is given up

    def __post_init__(self) -> None:
        _no_less_than_one(queue=self.queue, nodes=self.nodes, patience=self.patience)
        if self.kind == "inline":
            for name, value in (("targets", self.targets), ("drafters", self.drafters)):
                if value:
                    raise ValueError(f"{name} go with kind=threads or kind=processes; inline runs on device=... alone")
        else:
            self._check_devices()
        if self.nodes > 1 and self.kind != "processes":
            raise ValueError(f"nodes={self.nodes} needs kind=processes: {self.kind} is one process on one machine")
        if self.nodes > 1 and not re.fullmatch(r"[^\s:]+:\d+", self.rendezvous):
            raise ValueError(f"rendezvous must be HOST:PORT of the first of {self.nodes} machines")

    def _check_devices(self) -> None:
        for name, listed in (("targets", self.target_devices), ("drafters", self.drafter_devices)):
            if not listed:
                raise ValueError(f"{name} must name at least one device, as in {name}=cuda:0,cuda:1")
            for device in listed:
                if not re.fullmatch(r"(cpu|cuda):(0|[1-9]\d*)", device):
                    raise ValueError(f"{name} must be devices with a number, as in cuda:0,cuda:1, not {device!r}")
        every = self.target_devices + self.drafter_devices
        twice = [device for device, count in Counter(every).items() if count > 1]
        if twice and not (self.kind == "threads" and every == (twice[0],) * 2):
            raise ValueError(
                f"targets and drafters name {twice[0]} twice: a device has one role, "
                "unless it is the only one and kind=threads"
            )
        if len({device.partition(":")[0] for device in every}) > 1:
            raise ValueError("targets and drafters must all be CUDA devices, or all be simulated on the CPU")

    @property
    def target_devices(self) -> tuple[str, ...]:
        return _listed(self.targets)

    @property
    def drafter_devices(self) -> tuple[str, ...]:
        return _listed(self.drafters)

    @property
    def drafter_count(self) -> int:
        """Over all machines; one for ``inline``."""
        return len(self.drafter_devices) * self.nodes or 1


def _no_less_than_one(**values: float) -> None:
    for name, value in values.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1, not {value:g}")


def _listed(devices: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in devices.split(",")) if devices.strip() else ()


@dataclass(frozen=True)
class Seat:
    """One worker's place: its role, its number among that role's workers, its rank among all, and its device."""

    role: Role
    index: int
    rank: int
    device: str

    @property
    def name(self) -> str:
        """As in "target 2 on cuda:2"."""
        return f"{self.role} {self.index} on {self.device}"


@dataclass(frozen=True)
class Share:
    """What one drafter trains on in one step, from 1: ``rows`` of the step's batch, whose features ``target`` makes.

    ``turn`` is its number over all steps and drafters, from 0.
    """

    turn: int
    step: int
    drafter: int
    target: int
    rows: range


@dataclass(frozen=True)
class Layout:
    """The seats of a training, and its shares."""

    targets: tuple[Seat, ...]
    drafters: tuple[Seat, ...]
    batch: int  # rows a step

    @property
    def devices(self) -> str:
        """Of all seats, targets first: ``cpu:0,cpu:1,cpu:2``."""
        return ",".join(seat.device for seat in (*self.targets, *self.drafters))

    @property
    def rows(self) -> int:
        """Of each share."""
        return self.batch // len(self.drafters)

    def share(self, step: int, drafter: int) -> Share:
        """The share of ``drafter`` in ``step``."""
        count, rows = len(self.drafters), self.rows
        turn = (step - 1) * count + drafter
        return Share(turn, step, drafter, turn % len(self.targets), range(drafter * rows, (drafter + 1) * rows))

    def shares_of_target(self, target: int, step: int) -> Iterator[Share]:
        """Those of ``step`` that target number ``target`` makes the features for, in the order in which it does."""
        shares = (self.share(step, drafter) for drafter in range(len(self.drafters)))
        return (share for share in shares if share.target == target)


def layout_of(topology: TopologyConfig, batch: int, device: str) -> Layout:
    """The seats that ``topology`` asks for; ``device`` is that of ``inline``.

    Ranks count a machine's targets and then its drafters, machine after machine, as torchrun hands them out.
    """
    if topology.kind == "inline":
        return Layout((Seat("target", 0, 0, device),), (Seat("drafter", 0, 0, device),), batch)
    targets: list[Seat] = []
    drafters: list[Seat] = []
    for _ in range(topology.nodes):
        for name in topology.target_devices:
            targets.append(Seat("target", len(targets), len(targets) + len(drafters), name))
        for name in topology.drafter_devices:
            drafters.append(Seat("drafter", len(drafters), len(targets) + len(drafters), name))
    return Layout(tuple(targets), tuple(drafters), batch)


def seat_of(layout: Layout, rank: int) -> Seat:
    """The seat of ``rank``."""
    return next(seat for seat in (*layout.targets, *layout.drafters) if seat.rank == rank)


def seats_of_a_machine(topology: TopologyConfig) -> int:
    """How many seats each machine has, where every device is a process."""
    return len(topology.target_devices) + len(topology.drafter_devices)
