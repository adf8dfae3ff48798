"""A run that MLflow knows is read whole; one that it does not know, or a store that is not there, is said in a line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Metric, Param

from harness.errors import HarnessError, UsageError
from harness.mirror import logged, reading, tracking
from harness.places import Places
from tests import samples

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:mlflow", "ignore:The ``noload`` loader")

ROOT = Path(__file__).resolve().parents[2]
START = 1_795_000_000_000
NOWHERE = "http://127.0.0.1:9"  # the discard port: refused at once


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One embedded store for the module: making one takes seconds."""
    return f"sqlite:///{tmp_path_factory.mktemp('store') / 'mlflow.db'}"


@pytest.fixture(scope="module")
def client(uri: str) -> MlflowClient:
    return tracking.open_store(uri)


@pytest.fixture(scope="module")
def run_id(client: MlflowClient) -> str:
    """A run as somebody's own trainer logs it."""
    run = client.create_run(client.create_experiment("theirs"), start_time=START, run_name="gentle-owl")
    metrics = [Metric("train/loss", 5 / n, START + 1000 * n, 10 * n) for n in range(12, 0, -1)]
    client.log_batch(run.info.run_id, metrics=metrics, params=[Param("max_seq_length", "4096")])
    client.set_terminated(run.info.run_id, "FINISHED", START + 13_000)
    return str(run.info.run_id)


def read(run_id: str, uri: str, into: Path) -> int:
    return reading.main([run_id, "--uri", uri, "--into", str(into)])


def test_a_run_is_read_with_its_points_in_order(run_id: str, uri: str, tmp_path: Path) -> None:
    assert read(run_id, uri, tmp_path) == 0
    run = logged._run(json.loads((tmp_path / "run.json").read_text()), tmp_path)
    assert (run.id, run.name, run.status, run.started_at) == (run_id, "gentle-owl", "finished", START / 1000)
    assert run.ended_at == START / 1000 + 13
    assert run.metrics["train/loss"] == [(float(n), 10 * n, 5 / n) for n in range(1, 13)]
    assert run.params == {"max_seq_length": "4096"}
    assert run.files == {}


def test_a_run_that_never_ended_is_not_running_here(client: MlflowClient, uri: str, tmp_path: Path) -> None:
    run = client.create_run("0")
    assert read(run.info.run_id, uri, tmp_path) == 0
    found = logged._run(json.loads((tmp_path / "run.json").read_text()), tmp_path)
    assert (found.status, found.ended_at) == ("killed", None)
    assert found.said == "RUNNING: it still runs, or died without a word"


def test_the_files_of_a_run_that_a_harness_mirrored_come_too(uri: str, tmp_path: Path) -> None:
    folder = samples.recorded(tmp_path / "runs")
    mirrored = tracking.mirror(folder.path, uri)
    (tmp_path / "into").mkdir()
    assert read(str(mirrored.mlflow_run_id), uri, tmp_path / "into") == 0
    run = logged._run(json.loads((tmp_path / "into" / "run.json").read_text()), tmp_path / "into")
    assert run.harness_id == folder.id
    for name in ("spec.json", "events.jsonl", "result.json"):
        assert Path(run.files[name]).read_bytes() == (folder.path / name).read_bytes()


def test_what_cannot_be_read_is_told_apart(
    uri: str, client: MlflowClient, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert client
    assert read("f" * 32, uri, tmp_path) == logged.UNKNOWN
    assert read("f" * 32, NOWHERE, tmp_path) == 1
    assert capfd.readouterr().err == "not reached (Connection refused)\n"


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    where = Places(root=ROOT, state=tmp_path / "state", runs=tmp_path / "runs")
    with pytest.raises(UsageError, match=r"there is no MLflow store at sqlite:.*: set MLFLOW_TRACKING_URI"):
        logged.fetch("f" * 32, where, tmp_path)
    assert not (tmp_path / "state").exists()


@pytest.mark.slow
def test_the_process_that_reads_says_what_went_wrong(
    run_id: str, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = Places(root=ROOT, state=tmp_path / "state", runs=tmp_path / "runs")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    assert logged.fetch(run_id, where, tmp_path).name == "gentle-owl"
    with pytest.raises(UsageError, match=f"knows no run {'f' * 32}"):
        logged.fetch("f" * 32, where, tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", NOWHERE)
    with pytest.raises(HarnessError, match=r"did not give the run: not reached \(Connection refused\); is MLFLOW_"):
        logged.fetch(run_id, where, tmp_path)
