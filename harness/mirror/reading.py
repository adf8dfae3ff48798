"""Reads one run from MLflow, in a process of its own, as ``tracking`` writes them:

    python -m harness.mirror.reading RUN --uri URI --into FOLDER

FOLDER then has ``run.json``, what MLflow says of the run, and in ``files/`` the run folder's own files where a harness
mirrored it. Exit code 2: there is no such run; 1: MLflow did not answer, the last line on standard error says why.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.mirror import content
from harness.mirror.logged import FILES, RECORD, UNKNOWN
from harness.mirror.tracking import FAULTS, STATUS, Client, in_brief, open_store
from harness.records import Status

LOST = "RUNNING: it still runs, or died without a word"
_STATUS: dict[str, Status] = {"FINISHED": "finished", "FAILED": "failed", "KILLED": "killed"}


def read(client: Client, run_id: str, uri: str) -> dict[str, Any]:
    """What MLflow says of the run: a ``LoggedRun`` without its files. A point is (seconds, step, value)."""
    run = client.get_run(run_id)
    info, start = run.info, int(run.info.start_time or 0)
    metrics = {
        key: [((point.timestamp - start) / 1000, point.step, point.value) for point in _history(client, run_id, key)]
        for key in run.data.metrics
    }
    return {
        "id": run_id,
        "uri": uri,
        "name": info.run_name or "",
        "status": _STATUS.get(info.status, "killed"),
        "said": LOST if info.status == STATUS["running"] else info.status,
        "started_at": start / 1000,
        "ended_at": info.end_time / 1000 if info.end_time else None,
        "metrics": metrics,
        "params": dict(run.data.params),
        "tags": dict(run.data.tags),
    }


def _history(client: Client, run_id: str, key: str) -> list[Any]:
    return sorted(client.get_metric_history(run_id, key), key=lambda point: (point.timestamp, point.step))


def copy_files(client: Client, run_id: str, into: Path) -> None:
    """The files of the run folder that this run mirrors, as far as MLflow has them."""
    there = {item.path for item in client.list_artifacts(run_id)}
    for name in content.ARTIFACTS:
        if name in there:
            client.download_artifacts(run_id, name, str(into))


def main(argv: Sequence[str]) -> int:
    """The process: see the module's first lines."""
    parser = argparse.ArgumentParser(prog="python -m harness.mirror.reading")
    parser.add_argument("run")
    parser.add_argument("--uri", required=True)
    parser.add_argument("--into", type=Path, required=True)
    options = parser.parse_args(argv)
    try:
        client = open_store(options.uri)
        said = read(client, options.run, options.uri)
        (options.into / FILES).mkdir()
        if "harness.run_id" in said["tags"]:
            copy_files(client, options.run, options.into / FILES)
    except FAULTS as error:
        if getattr(error, "error_code", "") == "RESOURCE_DOES_NOT_EXIST":
            return UNKNOWN
        sys.stderr.write(f"{in_brief(error)}\n")
        return 1
    (options.into / RECORD).write_text(json.dumps(said), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
