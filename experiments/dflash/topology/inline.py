"""One device on which target and drafter take turns: the specification that the other topologies are held against."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from experiments.dflash.clock import PhaseClock
from experiments.dflash.compiling import CompileWatch
from experiments.dflash.config import DFlashConfig
from experiments.dflash.data import Batch, Dataset
from experiments.dflash.layout import Share, layout_of
from experiments.dflash.loops import train_drafter
from experiments.dflash.model import DFlashDrafter
from experiments.dflash.step import Features, TargetSide, captured, drafter_side
from experiments.dflash.target import Target
from experiments.dflash.topology.devices import inline_device
from harness.records import Value
from harness.run.events import Recorder

T = TypeVar("T")


class TakingTurns:
    """An inlet whose target works when it is asked, on the drafter's own device."""

    def __init__(self, side: TargetSide) -> None:
        self._side = side

    def receive(self, share: Share, batch: Batch, clock: PhaseClock) -> Features:
        """Nothing waits and nothing travels: the time is the target's."""
        with clock.phase("target"):
            return self._side.look(batch, share)


class InlineCrew:
    """A crew of one."""

    leads = True

    def __init__(self, config: DFlashConfig, recorder: Recorder) -> None:
        self._config = config
        self._recorder = recorder
        self._device = inline_device(config.device)

    def make(self, what: Callable[[], T]) -> T:
        """At once."""
        return what()

    def board(self, target: Target, dataset: Dataset) -> None:
        """Both on the one device."""
        target.model.to(self._device)  # type: ignore[arg-type]  # transformers wraps it in an untyped decorator
        self.target = target
        self._dataset = dataset
        self._side = drafter_side(self._config, target, target.lent, self._device)

    @property
    def drafter(self) -> DFlashDrafter:
        return self._side.drafter

    def facts(self) -> Mapping[str, Value]:
        """What the device made of "auto"."""
        return {
            "execution.attention.used": self._side.attention,
            "execution.device.kind": self._device.type,
            "execution.device.used": str(self._device),
        }

    def train(self) -> str:
        """Step after step on the one device."""
        layout = layout_of(self._config.topology, self._config.train.batch, str(self._device))
        (seat,) = layout.drafters
        inlet = TakingTurns(TargetSide(self._config, self.target))
        with CompileWatch(self._recorder) as watch:
            side = captured(self._side, layout.rows, self._dataset.positions)
            return train_drafter(side, seat, layout, self._dataset, inlet, None, self._recorder, watch)
