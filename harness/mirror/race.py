"""Records a race in MLflow: one MLflow run a race, in an experiment of its own. A process, as the mirror of runs is:

    python -m harness.mirror.race FOLDER --uri URI

It sends what ``race.json`` in the folder says: the grid as params, of each cell a point a try (1 passed, 0 not), the
record and the table as files. A race that MLflow has already is not sent again. ``mirror.json`` says what came of it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.mirror.content import spell
from harness.mirror.follower import MirrorResult, last_line, tracking_uri
from harness.mirror.points import Point
from harness.places import Places
from harness.run.folder import RunFolder
from harness.run.race.record import metric_key

EXPERIMENT = "race"
RECORD, TABLE = "race.json", "table.txt"
TIMEOUT_S = 120.0  # MLflow's import takes ten of them on a slow machine


def mirror_race(folder: Path, places: Places, timeout: float = TIMEOUT_S) -> MirrorResult:
    """Send the race in ``folder`` to MLflow, in a process of its own; a failure says why, and costs nothing else."""
    uri = tracking_uri(places)
    command = [sys.executable, "-m", "harness.mirror.race", str(folder), "--uri", uri]
    try:
        done = subprocess.run(
            command, cwd=places.root, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        return MirrorResult("failed", uri, None, f"MLflow did not take the race in {timeout:.0f} s")
    told = RunFolder(folder).read_json("mirror.json") or {}
    if done.returncode:
        reason = told.get("reason") or last_line(done.stderr.decode(errors="replace")) or "it did not say why"
        return MirrorResult("failed", uri, None, reason)
    return MirrorResult("mirrored", uri, told["mlflow_run_id"])


def params(race: Mapping[str, Any]) -> dict[str, str]:
    """The grid as it was asked for."""
    grid = {name: value for name, value in race["grid"].items() if name != "places"}
    lists = {name: ", ".join(value) if isinstance(value, list) else spell(value) for name, value in grid.items()}
    places = race["grid"]["places"]
    return {
        "envs": ", ".join(place["env"] for place in places),
        "torch": ", ".join(place["torch"] for place in places),
        "device": ", ".join(sorted({place["device"] for place in places})),
        **lists,
    }


def points(race: Mapping[str, Any]) -> list[Point]:
    """Of each cell a point a try, whose step is the try's number: 1 where it passed."""
    began = race["began_at"]
    return [
        Point(metric_key(made["cell"]), float(made["outcome"] == "passed"), made["began_at"] - began, made["number"])
        for made in race["tries"]
    ]


def send(folder: Path, uri: str) -> str:
    """Send the race, unless it is there. Returns the MLflow run's id. Raises one of ``tracking.FAULTS``."""
    from harness.mirror import tracking  # mlflow takes seconds to load: only in this process

    race = RunFolder(folder).read_json(RECORD) or {}
    client = tracking.open_store(uri)
    experiment = tracking.experiment_id(client, EXPERIMENT, uri)
    there = client.search_runs([experiment], f"tags.`harness.race_id` = '{folder.name}'", max_results=1)
    if there and there[0].info.status == "FINISHED":
        return str(there[0].info.run_id)
    start = int(1000 * race["began_at"])
    tags = {"harness.race_id": folder.name, "harness.folder": str(folder)}
    run = there[0] if there else client.create_run(experiment, start_time=start, tags=tags, run_name=folder.name)
    run_id = str(run.info.run_id)
    sent = {(key, point.step) for key in run.data.metrics for point in client.get_metric_history(run_id, key)}
    tracking.log(
        client, run_id, params(race), [p for p in points(race) if (p.key, p.step) not in sent], race["began_at"]
    )
    for name in (RECORD, TABLE):
        client.log_artifact(run_id, str(folder / name))
    client.set_terminated(run_id, "KILLED" if race["interrupted"] else "FINISHED")
    return run_id


def main(argv: Sequence[str]) -> int:
    """The process: see the module's first lines."""
    parser = argparse.ArgumentParser(prog="python -m harness.mirror.race")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--uri", required=True)
    options = parser.parse_args(argv)
    from harness.mirror import tracking

    state: dict[str, Any] = {"tracking_uri": options.uri, "mlflow_run_id": None, "reason": ""}
    try:
        state["mlflow_run_id"] = send(options.folder, options.uri)
    except tracking.FAULTS as error:
        state["reason"] = f"{options.uri}: {tracking.in_brief(error)}"
    RunFolder(options.folder).write_json("mirror.json", state)
    return 1 if state["reason"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
