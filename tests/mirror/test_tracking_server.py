"""A real MLflow server that goes away in mid-run and comes back: nothing lost, nothing doubled, the run untouched."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.mirror.follower import MirrorState, finish, mirror_once, start_follower
from harness.mirror.ui import free_port, served
from harness.places import Places
from tests import samples

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
RUN_ID = "20261129-172855-tiny-3f2a"


def wait_until(true: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_a_server_that_went_away_in_mid_run_gets_the_rest_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    server = Places(root=ROOT, state=tmp_path / "server", runs=tmp_path / "none")
    ours = Places(root=ROOT, state=tmp_path / "state", runs=tmp_path / "runs")
    port = free_port(0)
    uri = f"http://127.0.0.1:{port}"
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    said = samples.events()
    folder = samples.begin(ours.runs, RUN_ID)
    whole = samples.recorded(ours.runs, "20261129-172856-tiny-aaaa")

    with folder.held():
        with served(server, port):
            monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
            follower = start_follower(folder.path, ours)
            samples.append(folder, said[:20])
            wait_until(lambda: MirrorState.load(folder.path).points > 0)
            monkeypatch.delenv("MLFLOW_TRACKING_URI")
        samples.append(folder, said[20:])
        wait_until(lambda: bool(MirrorState.load(folder.path).reason))
        samples.end(folder)
    result = finish(follower, folder.path)
    assert result.status == "failed"
    assert uri in result.reason

    with served(server, port):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        assert mirror_once(folder.path, ours).status == "mirrored"
        assert mirror_once(folder.path, ours).status == "unchanged"
        assert mirror_once(whole.path, ours).status == "mirrored"
        client = mlflow.MlflowClient(uri)
        experiment = client.get_experiment_by_name("tiny")
        assert experiment is not None
        both = client.search_runs([experiment.experiment_id])
        assert sorted(run.info.run_name or "" for run in both) == [RUN_ID, whole.id]
        assert {run.info.status for run in both} == {"FINISHED"}
        histories = [
            {
                key: [(p.timestamp, p.step, p.value) for p in client.get_metric_history(run.info.run_id, key)]
                for key in run.data.metrics
            }
            for run in both
        ]
        assert histories[0] == histories[1]  # as if the server had never been away
        assert len(histories[0]["loss"]) == 40
        sizes = [{a.path: a.file_size for a in client.list_artifacts(run.info.run_id)} for run in both]
        assert sizes[0] == sizes[1]
        assert "events.jsonl" in sizes[0]
