"""A run that MLflow knows: its points are steps, its params are facts, its system metrics are telemetry."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.run.folder import RunFolder
from harness.run.gather import gather
from harness.run.imported.from_tracker import import_tracked
from harness.run.imported.tracker import Logged, LoggedRun, rows_of, telemetry_of
from tests import samples

ID = "0123456789abcdef" * 2


def points(values: Sequence[float], every: float = 2.0, begin: float = 30.0, step: int = 10) -> list[Logged]:
    return [Logged(begin + every * n, step * n, value) for n, value in enumerate(values, 1)]


RUN = LoggedRun(
    id=ID,
    uri="http://server:5000",
    name="Gentle Owl",
    status="finished",
    said="FINISHED",
    started_at=samples.STARTED_AT,
    ended_at=samples.STARTED_AT + 100,
    metrics={
        "train/loss": points([5 / n for n in range(1, 31)]),
        "tokens_per_second": points([21_500.0] * 30),
        "learning_rate": points([1e-4] * 30),
        "eval_loss": points([4.0, 3.0], begin=55.0, step=100, every=10.0),
        "system/cpu_utilization_percentage": points([50.0, 60.0], every=10.0, begin=0.0),
        "system/gpu_0_power_usage_watts": points([300.0, 310.0], every=10.0, begin=0.0),
        "system/gpu_1_memory_usage_megabytes": points([1000.0], every=10.0, begin=0.0),
        "system/network_receive_megabytes": points([3.0], every=10.0, begin=0.0),
    },
    params={"max_seq_length": "4096", "attn_implementation": "sdpa", "note": "x"},
    tags={"mlflow.source.git.commit": "ab" * 20, "mlflow.user": "ann"},
)


def test_points_are_steps_on_the_runs_own_clock(tmp_path: Path) -> None:
    found = import_tracked(RUN, tmp_path, {"workload.data.samples": 9})
    evidence = gather(found.folder)
    steps = evidence.steps["trainer"]
    assert list(steps.step[:3]) == [10, 20, 30]
    assert list(steps.t[:3]) == [32.0, 34.0, 36.0]
    assert list(steps.seconds[:3]) == [32.0, 2.0, 2.0]  # the first takes all that came before it
    assert set(steps.tokens[1:]) == {43_000}
    assert [(e.step, e.metrics) for e in evidence.evals] == [(100, {"loss": 4.0}), (200, {"loss": 3.0})]
    assert evidence.run.result.summary.first_step_s == 32.0
    assert evidence.run.result.started_at == samples.STARTED_AT


def test_params_and_what_a_person_gave_are_its_facts(tmp_path: Path) -> None:
    facts = gather(import_tracked(RUN, tmp_path, {"workload.data.samples": 9}).folder).facts
    assert facts == {
        "workload.data.samples": 9,
        "workload.max_seq_length": 4096,
        "execution.attn_implementation": "sdpa",
        "context.param.note": "x",
        "context.mlflow.user": "ann",
        "context.name": "Gentle Owl",
        "context.imported.from": f"MLflow's {ID} at http://server:5000",
        "code.commit": "ab" * 20,
    }


def test_system_metrics_are_telemetry(tmp_path: Path) -> None:
    assert telemetry_of(RUN)[0] == {
        "schema": 1,
        "t": 10.0,
        "cpu": {"use_pct": 50.0},
        "gpus": [{"index": 0, "power_w": 300.0}, {"index": 1, "memory_used_bytes": 1e9}],
    }
    series = gather(import_tracked(RUN, tmp_path, {}).folder).telemetry
    assert list(series["gpu.0.power_w"].values) == [300.0, 310.0]


def test_steps_that_nobody_numbered_are_counted() -> None:
    metrics = {"loss": [Logged(float(n), 0, 2.0) for n in range(1, 12)], "tok_s": points([9.0] * 11, 1.0, 0.0, 1)}
    rows, _ = rows_of(dataclasses.replace(RUN, metrics=metrics))
    assert [row.step for row in rows] == list(range(1, 12))
    assert {(row.loss, row.rate) for row in rows} == {(2.0, 9.0)}


@pytest.mark.parametrize(("status", "said"), [("failed", "FAILED"), ("killed", "KILLED")])
def test_a_run_that_did_not_end_well_says_so(tmp_path: Path, status: str, said: str) -> None:
    run = dataclasses.replace(RUN, status=status, said=said, metrics={})  # type: ignore[arg-type]
    result = import_tracked(run, tmp_path, {}).folder.load().result
    assert (result.status, result.reason, result.summary.steps) == (status, f"MLflow says {said}", 0)


def test_a_run_that_says_nothing_of_a_step_is_refused(tmp_path: Path) -> None:
    run = dataclasses.replace(RUN, metrics={"learning_rate": points([1.0]), "accuracy": points([0.5])})
    with pytest.raises(UsageError, match="none of its 2 metrics is a loss, tokens, a rate or seconds"):
        import_tracked(run, tmp_path, {})
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_a_harness_mirrored_comes_back_as_it_was(tmp_path: Path) -> None:
    there = samples.recorded(tmp_path / "there")
    files = {path.name: str(path) for path in there.path.iterdir() if path.is_file()}
    run = dataclasses.replace(RUN, tags={"harness.run_id": there.id}, files=files)
    here = tmp_path / "here"
    with pytest.raises(UsageError, match="its facts are recorded, not given"):
        import_tracked(run, here, {"workload.x": 1})
    found = import_tracked(run, here, {})
    assert found.folder == RunFolder(here / there.id)
    assert found.new
    assert dataclasses.replace(found.folder.load(), folder="") == dataclasses.replace(there.load(), folder="")
    assert not import_tracked(run, here, {}).new
    assert [path.name for path in here.iterdir()] == [there.id]
