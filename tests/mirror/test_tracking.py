"""MLflow holds what the run folder says: once, whole, with the right status; and a run never waits for it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from harness.mirror import tracking
from harness.mirror.follower import MirrorState, create_store, finish, mirror_once, start_follower
from harness.mirror.source import PointSource
from harness.places import Places
from harness.records import Status
from harness.run.folder import RunFolder
from tests import samples

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:mlflow", "ignore:The ``noload`` loader")

ROOT = Path(__file__).resolve().parents[2]
RUN_ID = "20261129-172855-tiny-3f2a"
NOWHERE = "http://127.0.0.1:9"  # the discard port: refused at once


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One embedded store for the module: making one takes seconds."""
    return f"sqlite:///{tmp_path_factory.mktemp('store') / 'mlflow.db'}"


@pytest.fixture
def new_id() -> Callable[[], str]:
    """Run ids that no test of the module had: they share a store."""
    return lambda: f"20261129-172855-tiny-{os.urandom(4).hex()}"


def everything(uri: str, run_id: str) -> dict[str, Any]:
    """All that MLflow says of the run, in one value that can be compared."""
    client = tracking.open_store(uri)
    runs = client.search_runs(
        [e.experiment_id for e in client.search_experiments()], f"tags.`harness.run_id` = '{run_id}'"
    )
    (run,) = runs  # exactly one
    points = {
        key: sorted((m.timestamp, m.step, m.value) for m in client.get_metric_history(run.info.run_id, key))
        for key in run.data.metrics
    }
    inputs = run.inputs.dataset_inputs if run.inputs else []
    return {
        "id": run.info.run_id,
        "experiment": client.get_experiment(run.info.experiment_id).name,
        "name": run.info.run_name,
        "status": run.info.status,
        "start": run.info.start_time,
        "end": run.info.end_time,
        "params": dict(run.data.params),
        "tags": dict(run.data.tags),
        "points": points,
        "inputs": [(i.dataset.name, i.dataset.digest, len(i.tags)) for i in inputs],
        "artifacts": {a.path: a.file_size for a in client.list_artifacts(run.info.run_id)},
    }


def points_in(folder: RunFolder) -> int:
    source = PointSource(folder.path)
    source.read()
    source.close(folder.load())
    return len(source.events) + len(source.telemetry)


def test_mlflow_holds_what_the_folder_says(tmp_path: Path, uri: str, new_id: Callable[[], str]) -> None:
    folder = samples.recorded(tmp_path, new_id())
    result = tracking.mirror(folder.path, uri)
    assert result.status == "mirrored"
    seen = everything(uri, folder.id)
    assert folder.load().mlflow_run_id == seen["id"] == result.mlflow_run_id
    assert (seen["experiment"], seen["name"], seen["status"]) == ("tiny", folder.id, "FINISHED")
    assert (seen["start"], seen["end"]) == (1000 * samples.STARTED_AT, 1000 * (samples.STARTED_AT + 20))
    assert seen["params"] == {
        "train.batch": "8",
        "train.lr": "0.0003",
        "train.steps": "40",
        "compile": "inductor",
        "workload.data.digest": "d" * 64,
        "workload.data.sequences": "900",
    }
    assert seen["tags"]["harness.torch"] == "2.13.0+cpu"
    assert seen["tags"]["harness.lock"] == "ab" * 32
    assert seen["tags"]["harness.cache_start"] == "cold"
    assert "harness.gpu" not in seen["tags"]  # not recorded, so not claimed
    assert "1.02 → 2.31" in seen["tags"]["mlflow.note.content"]
    assert seen["inputs"] == [("tiny data", "d" * 36, 1)]
    assert {"spec.json", "fingerprint.json", "lock.txt", "events.jsonl", "telemetry.jsonl", "result.json"} <= set(
        seen["artifacts"]
    )
    assert [value for _, _, value in seen["points"]["accept_length"]] == [1.02, 2.31]
    assert [step for _, step, _ in seen["points"]["loss"]] == list(range(1, 41))
    assert seen["points"]["throughput/steady_ktok_s"][0][2] == 20.0
    first = seen["points"]["phase/target_ms"][0]
    assert first[0] == pytest.approx(1000 * (samples.STARTED_AT + 9.2), abs=1)
    assert sum(len(points) for points in seen["points"].values()) == points_in(folder)


