"""Asks MLflow for a run that it knows, by a process of its own (``harness.mirror.reading``)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from harness.errors import HarnessError, UsageError
from harness.mirror.follower import database, last_line, tracking_uri
from harness.places import Places
from harness.run.imported.tracker import Logged, LoggedRun

UNKNOWN = 2
"""Exit code of a reading that found no such run."""

RECORD = "run.json"
FILES = "files"


def fetch(run_id: str, places: Places, into: Path) -> LoggedRun:
    """The run ``run_id`` of the tracking server, or else of the embedded store; files go into the folder ``into``.

    Raises UsageError where there is no such run, HarnessError where MLflow does not answer.
    """
    uri = tracking_uri(places)
    embedded = database(uri)
    if embedded is not None and not embedded.exists():
        raise UsageError(f"there is no MLflow store at {uri}: set MLFLOW_TRACKING_URI to the one that has {run_id}")
    command = [sys.executable, "-m", "harness.mirror.reading", run_id, "--uri", uri, "--into", str(into)]
    done = subprocess.run(command, cwd=places.root, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode == UNKNOWN:
        raise UsageError(f"MLflow at {uri} knows no run {run_id}; set MLFLOW_TRACKING_URI where another one does")
    if done.returncode:
        why = last_line(done.stderr.decode(errors="replace")) or f"its process ended with {done.returncode}"
        raise HarnessError(f"MLflow at {uri} did not give the run: {why}; is MLFLOW_TRACKING_URI right?")
    return _run(json.loads((into / RECORD).read_text("utf-8")), into)


def _run(data: dict[str, Any], into: Path) -> LoggedRun:
    metrics = {key: [Logged(*point) for point in points] for key, points in data.pop("metrics").items()}
    files = {path.name: str(path) for path in (into / FILES).glob("*") if path.is_file()}
    return LoggedRun(**data, metrics=metrics, files=files)
