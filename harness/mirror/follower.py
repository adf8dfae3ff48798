"""MLflow is a mirror of the run folder, held up by a process of its own. Standard library only.

The process (``harness.mirror.tracking``) follows the folder's files, so that MLflow's slow import, its retries and its
hangs never touch the run. What it did is in ``mirror.json``, where the harness reads it.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from harness.errors import HarnessError
from harness.places import Places
from harness.records import known_fields
from harness.run.folder import RunFolder

BUSY = 3
"""Exit code of a mirror that found another one at work on the same folder."""


@dataclass(frozen=True)
class MirrorState:
    """``mirror.json``: how far the mirror has got.

    points, samples    how many points of the events and of the telemetry MLflow has
    artifacts          SHA-256 of each file as MLflow has it
    source             what the folder's files were when everything was sent
    reason             one line, where MLflow could not be reached or refused; empty where all is well
    """

    tracking_uri: str = ""
    mlflow_run_id: str | None = None
    experiment_id: str | None = None
    points: int = 0
    samples: int = 0
    artifacts: dict[str, str] = field(default_factory=dict)
    source: str = ""
    complete: bool = False
    reason: str = ""

    @classmethod
    def load(cls, folder: Path) -> MirrorState:
        """What is known; an empty state where nothing was mirrored yet."""
        data = RunFolder(folder).read_json("mirror.json") or {}
        return known_fields(cls, data)

    def save(self, folder: Path) -> None:
        """Replace the file in one step, so that a reader never sees half of it."""
        RunFolder(folder).write_json("mirror.json", asdict(self))


@dataclass(frozen=True)
class MirrorResult:
    """What a mirror came to: ``failed`` says why in ``reason``, and the run folder is whole either way."""

    status: Literal["mirrored", "unchanged", "failed", "busy"]
    tracking_uri: str
    mlflow_run_id: str | None
    reason: str = ""


def tracking_uri(places: Places) -> str:
    """``MLFLOW_TRACKING_URI``, or else the embedded store of these places."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{places.mlflow / 'mlflow.db'}"


def start_follower(folder: Path, places: Places) -> subprocess.Popen[bytes]:
    """Start the process that mirrors ``folder`` until its run has ended; what it prints goes to ``mirror.log``.

    It is in a session of its own: Ctrl-C in the terminal ends the run, and the follower then writes how it ended. It
    sends the last files when its standard input ends: at ``finish``, or with this process.
    """
    with (folder / "mirror.log").open("ab") as log:
        return subprocess.Popen(
            [*_command(folder), "--follow", "--uri", tracking_uri(places)],
            cwd=places.root,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def finish(follower: subprocess.Popen[bytes], folder: Path, timeout: float = 60.0) -> MirrorResult:
    """Say that the folder is complete, and wait until the follower has sent it. A late one goes on by itself."""
    if follower.stdin is not None:
        follower.stdin.close()
    before = MirrorState.load(folder)
    try:
        code = follower.wait(timeout)
    except subprocess.TimeoutExpired:
        reason = f"MLflow did not take the run in {timeout:.0f} s; the mirror goes on by itself"
        return MirrorResult("failed", before.tracking_uri, before.mlflow_run_id, reason)
    return _outcome(folder, code)


def mirror_once(folder: Path, places: Places) -> MirrorResult:
    """Bring MLflow level with ``folder`` now, in a process of its own; a second time changes nothing."""
    before = MirrorState.load(folder)
    command = [*_command(folder), "--uri", tracking_uri(places)]
    done = subprocess.run(command, cwd=places.root, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    result = _outcome(folder, done.returncode, done.stderr.decode(errors="replace"))
    return MirrorResult(**{**asdict(result), "status": "unchanged"}) if _same(before, result, folder) else result


def create_store(places: Places) -> None:
    """Make the embedded store if it is not there yet. Raises HarnessError with MLflow's last line."""
    if _database_is_made(tracking_uri(places)):
        return
    command = [sys.executable, "-m", "harness.mirror.tracking", "--create", "--uri", tracking_uri(places)]
    done = subprocess.run(command, cwd=places.root, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode:
        why = last_line(done.stderr.decode(errors="replace"))
        raise HarnessError(f"the MLflow store {tracking_uri(places)} cannot be made: {why}")


def database(uri: str) -> Path | None:
    """The file of an embedded store; None for a tracking server and other databases."""
    return Path(uri.removeprefix("sqlite:///")) if uri.startswith("sqlite:///") else None


@contextmanager
def making(database: Path) -> Iterator[None]:
    """One process at a time makes an embedded store: two of MLflow's migrations at once break each other."""
    database.parent.mkdir(parents=True, exist_ok=True)
    with (database.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _database_is_made(uri: str) -> bool:
    """Whether a process that held the lock has made it: spares the seconds that asking MLflow takes."""
    path = database(uri)
    if path is None:
        return False
    with making(path):
        return path.exists() and path.stat().st_size > 0


def _command(folder: Path) -> list[str]:
    return [sys.executable, "-m", "harness.mirror.tracking", str(folder)]


def _outcome(folder: Path, code: int, stderr: str = "") -> MirrorResult:
    state = MirrorState.load(folder)
    if code == BUSY:
        reason = "another mirror of this run is at work; it ends when the run does"
        return MirrorResult("busy", state.tracking_uri, state.mlflow_run_id, reason)
    if code:
        reason = state.reason or last_line(stderr) or f"the mirror ended with code {code}; see {folder / 'mirror.log'}"
        return MirrorResult("failed", state.tracking_uri, state.mlflow_run_id, reason)
    return MirrorResult("mirrored", state.tracking_uri, state.mlflow_run_id)


def _same(before: MirrorState, result: MirrorResult, folder: Path) -> bool:
    return result.status == "mirrored" and before.complete and MirrorState.load(folder) == before


def last_line(text: str) -> str:
    return next((line for line in reversed(text.strip().splitlines()) if line.strip()), "")
