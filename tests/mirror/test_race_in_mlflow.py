"""MLflow holds a race as its record says: the grid, a point a try, the files; once."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from harness.mirror import race as mirror
from harness.mirror import tracking
from harness.places import Places
from harness.run.folder import RunFolder
from harness.run.race.grid import Grid, Place
from harness.run.race.outcome import Verdict
from harness.run.race.record import Race, Try, metric_key
from harness.view.race import table

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:mlflow", "ignore:The ``noload`` loader")


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('store') / 'mlflow.db'}"


def recorded(races: Path, interrupted: bool = False) -> Race:
    """A race of two cells, of which the first passed one of two tries and the second was tried once."""
    grid = Grid((Place("cpu", "2.13.0+cpu"),), ("inductor",), ("none", "compile_guard"), ("static",), tries=2)
    race = Race.begin(races, grid, {"environment.cpu.count": 2})
    race.interrupted = interrupted
    first, second = grid.cells()
    for number, verdict in enumerate((Verdict("passed"), Verdict("segfault", "SIGSEGV", seen=3)), 1):
        race.add(Try(first, number, verdict, 1.5, race.began_at + number))
    race.add(Try(second, 1, Verdict("passed"), 1.5, race.began_at + 3))
    text = Console(file=io.StringIO(), width=160)
    text.print(table(race.tallies(), 2))
    RunFolder(race.folder).write_text(mirror.TABLE, text.file.getvalue())  # type: ignore[attr-defined]
    RunFolder(race.folder).write_json(mirror.RECORD, race.to_json())
    return race


def everything(uri: str, run_id: str) -> dict[str, Any]:
    client = tracking.open_store(uri)
    run = client.get_run(run_id)
    return {
        "experiment": client.get_experiment(run.info.experiment_id).name,
        "name": run.info.run_name,
        "status": run.info.status,
        "params": dict(run.data.params),
        "points": {
            key: [(point.step, point.value) for point in client.get_metric_history(run_id, key)]
            for key in run.data.metrics
        },
        "files": sorted(item.path for item in client.list_artifacts(run_id)),
    }


def test_mlflow_holds_what_the_record_says(tmp_path: Path, uri: str) -> None:
    race = recorded(tmp_path)
    run_id = mirror.send(race.folder, uri)
    seen = everything(uri, run_id)
    assert (seen["experiment"], seen["name"], seen["status"]) == ("race", race.id, "FINISHED")
    assert seen["params"] == {
        "envs": "cpu",
        "torch": "2.13.0+cpu",
        "device": "cpu",
        "backends": "inductor",
        "guards": "none, compile_guard",
        "shapes": "static",
        "backward": "false",
        "threads": "3",
        "tries": "2",
        "timeout": "300",
    }
    first, second = (metric_key(cell.key) for cell in race.grid.cells())
    assert seen["points"] == {first: [(1, 1.0), (2, 0.0)], second: [(1, 1.0)]}
    assert seen["files"] == ["race.json", "table.txt"]
    assert mirror.send(race.folder, uri) == run_id  # and a second time changes nothing
    assert everything(uri, run_id) == seen


def test_one_that_was_cut_short_in_sending_is_filled_up(
    tmp_path: Path, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    race = recorded(tmp_path, interrupted=True)
    whole = tracking.Client.log_artifact

    def gone(*_: object, **__: object) -> None:
        raise ConnectionError("gone")

    monkeypatch.setattr(tracking.Client, "log_artifact", gone)
    with pytest.raises(ConnectionError):
        mirror.send(race.folder, uri)
    monkeypatch.setattr(tracking.Client, "log_artifact", whole)
    seen = everything(uri, mirror.send(race.folder, uri))
    assert sorted(len(points) for points in seen["points"].values()) == [1, 2]  # none twice
    assert (seen["status"], len(seen["files"])) == ("KILLED", 2)


NOWHERE = "http://127.0.0.1:9"  # the discard port: refused at once
REASON = f"{NOWHERE}: not reached (Connection refused)"


def test_mlflow_that_is_away_gives_a_reason(tmp_path: Path) -> None:
    race = recorded(tmp_path)
    assert mirror.main([str(race.folder), "--uri", NOWHERE]) == 1
    told = RunFolder(race.folder).read_json("mirror.json") or {}
    assert (told["mlflow_run_id"], told["reason"]) == (None, REASON)


@pytest.mark.slow
def test_the_process_passes_the_reason_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", NOWHERE)
    root = Path(__file__).resolve().parents[2]
    result = mirror.mirror_race(recorded(tmp_path).folder, Places(root, tmp_path, tmp_path))
    assert (result.status, result.reason) == ("failed", REASON)
