"""Six harnesses, as on six machines, on one MLflow server with PostgreSQL, which dies in the middle: nothing is lost.

It is the server of compose.yaml, its command and variables, with Debian's PostgreSQL in the place of the image.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.mirror.follower import MirrorState
from harness.mirror.source import PointSource
from harness.run.folder import RunFolder, run_folders
from tests import samples
from tests.mirror.composed import ROOT, Database, Server, database, postgres_programs, services

pytestmark = pytest.mark.slow

SECRETS = {"POSTGRES_PASSWORD": "it's p@ss/wörd:%40#"}
STEPS = 900  # below 1,000 each step is a point
STEP_S = 0.12
PAGE = "/api/2.0/mlflow/experiments/search?max_results=1"


@pytest.fixture(scope="module")
def postgres() -> Iterator[Database]:
    programs = postgres_programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    with database(services(SECRETS)["database"]["environment"], programs) as made:
        yield made


@pytest.fixture
def servers() -> Iterator[list[Server]]:
    """What a test starts; killed when it ends."""
    made: list[Server] = []
    yield made
    for server in made:
        server.kill()


@dataclass
class Machine:
    """A harness with run folders of its own, as on a machine of its own; the built environments are this checkout's."""

    runs: Path
    variables: Mapping[str, str]
    process: subprocess.Popen[bytes] | None = None

    def harness(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "harness.cli", *arguments]

    @property
    def environ(self) -> dict[str, str]:
        return {**os.environ, "HARNESS_RUNS": str(self.runs), **self.variables}

    def start(self, seed: int) -> None:
        self.runs.mkdir(parents=True)
        command = self.harness("run", "toy", f"steps={STEPS}", f"seconds={STEP_S}", f"seed={seed}", "--json")
        with (self.runs.parent / f"{self.runs.name}.log").open("wb") as log:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=self.environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    @property
    def folder(self) -> RunFolder:
        (folder,) = run_folders(self.runs)
        return folder

    @property
    def said(self) -> str:
        return (self.runs.parent / f"{self.runs.name}.log").read_text()

    @property
    def state(self) -> MirrorState:
        return MirrorState.load(self.folder.path) if run_folders(self.runs) else MirrorState()

    def mirror(self) -> Any:
        """What ``harness mirror`` says."""
        command = self.harness("mirror", "@1", "--json")
        done = subprocess.run(command, cwd=ROOT, env=self.environ, capture_output=True, text=True, check=False)
        return {**json.loads(done.stdout), "code": done.returncode, "error": done.stderr}


