"""A run as arrays: what ``run/gather.py`` reads from a folder, and ``explain`` measures. numpy and records alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from harness.records import Checkpoint, Compile, Eval, Finished, Note, Run, Value

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Steps:
    """The steps of one role, on all of its devices, in the order of ``t``: columns of one length."""

    t: Floats  # at the end of the step, seconds since the run began
    step: Whole  # from 1; several devices share a number
    device: Whole  # an index into ``devices``
    seconds: Floats
    tokens: Whole
    padding: Whole
    phases: Mapping[str, Floats]  # seconds; those that occur; 0.0 where a step did not report one
    devices: tuple[str, ...] = ()
    loss: Floats | None = None  # NaN where a step reported none, infinity where it was not finite

    def __len__(self) -> int:
        return len(self.t)

    def take(self, order: Whole) -> Steps:
        """The steps at these indices, in this order."""
        return Steps(
            t=self.t[order],
            step=self.step[order],
            device=self.device[order],
            seconds=self.seconds[order],
            tokens=self.tokens[order],
            padding=self.padding[order],
            phases={name: column[order] for name, column in self.phases.items()},
            devices=self.devices,
            loss=None if self.loss is None else self.loss[order],
        )


@dataclass(frozen=True, eq=False)
class Series:
    """One series of telemetry."""

    t: Floats
    values: Floats


@dataclass(frozen=True, eq=False)
class Evidence:
    """All that a run's folder says. A part that is missing or cannot be read is empty, and a line in ``gaps``."""

    run: Run
    facts: Mapping[str, Value]  # the fingerprint's, and what the child said when it started
    steps: Mapping[str, Steps] = field(default_factory=dict)  # by role
    compiles: tuple[Compile, ...] = ()
    evals: tuple[Eval, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()
    notes: tuple[Note, ...] = ()
    started_t: float | None = None  # when the child said what it would compute
    finished: Finished | None = None
    end: float = 0.0  # of the last event or sample, seconds since the run began
    telemetry: Mapping[str, Series] = field(default_factory=dict)  # flat dotted: "cpu.use_pct", "gpu.0.clock_mhz"
    stdout: tuple[str, ...] = ()  # the last lines of each log, at most 64 KB
    stderr: tuple[str, ...] = ()
    patch: str = ""  # code.patch, at most 1 MB
    gaps: tuple[str, ...] = ()