def test_a_second_mirror_changes_nothing(tmp_path: Path, uri: str, new_id: Callable[[], str]) -> None:
    folder = samples.recorded(tmp_path, new_id())
    tracking.mirror(folder.path, uri)
    before, files = everything(uri, folder.id), (folder.path / "mirror.json").read_bytes()
    assert tracking.mirror(folder.path, uri).status == "unchanged"
    assert everything(uri, folder.id) == before
    assert (folder.path / "mirror.json").read_bytes() == files


def test_a_copied_folder_without_its_state_finds_its_run(tmp_path: Path, uri: str, new_id: Callable[[], str]) -> None:
    """The points are all sent again, and MLflow has each once."""
    folder = samples.recorded(tmp_path, new_id())
    tracking.mirror(folder.path, uri)
    before = everything(uri, folder.id)
    (folder.path / "mirror.json").unlink()
    assert tracking.mirror(folder.path, uri).status == "mirrored"
    assert everything(uri, folder.id) == before


def test_a_mirror_that_died_goes_on_where_it_was(
    tmp_path: Path, uri: str, new_id: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = samples.recorded(tmp_path / "whole", new_id())
    tracking.mirror(whole.path, uri)
    folder = samples.recorded(tmp_path / "torn", new_id())
    monkeypatch.setattr(tracking, "MAX_METRICS", 100)
    sent = 0
    log_batch = MlflowClient.log_batch

    def failing(self: Any, run_id: str, **kinds: Any) -> None:
        nonlocal sent
        sent += "metrics" in kinds
        log_batch(self, run_id, **kinds)
        if sent == 2:  # MLflow took the batch, and the answer was lost
            sent += 1
            raise ConnectionError("reset by peer")

    monkeypatch.setattr(MlflowClient, "log_batch", failing)
    result = tracking.mirror(folder.path, uri)
    assert (result.status, "reset by peer" in result.reason) == ("failed", True)
    assert tracking.mirror(folder.path, uri).status == "mirrored"
    assert MirrorState.load(folder.path).reason == ""
    assert everything(uri, folder.id)["points"] == everything(uri, whole.id)["points"]


@pytest.mark.parametrize(("status", "shown"), [("failed", "FAILED"), ("killed", "KILLED")])
def test_a_bad_end_is_shown_as_one(
    tmp_path: Path, uri: str, new_id: Callable[[], str], status: Status, shown: str
) -> None:
    folder = samples.begin(tmp_path, new_id())
    samples.append(folder, samples.events()[:20])
    samples.end(folder, status, reason="signal 9")
    tracking.mirror(folder.path, uri)
    seen = everything(uri, folder.id)
    assert seen["status"] == shown
    assert seen["tags"]["harness.reason"] == "signal 9"


def test_a_run_whose_harness_is_gone_was_killed(tmp_path: Path, uri: str, new_id: Callable[[], str]) -> None:
    folder = samples.begin(tmp_path, new_id())
    samples.append(folder, samples.events()[:20])
    with folder.held():
        tracking.mirror(folder.path, uri)
        assert everything(uri, folder.id)["status"] == "RUNNING"
    tracking.mirror(folder.path, uri)
    assert everything(uri, folder.id)["status"] == "KILLED"


def test_a_live_run_is_filled_in_pieces(tmp_path: Path, uri: str, new_id: Callable[[], str]) -> None:
    """The pieces come to the same points as the whole: a reader of the UI cannot tell how it was sent."""
    whole = samples.recorded(tmp_path / "whole", new_id())
    tracking.mirror(whole.path, uri)
    folder = samples.begin(tmp_path / "live", new_id())
    said = samples.events()
    with folder.held():
        work = tracking.Mirror(folder.path, uri)
        for start in range(0, len(said), 11):
            samples.append(folder, said[start : start + 11])
            assert work.round() is False
        assert len(everything(uri, folder.id)["points"]["loss"]) == 39  # the last step may still get a device
    samples.end(folder)
    assert work.round() is True
    live, at_once = everything(uri, folder.id), everything(uri, whole.id)
    assert live["points"] == at_once["points"]
    assert live["status"] == "FINISHED"


def test_a_command_that_is_not_ours_has_its_command_as_a_param(
    tmp_path: Path, uri: str, new_id: Callable[[], str]
) -> None:
    folder = samples.recorded(tmp_path, new_id(), recipe="", config={})
    tracking.mirror(folder.path, uri)
    seen = everything(uri, folder.id)
    assert seen["experiment"] == "command"
    assert seen["params"]["command"] == "./train.sh --fast 'a b'"


def test_more_and_longer_than_mlflow_takes(tmp_path: Path, uri: str, new_id: Callable[[], str]) -> None:
    """250 settings, one of 10,000 characters, one with a name that MLflow refuses: clipped, not lost."""
    config = {f"many.{n}": n for n in range(250)} | {"long": "x" * 10_000, "odd[0]=y": 1, "k" * 400: 2}
    folder = samples.recorded(tmp_path, new_id(), config=config)
    assert tracking.mirror(folder.path, uri).status == "mirrored"
    params = everything(uri, folder.id)["params"]
    assert len(params["long"]) == 6000
    assert params["odd_0__y"] == "1"
    assert params["k" * 250] == "2"
    assert params["many.249"] == "249"


def test_nobody_there_is_one_line(tmp_path: Path) -> None:
    folder = samples.recorded(tmp_path)
    result = tracking.mirror(folder.path, NOWHERE)
    assert result.status == "failed"
    assert NOWHERE in result.reason
    assert "\n" not in result.reason
    assert MirrorState.load(folder.path).reason == result.reason


def test_a_deleted_experiment_is_not_revived_behind_its_owners_back(tmp_path: Path, uri: str) -> None:
    client = tracking.open_store(uri)
    client.delete_experiment(client.create_experiment("gone"))
    result = tracking.mirror(samples.recorded(tmp_path, RUN_ID, recipe="gone").path, uri)
    assert result.status == "failed"
    assert "mlflow experiments restore" in result.reason


def test_two_mirrors_of_one_folder_do_not_work_at_once(tmp_path: Path, uri: str) -> None:
    folder = samples.recorded(tmp_path)
    with tracking._alone(folder.path) as alone:
        assert alone
        assert tracking.mirror(folder.path, uri).status == "busy"


@pytest.fixture
def where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return Places(root=ROOT, state=tmp_path / "state", runs=tmp_path / "runs")


@pytest.mark.slow
def test_the_follower_sees_a_run_through(where: Places) -> None:
    """The process as the harness starts it: beside a run that begins, trains and ends."""
    folder = samples.begin(where.runs, RUN_ID)
    said = samples.events()
    with folder.held():
        follower = start_follower(folder.path, where)
        samples.append(folder, said[:20])
        deadline = time.monotonic() + 120
        while MirrorState.load(folder.path).points == 0:
            assert follower.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        samples.append(folder, said[20:])
        samples.end(folder)
        time.sleep(1.5)  # it looks twice a second, and waits until it is told that nothing more comes
        (folder.path / "explanation.html").write_text("<p>later than the end</p>")
    result = finish(follower, folder.path, timeout=120)
    assert "explanation.html" in MirrorState.load(folder.path).artifacts
    assert (result.status, result.reason) == ("mirrored", "")
    seen = everything(result.tracking_uri, folder.id)
    assert seen["status"] == "FINISHED"
    assert sum(len(points) for points in seen["points"].values()) == points_in(folder)
    assert mirror_once(folder.path, where).status == "unchanged"


@pytest.mark.slow
def test_six_processes_open_a_new_store_at_once(where: Places) -> None:
    """MLflow's own migrations break when two run at once; ours wait for each other."""
    command = [sys.executable, "-m", "harness.mirror.tracking", "--create", "--uri"]
    uri = f"sqlite:///{where.mlflow / 'mlflow.db'}"
    makers = [subprocess.Popen([*command, uri], cwd=ROOT, stderr=subprocess.PIPE) for _ in range(6)]
    said = [maker.communicate()[1].decode() for maker in makers]
    assert [maker.returncode for maker in makers] == [0] * 6, said
    create_store(where)
    assert tracking.open_store(uri).search_experiments()
