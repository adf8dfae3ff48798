"""The toy trainer does what its settings say; the harness is proved on it."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiments.toy import Slow, ToyConfig, durations, spend
from harness.config import flatten, kinds, override
from harness.errors import UsageError
from harness.records import PHASES, Compile, Event, Finished, Step, event_from_json

ROOT = Path(__file__).resolve().parents[1]


def train(folder: Path, config: ToyConfig) -> list[Event | None]:
    folder.mkdir(exist_ok=True)
    (folder / "spec.json").write_text(json.dumps({"config": flatten(config)}))
    variables = {
        **os.environ,
        "HARNESS_RUN": str(folder),
        "HARNESS_T0": repr(time.monotonic()),
        "PYTHONPATH": str(ROOT),
    }
    subprocess.run([sys.executable, "-S", "-m", "experiments.toy"], env=variables, cwd=folder, check=True, timeout=60)
    return [event_from_json(json.loads(line)) for line in (folder / "events.jsonl").read_text().splitlines()]


def steps(events: list[Event | None]) -> list[Step]:
    return [event for event in events if isinstance(event, Step)]


def test_a_run_takes_its_steps_in_its_time_and_learns(tmp_path: Path) -> None:
    config = ToyConfig(steps=40, seconds=0.01, tokens=7, padding=2)
    events = train(tmp_path, config)
    taken = steps(events)
    assert [step.step for step in taken] == list(range(1, 41))
    assert {(step.tokens, step.padding) for step in taken} == {(7, 2)}
    typical = sorted(step.seconds for step in taken)[20]
    assert 0.0094 < typical < 0.05  # the median of noise of 2 %, and room for a busy machine
    assert taken[-1].metrics["loss"] < taken[0].metrics["loss"] / 4
    assert isinstance(events[-1], Finished)
    assert events[-1].ok


def test_a_slowdown_lands_in_its_phase_after_its_step_and_changes_no_loss(tmp_path: Path) -> None:
    base = ToyConfig(steps=10, seconds=0.005, noise=0.0)
    slowed = dataclasses.replace(base, cold_start=0.1, slow=Slow(communication=0.03, after=5))
    events = train(tmp_path / "slowed", slowed)
    before, after = steps(events)[:5], steps(events)[5:]
    assert all(step.phases.get("communication", 0) == 0 for step in before)
    assert all(step.phases["communication"] >= 0.03 for step in after)
    assert before[0].phases["compile"] >= 0.1
    compiles = [event for event in events if isinstance(event, Compile)]
    assert [(c.step, c.misses, c.seconds) for c in compiles] == [(1, 1, 0.1)]
    assert [s.metrics for s in steps(train(tmp_path / "base", base))] == [s.metrics for s in steps(events)]


def test_every_phase_can_be_slowed_and_only_as_an_execution_fact() -> None:
    names = [f.name for f in dataclasses.fields(Slow) if f.name != "after"]
    assert set(names) == set(PHASES) - {"compile", "other"}
    for name in names:
        config = override(ToyConfig(seconds=0.0), [f"slow.{name}=2.5"])
        assert durations(config, 1, 1.0) == {**dict.fromkeys(names, 0.0), name: 2.5}
    assert {kind for key, kind in kinds(ToyConfig()).items() if key.startswith("slow.")} == {"execution"}


@pytest.mark.parametrize("setting", ["steps=0", "noise=1", "slow.data=-1", "cold_start=-1"])
def test_what_cannot_be_is_refused(setting: str) -> None:
    with pytest.raises(UsageError, match=setting.split("=")[0]):
        override(ToyConfig(), [setting])


def test_time_is_spent_to_a_millisecond() -> None:
    start = time.perf_counter()
    spend(0.02)
    assert time.perf_counter() - start >= 0.02
