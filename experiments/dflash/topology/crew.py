"""What every topology is to the training script, and the choice of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from experiments.dflash.config import DFlashConfig
from experiments.dflash.data import Dataset
from experiments.dflash.model import DFlashDrafter
from experiments.dflash.target import Target
from harness.records import Value
from harness.run.events import Recorder

T = TypeVar("T")


class Crew(Protocol):
    """The workers of a training, as one of their processes sees them.

    leads    this process evaluates, records what the run is, and keeps the drafter; exactly one does
    target   on the device on which this process evaluates
    drafter  there too: untrained before ``train``, and trained after it
    """

    @property
    def leads(self) -> bool: ...

    @property
    def target(self) -> Target: ...

    @property
    def drafter(self) -> DFlashDrafter: ...

    def make(self, what: Callable[[], T]) -> T:
        """``what()`` of every process, the leading one's first: what it makes once and keeps, the others find."""

    def board(self, target: Target, dataset: Dataset) -> None:
        """Take places on the devices. Raises HarnessError where processes have come to unequal targets or data."""

    def facts(self) -> Mapping[str, Value]:
        """How the training is executed, known only now: what attention, on what."""

    def train(self) -> str:
        """All steps. Returns why the training was given up, or "" where it went to its end.

        Raises WorkerError where a worker died.
        """


def crew(config: DFlashConfig, recorder: Recorder) -> Crew:
    """The crew that ``config.topology`` asks for.

    Raises UsageError, before anything is loaded, for devices that are not there.
    """
    if config.topology.kind == "threads":
        from experiments.dflash.topology.threads import ThreadCrew

        return ThreadCrew(config, recorder)
    if config.topology.kind == "processes":
        from experiments.dflash.topology.processes import ProcessCrew

        return ProcessCrew(config, recorder)
    from experiments.dflash.topology.inline import InlineCrew

    return InlineCrew(config, recorder)
