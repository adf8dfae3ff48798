"""How features travel from rank to rank, a share at a time, into buffers that are made once.

A drafter invites: it posts the receives of its next ``queue`` shares and says so to the target of each, by a word of
one byte. A target waits for that word and sends. So at most ``queue`` shares wait for a drafter, nothing is sent to
somebody who does not listen, and a word of STOP ends a target whose drafters have given up. Words and parts carry the
number of their share as their tag, so that nothing can be taken for something else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup, Work

from experiments.dflash.clock import PhaseClock
from experiments.dflash.config import DFlashConfig
from experiments.dflash.data import Batch, Dataset
from experiments.dflash.layout import Layout, Seat, Share
from experiments.dflash.step import Features, feature_type
from experiments.dflash.target import Target
from experiments.dflash.topology.peers import talking

GO, STOP = 1, 0


@dataclass(frozen=True, eq=False)
class Groups:
    """Who talks to whom. ``words``: all ranks, from host to host. ``tensors``: all ranks, from device to device."""

    words: ProcessGroup
    tensors: ProcessGroup


@dataclass(frozen=True)
class Parcel:
    """The one shape of all shares of a training: rows, positions, features; and the type that features travel in."""

    rows: int
    positions: int
    width: int
    dtype: torch.dtype

    def empty(self, device: torch.device) -> Features:
        """A buffer for one share."""
        features = torch.empty(self.rows, self.positions, self.width, dtype=self.dtype, device=device)
        return Features(features, torch.empty(self.rows, self.positions, dtype=torch.long, device=device))


def parcel_of(config: DFlashConfig, layout: Layout, target: Target, dataset: Dataset) -> Parcel:
    """Of every share of this training."""
    return Parcel(
        rows=layout.rows,
        positions=dataset.positions,
        width=len(target.layer_ids) * int(target.config.hidden_size),
        dtype=feature_type(config),
    )


class FeatureOutlet:
    """A target's end."""

    def __init__(self, layout: Layout, groups: Groups, parcel: Parcel) -> None:
        self._layout = layout
        self._groups = groups
        self._parcel = parcel
        self.stopped = False

    def send(self, share: Share, features: Features, clock: PhaseClock) -> None:
        """Send the features once they are wanted; drop them where they no longer are, and be ``stopped``."""
        rank = self._layout.drafters[share.drafter].rank
        word = torch.empty(1, dtype=torch.uint8)
        with talking(), clock.phase("wait"):
            dist.recv(word, src=rank, group=self._groups.words, tag=share.turn)
        if int(word) == STOP:
            self.stopped = True
            return
        with talking(), clock.phase("communication"):
            parts = (features.features_BSF.to(self._parcel.dtype), features.label_BS)
            for part, tensor in enumerate(parts):
                dist.send(tensor.contiguous(), dst=rank, group=self._groups.tensors, tag=2 * share.turn + part)
        if features.label_BS.is_cuda:  # NCCL has only queued it; the step's clock reads events that must have passed
            torch.cuda.current_stream().synchronize()


@dataclass(frozen=True, eq=False)
class _Posted:
    """Receives that were posted for a share, into which buffer, and the word that invited it."""

    into: Features
    works: tuple[Work, ...]
    word: Tensor  # must live until it has been read


class FeatureInlet:
    """A drafter's end."""

    def __init__(
        self, config: DFlashConfig, layout: Layout, seat: Seat, groups: Groups, parcel: Parcel, device: torch.device
    ) -> None:
        self._layout = layout
        self._seat = seat
        self._groups = groups
        self._steps = config.train.steps
        self._ahead = config.topology.queue
        self._buffers = [parcel.empty(device) for _ in range(self._ahead + 1)]  # one more: that of the step at work
        self._posted: dict[int, _Posted] = {}
        self._next = 1  # the first step that was not invited
        with talking():
            self._invite(self._ahead)

    def receive(self, share: Share, batch: Batch, clock: PhaseClock) -> Features:  # noqa: ARG002  # its shape is fixed
        """The features of ``share``, in a buffer that is good until the next call."""
        with talking(), clock.phase("communication"):
            self._invite(share.step + self._ahead)  # into the buffer of the step before this, which is done with it
        with talking(), clock.phase("wait"):
            return self._arrived(share.step)

    def close(self) -> None:
        """Take in what is under way, and stop the targets that would send more: after the last step, or a giving up."""
        with talking():
            for step in list(self._posted):
                self._arrived(step)
            words = [self._say(STOP, share) for share in self._first_unwanted()]
            for work, _ in words:
                work.wait()

    def _invite(self, last: int) -> None:
        for step in range(self._next, min(last, self._steps) + 1):
            share = self._layout.share(step, self._seat.index)
            rank = self._layout.targets[share.target].rank
            into = self._buffers[step % len(self._buffers)]
            works = [
                _started(dist.irecv(tensor, src=rank, group=self._groups.tensors, tag=2 * share.turn + part))
                for part, tensor in enumerate((into.features_BSF, into.label_BS))
            ]
            said, word = self._say(GO, share)
            self._posted[step] = _Posted(into, (*works, said), word)
            self._next = step + 1

    def _arrived(self, step: int) -> Features:
        posted = self._posted.pop(step)
        for work in posted.works:
            work.wait()
        return posted.into

    def _say(self, word: int, share: Share) -> tuple[Work, Tensor]:
        rank = self._layout.targets[share.target].rank
        said = torch.tensor([word], dtype=torch.uint8)
        return _started(dist.isend(said, dst=rank, group=self._groups.words, tag=share.turn)), said

    def _first_unwanted(self) -> Iterator[Share]:
        """Of the shares that nobody invited, each target's first, where it is this drafter's.

        All drafters have invited the same steps, and a target goes through its shares in order: it meets exactly one.
        """
        stopped: set[int] = set()
        for step in range(self._next, self._steps + 1):
            for drafter in range(len(self._layout.drafters)):
                share = self._layout.share(step, drafter)
                if share.target not in stopped and drafter == self._seat.index:
                    yield share
                stopped.add(share.target)
            if len(stopped) == len(self._layout.targets):
                return


def _started(work: Work | None) -> Work:
    assert work is not None  # it is for a rank that is not in the group
    return work
