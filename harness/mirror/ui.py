"""MLflow's web UI on the store that runs are mirrored to: ``nox -s ui``."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.errors import HarnessError
from harness.mirror.follower import create_store, tracking_uri
from harness.places import Places

PORT = 5000
START_S = 180.0  # MLflow's import alone takes ten seconds on a slow machine
STOP_S = 10.0
REACH_S = 10.0  # for a server that somebody else started


@dataclass(frozen=True)
class Ui:
    """Where the UI is; ``process`` is None where it is somebody else's server."""

    url: str
    process: subprocess.Popen[bytes] | None

    @property
    def page(self) -> str:
        """The page to open: the experiments as training runs, not as traces of a language model."""
        return f"{self.url}/#/experiments?workflowType=machine_learning"

    def wait(self) -> int:
        """Until the server ends by itself; its exit code."""
        return self.process.wait() if self.process else 0


@contextmanager
def served(places: Places, port: int = PORT) -> Iterator[Ui]:
    """The UI, answering, for as long as the context lasts; another port where ``port`` is taken.

    A tracking server in MLFLOW_TRACKING_URI has a UI of its own: then its address is given and nothing is started.
    Raises HarnessError, with the server's last words, where it does not come up.
    """
    uri = tracking_uri(places)
    if uri.startswith(("http://", "https://")):
        _await_answer(Ui(uri, None), places.mlflow / "server.log", REACH_S)
        yield Ui(uri, None)
        return
    create_store(places)
    places.mlflow.mkdir(parents=True, exist_ok=True)
    log = places.mlflow / "server.log"
    ui = _start(places, uri, free_port(port), log)
    try:
        _await_answer(ui, log)
        yield ui
    finally:
        _stop(ui)


def free_port(wanted: int) -> int:
    """``wanted`` where nobody listens there on this machine, or else one that is free now."""
    for port in (wanted, 0):
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(listener.getsockname()[1])
    raise HarnessError("no port is free on 127.0.0.1")


def _start(places: Places, uri: str, port: int, log: Path) -> Ui:
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    store = ["--backend-store-uri", uri, "--default-artifact-root", (places.mlflow / "artifacts").as_uri()]
    # No calls home; and no job runner, which serves evaluation of language models and takes four more processes.
    quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*command, *store],
            cwd=places.mlflow,
            env={**os.environ, **quiet},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,  # Ctrl-C comes to the harness alone, which then ends the server in order
        )
    return Ui(f"http://127.0.0.1:{port}", process)


def _await_answer(ui: Ui, log: Path, seconds: float = START_S) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if ui.process is not None and ui.process.poll() is not None:
            last = (log.read_text("utf-8", "replace").strip().splitlines() or ["it said nothing"])[-1]
            raise HarnessError(f"the MLflow server ended at once: {last}; all it said is in {log}")
        try:
            with urllib.request.urlopen(f"{ui.url}/health", timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    said = f"; what it said is in {log}" if ui.process else "; is MLFLOW_TRACKING_URI right?"
    raise HarnessError(f"the MLflow server at {ui.url} did not answer in {seconds:.0f} s{said}")


def _stop(ui: Ui) -> None:
    """End the server and its workers: politely, then for good."""
    if ui.process is None:
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(ui.process.pid, number)
            ui.process.wait(STOP_S)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
    ui.process.wait()