def wait_until(true: Callable[[], bool], why: Callable[[], object], seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, why()
        time.sleep(0.2)


def recorded_steps(folder: RunFolder) -> dict[int, dict[str, float]]:
    """What the run itself wrote of each step, read as plain JSON."""
    lines = map(json.loads, (folder.path / "events.jsonl").read_text().splitlines())
    return {
        line["step"]: {
            "loss": line["metrics"]["loss"],
            "phase/step_ms": 1000 * line["seconds"],
            "throughput/ktok_s": line["tokens"] / line["seconds"] / 1000,
        }
        for line in lines
        if line["kind"] == "step"
    }


def compare(client: Any, folder: RunFolder, status: str) -> int:
    """Assert that MLflow has all of ``folder``, once; how many points that is."""
    experiment = client.get_experiment_by_name("toy")
    found = client.search_runs([experiment.experiment_id], f"tags.`harness.run_id` = '{folder.id}'")
    assert len(found) == 1
    (run,) = found
    assert run.info.status == status
    assert run.data.params["seed"] == str(folder.load().spec.config["seed"])
    held = {
        key: sorted(
            (point.step, point.timestamp, point.value) for point in client.get_metric_history(run.info.run_id, key)
        )
        for key in run.data.metrics
    }
    for key in ("loss", "phase/step_ms", "throughput/ktok_s"):
        assert {step: value for step, _, value in held[key]} == {s: v[key] for s, v in recorded_steps(folder).items()}
        assert len(held[key]) == len(recorded_steps(folder))
    source = PointSource(folder.path)
    source.close(folder.load())
    assert sum(map(len, held.values())) == len(source.events) + len(source.telemetry)
    assert held.keys() == {point.key for point in source.events + source.telemetry}
    files = {item.path: item.file_size for item in client.list_artifacts(run.info.run_id)}
    for name in ("spec.json", "fingerprint.json", "events.jsonl", "result.json", "steps.parquet"):
        if (folder.path / name).exists():
            assert files[name] == (folder.path / name).stat().st_size
    return sum(map(len, held.values()))


@pytest.mark.timeout(1200)
def test_six_harnesses_lose_nothing_when_the_server_dies(
    tmp_path: Path, postgres: Database, servers: list[Server]
) -> None:
    from mlflow import MlflowClient

    began = time.monotonic()

    def clock(what: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {what}")

    server = Server(tmp_path / "server", postgres, SECRETS)
    servers.append(server)
    server.started()
    assert server.healthy()
    assert [server.get(PAGE, Host=host) for host in ("10.1.2.3:5000", "mlflow.lan:5000")] == [200, 403]
    clock("the server answers")

    machines = [Machine(tmp_path / f"machine{n}", {"MLFLOW_TRACKING_URI": server.url}) for n in range(6)]
    for seed, machine in enumerate(machines):
        machine.start(seed)
    told, lost = machines[4], machines[5]

    def all_said() -> str:
        return "\n".join(machine.said for machine in machines)

    wait_until(lambda: all(machine.state.points and not machine.state.reason for machine in machines), all_said)
    clock("all six are in MLflow")
    assert {machine.folder.result().status for machine in machines} == {"running"}, all_said()
    server.kill()
    postgres.lose_power()
    assert not server.healthy()
    wait_until(lambda: all(machine.state.reason for machine in machines), all_said)
    clock("all six have noticed that it is gone")
    assert told.process is not None
    assert lost.process is not None
    told.process.send_signal(signal.SIGTERM)
    lost.process.kill()  # this machine loses its harness too
    assert {machine.folder.result().status for machine in machines[:4]} == {"running"}, all_said()
    held_back = [len(recorded_steps(machine.folder)) for machine in machines]
    postgres.start()
    server.started()
    clock("the server is back")

    codes = [machine.process.wait() for machine in machines if machine.process]
    clock("all six have ended")
    assert codes[:4] == [0] * 4, all_said()
    assert codes[5] == -signal.SIGKILL
    for machine in machines:
        wait_until(lambda of=machine: of.mirror()["status"] in ("mirrored", "unchanged"), all_said)  # type: ignore[misc]
    clock("harness mirror for each")
    assert [machine.mirror()["status"] for machine in (machines[0], lost)] == ["unchanged"] * 2

    client: Any = MlflowClient(server.url)
    statuses = ["FINISHED"] * 4 + ["KILLED"] * 2
    points = [compare(client, machine.folder, status) for machine, status in zip(machines, statuses, strict=True)]
    assert [len(recorded_steps(machine.folder)) for machine in machines[:4]] == [STEPS] * 4
    assert all(0 < len(recorded_steps(machine.folder)) < STEPS for machine in (told, lost))
    assert len(client.search_runs([client.get_experiment_by_name("toy").experiment_id])) == 6
    clock(f"compared: {sum(points):,} points; steps before it was back: {held_back}")


def test_a_server_that_asks_who_is_there(tmp_path: Path, postgres: Database, servers: list[Server]) -> None:
    """MLFLOW_AUTH: no administrator, no start; no name and password, nothing recorded. And the names it goes by."""
    asking = {**SECRETS, "MLFLOW_AUTH": "1", "MLFLOW_ALLOWED_HOSTS": "mlflow.lan:5000,127.0.0.1:*"}
    open_to_all = Server(tmp_path / "without", postgres, {**asking, "MLFLOW_FLASK_SERVER_SECRET_KEY": "s" * 32})
    servers.append(open_to_all)
    open_to_all.start()
    assert open_to_all.process is not None
    wait_until(lambda: "MLFLOW_AUTH_ADMIN_PASSWORD" in open_to_all.log.read_text(), open_to_all.log.read_text)
    assert open_to_all.get("/health") == 0
    open_to_all.kill()

    password = "correct horse battery"
    secrets = {"MLFLOW_FLASK_SERVER_SECRET_KEY": "s" * 32, "MLFLOW_AUTH_ADMIN_PASSWORD": password}
    server = Server(tmp_path / "server", postgres, {**asking, **secrets})
    servers.append(server)
    server.started()
    assert server.healthy()
    named = {"Authorization": f"Basic {base64.b64encode(f'admin:{password}'.encode()).decode()}"}
    assert server.get(PAGE) == 401
    assert server.get(PAGE, Host="mlflow.lan:5000", **named) == 200
    assert server.get(PAGE, Host="elsewhere.example:5000", **named) == 403

    samples.recorded(tmp_path / "runs")
    stranger = Machine(tmp_path / "runs", {"MLFLOW_TRACKING_URI": server.url})
    refused = stranger.mirror()
    assert (refused["status"], refused["code"]) == ("failed", 1)
    assert "401" in refused["reason"] or "not authenticated" in refused["reason"]
    known = {"MLFLOW_TRACKING_USERNAME": "admin", "MLFLOW_TRACKING_PASSWORD": password}
    admitted = Machine(tmp_path / "runs", {**stranger.variables, **known}).mirror()
    assert (admitted["status"], admitted["code"]) == ("mirrored", 0)
