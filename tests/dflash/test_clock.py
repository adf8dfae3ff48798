"""Phases on a device's clock, with events on a clock that the test moves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar

import pytest
from torch import nn, ones

from experiments.dflash.clock import PhaseClock
from harness.run.events import Recorder


class FakeEvent:
    """A CUDA event: what is queued before it takes ``queued`` milliseconds, and has passed once somebody waited."""

    queued: ClassVar[float] = 0.0
    passed: ClassVar[float] = 0.0

    def __init__(self) -> None:
        self.at = -1.0

    def record(self) -> None:
        self.at = FakeEvent.queued

    def synchronize(self) -> None:
        FakeEvent.passed = max(FakeEvent.passed, self.at)

    def elapsed_time(self, end_event: FakeEvent) -> float:
        if end_event.at > FakeEvent.passed:
            raise RuntimeError("device not ready")  # as CUDA's cudaEventElapsedTime answers
        return end_event.at - self.at


def test_phases_on_a_device_are_its_events_less_what_was_compiling(tmp_path: Path) -> None:
    recorder, compiled = Recorder(tmp_path, 0.0), 0.0
    with recorder.step(1, device="cuda:0") as timer:
        clock = PhaseClock(timer, lambda: compiled, FakeEvent)
        with clock.phase("forward"):
            FakeEvent.queued += 0.5
            compiled += 0.0002
        with clock.phase("backward"):
            FakeEvent.queued += 0.25
        nn.Linear(200, 200)(ones(2000, 200))  # the step must last as long as its phases claim
        clock.resolve()  # waits: nothing has passed yet
        clock.resolve()
    (event,) = map(json.loads, (tmp_path / "events.jsonl").read_text("utf-8").splitlines())
    assert event["phases"]["forward"] == pytest.approx(0.0003)
    assert event["phases"]["backward"] == pytest.approx(0.00025)
