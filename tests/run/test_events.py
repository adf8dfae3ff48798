"""The recorder: what a child writes, and that it is what happened."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.config import execution, workload
from harness.errors import UsageError
from harness.records import PHASES, Eval, Step, event_from_json
from harness.run.events import Recorder, complete

seconds = st.floats(0, 1e6, allow_nan=False)


@given(st.dictionaries(st.sampled_from(PHASES), seconds), seconds)
def test_phases_and_other_sum_to_the_seconds_of_the_step(phases: dict[str, float], total: float) -> None:
    split = complete(phases, total)
    assert math.isclose(sum(split.values()), total, rel_tol=1e-9, abs_tol=1e-9)
    assert all(value >= 0 for value in split.values())
    assert set(split) == {*phases, "other"}


@given(st.dictionaries(st.sampled_from(PHASES[:-1]), st.floats(0.001, 1.0), min_size=1))
def test_phases_that_fit_are_kept_as_they_were_measured(phases: dict[str, float]) -> None:
    split = complete(phases, sum(phases.values()) + 1.0)
    assert {name: split[name] for name in phases} == phases
    assert split["other"] == pytest.approx(1.0)


def recorder(folder: Path) -> Recorder:
    return Recorder(folder, time.monotonic())


def lines(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


def test_a_step_is_written_with_its_phases_tokens_and_metrics(tmp_path: Path) -> None:
    record = recorder(tmp_path)
    with record.step(3, role="drafter", device="cuda:5") as step:
        with step.phase("forward"):
            time.sleep(0.02)
        with step.phase("data"):
            time.sleep(0.01)
        step.count(tokens=100, padding=7)
        step.count(tokens=1)
        step.metrics(loss=2.5)
    event = event_from_json(lines(tmp_path)[0])
    assert isinstance(event, Step)
    assert (event.step, event.role, event.device, event.tokens, event.padding) == (3, "drafter", "cuda:5", 101, 7)
    assert event.metrics == {"loss": 2.5}
    assert event.phases["forward"] >= 0.02
    assert event.phases["data"] >= 0.01
    assert sum(event.phases.values()) == pytest.approx(event.seconds)


def test_a_phase_inside_a_phase_is_counted_once(tmp_path: Path) -> None:
    record = recorder(tmp_path)
    with record.step(1) as step, step.phase("forward"):
        time.sleep(0.01)
        with step.phase("compile"):
            time.sleep(0.05)
        step.add_phase("communication", 0.004)
    phases = lines(tmp_path)[0]["phases"]
    assert isinstance(phases, dict)
    assert phases["compile"] >= 0.05
    assert 0.005 <= phases["forward"] < 0.04
    assert phases["communication"] == 0.004


def test_phases_of_a_faster_clock_are_scaled_to_the_step(tmp_path: Path) -> None:
    record = recorder(tmp_path)
    with record.step(1) as step:
        time.sleep(0.01)
        step.add_phase("forward", 300.0)
        step.add_phase("backward", 100.0)
    event = event_from_json(lines(tmp_path)[0])
    assert isinstance(event, Step)
    assert event.phases["forward"] == pytest.approx(3 * event.phases["backward"], rel=1e-5)
    assert sum(event.phases.values()) == pytest.approx(event.seconds)


def test_a_step_that_raises_is_not_written(tmp_path: Path) -> None:
    record = recorder(tmp_path)
    with pytest.raises(RuntimeError), record.step(1):
        raise RuntimeError("out of memory")
    assert lines(tmp_path) == []


@pytest.mark.parametrize(("name", "spent"), [("foward", 0.1), ("forward", -0.1)])
def test_a_phase_that_cannot_be_is_refused(tmp_path: Path, name: str, spent: float) -> None:
    with pytest.raises(ValueError, match="communication"):
        recorder(tmp_path).step(1).add_phase(name, spent)


def test_a_loss_that_is_not_finite_stays_valid_json_and_comes_back(tmp_path: Path) -> None:
    recorder(tmp_path).eval("after", {"loss": math.inf, "tokens": 5.0}, lossless=True)
    line = (tmp_path / "events.jsonl").read_text()
    assert "Infinity" not in line
    assert "NaN" not in line
    event = event_from_json(json.loads(line))
    assert isinstance(event, Eval)
    assert math.isnan(event.metrics["loss"])
    assert event.metrics["tokens"] == 5.0
    assert event.lossless is True


any_float = st.floats(-1e9, 1e9) | st.just(math.nan) | st.just(math.inf)


@given(
    st.builds(
        Step,
        t=st.floats(0, 1e7),
        step=st.integers(0, 10**9),
        role=st.text(max_size=5),
        device=st.sampled_from(["cpu", "cuda:0", 'a "quoted" one']),
        seconds=st.floats(0, 1e4) | st.just(math.inf),
        tokens=st.integers(0, 10**12),
        padding=st.integers(0, 10**12),
        phases=st.dictionaries(st.text(max_size=5), st.floats(0, 1e4)),
        metrics=st.dictionaries(st.text(max_size=5), any_float),
    )
)
def test_any_step_is_valid_json_and_comes_back(step: Step) -> None:
    with tempfile.TemporaryDirectory() as name:
        Recorder(Path(name), 0.0).write(step)
        text = (Path(name) / "events.jsonl").read_text()
    data = json.loads(text, parse_constant=lambda constant: pytest.fail(f"{constant} is not JSON"))
    assert (data["t"], data["step"], data["role"], data["device"]) == (
        pytest.approx(step.t, abs=1e-9), step.step, step.role, step.device
    )  # fmt: skip
    assert data["seconds"] == (pytest.approx(step.seconds, abs=1e-9) if math.isfinite(step.seconds) else None)
    assert (data["tokens"], data["padding"]) == (step.tokens, step.padding)
    assert data["phases"] == pytest.approx(step.phases, abs=1e-9)
    back = event_from_json(data)
    assert isinstance(back, Step)
    finite = {k: v for k, v in step.metrics.items() if math.isfinite(v)}
    assert {k: v for k, v in back.metrics.items() if not math.isnan(v)} == finite  # bit for bit
    assert set(back.metrics) == set(step.metrics)


def test_threads_share_a_recorder_without_torn_lines(tmp_path: Path) -> None:
    record = recorder(tmp_path)

    def work(device: int) -> None:
        for number in range(1, 201):
            with record.step(number, device=f"cuda:{device}") as step:
                step.count(tokens=device)

    threads = [threading.Thread(target=work, args=(device,)) for device in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    written = lines(tmp_path)
    assert len(written) == 800
    for device in range(4):
        assert [line["step"] for line in written if line["device"] == f"cuda:{device}"] == list(range(1, 201))


def test_without_a_run_events_go_nowhere_and_the_config_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HARNESS_RUN", raising=False)
    record = Recorder.from_environment()
    with record.step(1) as step:
        step.count(tokens=1)
    record.finished()
    assert record.config(Config) == Config()
    assert record.folder is None


@dataclass(frozen=True)
class Config:
    batch: int = workload(8)
    compile: str = execution("inductor")


def test_the_config_is_the_one_of_the_spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_RUN", str(tmp_path))
    monkeypatch.setenv("HARNESS_T0", repr(time.monotonic() - 100))
    (tmp_path / "spec.json").write_text(json.dumps({"schema": 1, "config": {"batch": 4, "compile": "no"}}))
    record = Recorder.from_environment()
    assert record.config(Config) == Config(4, "no")
    assert 100 <= record.now() < 110
    (tmp_path / "spec.json").write_text(json.dumps({"config": {"batch": 4, "compile": "no", "bath": 1}}))
    with pytest.raises(UsageError, match="bath"):
        record.config(Config)


def test_what_a_child_imports_is_the_standard_library_alone() -> None:
    """In an interpreter without site-packages, and with the package's own imports of the base only."""
    code = (
        "import sys, harness.run.events\nours = sorted(m for m in sys.modules if m.startswith('harness'))\nprint(ours)"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-S", "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(
        ["harness", "harness.config", "harness.errors", "harness.records", "harness.run", "harness.run.events"]
    )
