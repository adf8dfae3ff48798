"""What a worker of each role does from the first step to the last, whatever the topology. Shares come and go through
an ``Inlet`` and an ``Outlet``, which are all that a topology has to provide beside a sum over the drafters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch

from experiments.dflash.clock import PhaseClock, event_factory
from experiments.dflash.compiling import CompileWatch
from experiments.dflash.data import Batch, Dataset
from experiments.dflash.layout import Layout, Seat, Share
from experiments.dflash.optim import dump_batch
from experiments.dflash.step import (
    DrafterSide,
    Features,
    Outcome,
    Prepared,
    Reduce,
    TargetSide,
    drafter_step,
    prepare,
)
from harness.run.events import Recorder, StepTimer

DUMPS = 3  # non-finite batches that are kept
GIVE_UP = 20  # skipped steps in a row after which nothing will come of the run


class Inlet(Protocol):
    """Where a drafter's features come from."""

    def receive(self, share: Share, batch: Batch, clock: PhaseClock) -> Features:
        """The features of ``share``, on the drafter's device. The time that it takes goes to phases of ``clock``."""


class Outlet(Protocol):
    """Where a target's features go to."""

    def send(self, share: Share, features: Features, clock: PhaseClock) -> None:
        """Hand over the features of ``share``, once there is room. Its time goes to phases of ``clock``."""


def train_drafter(
    side: DrafterSide,
    seat: Seat,
    layout: Layout,
    dataset: Dataset,
    inlet: Inlet,
    reduce: Reduce | None,
    recorder: Recorder,
    watch: CompileWatch,
) -> str:
    """All steps of one drafter. Returns why the training was given up, or "" where it went to its end."""
    skipped = in_a_row = 0
    new_event = event_factory(side.device)
    for number in range(1, side.config.train.steps + 1):
        with recorder.step(number, "drafter", seat.device) as timer:
            watch.during(number, timer)
            clock = PhaseClock(timer, watch.seconds_here, new_event)
            share = layout.share(number, seat.index)
            with clock.phase("data"):
                prepared = prepare(side, dataset, share)
            features = inlet.receive(share, prepared.batch, clock)
            outcome = drafter_step(side, prepared, features, number, reduce, clock)
            clock.resolve()
            in_a_row = in_a_row + 1 if outcome.skipped else 0
            skipped += bool(outcome.skipped)
            account(prepared, outcome, timer, skipped)
        if outcome.skipped:
            report_skip(prepared, outcome, recorder, seat, number, skipped)
        if in_a_row == GIVE_UP:
            return f"{GIVE_UP} steps in a row were skipped, the last because {outcome.skipped}"
    return ""


def serve_features(
    side: TargetSide,
    seat: Seat,
    layout: Layout,
    dataset: Dataset,
    outlet: Outlet,
    recorder: Recorder,
    stopped: Callable[[], bool],
) -> None:
    """All shares of one target, until ``stopped``: the drafters may give the training up."""
    new_event = event_factory(torch.device(seat.device))
    for number in range(1, side.config.train.steps + 1):
        shares = list(layout.shares_of_target(seat.index, number))
        if not shares:
            continue
        with recorder.step(number, "target", seat.device) as timer:
            clock = PhaseClock(timer, lambda: 0.0, new_event)
            for share in shares:
                if stopped():
                    return
                with clock.phase("data"):
                    batch = dataset.batch(share.step - 1, share.rows)
                with clock.phase("target"):
                    features = side.look(batch, share)
                outlet.send(share, features, clock)
            clock.resolve()
            timer.metrics(shares=len(shares))


def account(prepared: Prepared, outcome: Outcome, timer: StepTimer, skipped: int) -> None:
    """Count what the step consumed of this share: nothing, where the weights did not move."""
    if not outcome.skipped:
        timer.count(prepared.batch.tokens, prepared.batch.padding)
    blocks = float(prepared.anchors.valid_BN.sum())
    starved = float((~prepared.anchors.valid_BN.any(dim=-1)).sum())  # rows without an anchor
    timer.metrics(blocks=blocks, starved=starved, skipped=skipped, **outcome.metrics)


def report_skip(
    prepared: Prepared, outcome: Outcome, recorder: Recorder, seat: Seat, number: int, skipped: int
) -> None:
    """Say that a step was skipped, and keep the first few batches that came out non-finite, one file a drafter."""
    kept = ""
    if outcome.broken and skipped <= DUMPS and recorder.folder is not None:
        path = dump_batch(recorder.folder / "artifacts", number, seat.index, prepared.tensors())
        kept = f"; its batch is in artifacts/{path.name}"
    if seat.index == 0:  # all drafters come to the same
        recorder.note(f"step {number} was skipped: {outcome.skipped}{kept}", level="warning")
