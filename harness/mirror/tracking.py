"""Holds MLflow level with a run folder. The only file that imports mlflow, and it runs in a process of its own:

    python -m harness.mirror.tracking FOLDER --uri URI            bring MLflow level with the folder, once
    python -m harness.mirror.tracking FOLDER --uri URI --follow   and keep it so until the run has ended
    python -m harness.mirror.tracking --create --uri URI          make the embedded store

Exit code 0: MLflow has everything; 1: it could not be reached or refused, ``mirror.json`` says why; 3: another mirror
is at work on the folder. The mirror goes one way and is the same whenever it is made: points carry the run's own clock,
the MLflow run is found by the tag ``harness.run_id``, and what was sent already is skipped.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

BOUNDS = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",  # seconds; MLflow's own 120 with 7 retries hangs for half an hour
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",  # the next round tries again, after it looked what has arrived
    "MLFLOW_ENABLE_ASYNC_LOGGING": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
for _name, _value in BOUNDS.items():  # before the import, which reads some of them
    os.environ.setdefault(_name, _value)

from mlflow import MlflowClient  # noqa: E402
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunTag  # noqa: E402
from mlflow.exceptions import MlflowException  # noqa: E402
from sqlalchemy.exc import SQLAlchemyError  # noqa: E402

from harness.errors import HarnessError  # noqa: E402
from harness.mirror import content  # noqa: E402
from harness.mirror.follower import BUSY, MirrorResult, MirrorState, database, making  # noqa: E402
from harness.mirror.points import FIGURES, Point  # noqa: E402
from harness.mirror.source import PointSource  # noqa: E402
from harness.records import Run, Value, canonical, digest  # noqa: E402
from harness.run.folder import RunFolder  # noqa: E402

EVERY = 5.0  # seconds between two rounds of a follower
SLOWEST = 60.0  # and at most, while MLflow cannot be reached
POLL = 0.5  # seconds between two looks whether the run has ended
LAST_TRIES = 3  # rounds that a follower spends on an unreachable MLflow once the run has ended
LONGEST_REASON = 200  # characters
MAX_METRICS, MAX_ITEMS = 1000, 100  # a batch may hold so many metrics, params, tags

STATUS = {"running": "RUNNING", "finished": "FINISHED", "failed": "FAILED", "killed": "KILLED"}

FAULTS = (MlflowException, SQLAlchemyError, OSError, HarnessError)
"""How MLflow says that it is not there or will not: ``requests`` errors are OSErrors."""

T = TypeVar("T")

Client = MlflowClient
"""For who talks to a store that ``open_store`` gave, and imports mlflow nowhere."""


class Mirror:
    """One folder's mirror. Reads the folder as it grows; sends what is new in rounds."""

    def __init__(self, folder: Path, tracking_uri: str) -> None:
        known = MirrorState.load(folder)
        self.folder = folder
        self.state = known if known.tracking_uri == tracking_uri else MirrorState(tracking_uri=tracking_uri)
        self._source = PointSource(folder)
        self._client: MlflowClient | None = None
        self._run_id = ""
        self._told: set[str] = set()

    def round(self) -> bool:
        """Send what is new. True once MLflow has the whole run. Raises one of ``FAULTS``; the next round goes on."""
        run = RunFolder(self.folder).load()  # before the events: what an ended run wrote is then all there
        ended = run.result.status != "running"
        source = _source_digest(self.folder) if ended else ""
        client = self._connect(run)
        if self.state.complete and self.state.source == source:
            return True
        self._source.read()
        if ended:
            self._source.close(run)
        self._describe(client, run, ended)
        self._send_points(client, run)
        self._send_files(client, ended)
        if ended:
            self._save(source=source, complete=True)
        return ended

    def give_up(self, error: Exception) -> None:
        """Write down why MLflow did not take the run, in one line."""
        self._client = None
        self._save(reason=f"{self.state.tracking_uri}: {in_brief(error)}")

    def _connect(self, run: Run) -> MlflowClient:
        """The client, with this run's MLflow run found or made."""
        if self._client is not None:
            return self._client
        client = open_store(self.state.tracking_uri)
        run_id, experiment_id = _find_or_create(client, run, self.state)
        if run_id != self.state.mlflow_run_id:
            self.state = MirrorState(tracking_uri=self.state.tracking_uri)  # another store: nothing is there yet
        if (run_id, "") != (self.state.mlflow_run_id, self.state.reason):
            self._save(mlflow_run_id=run_id, experiment_id=experiment_id, reason="")
        self._client, self._run_id = client, run_id
        self._told.clear()
        return client

    def _describe(self, client: MlflowClient, run: Run, ended: bool) -> None:
        """Status first: it must be right even where nothing else gets through."""
        facts = self._source.facts
        told = {"tags": digest(content.tags(run)), "params": digest(content.params(run, facts))}
        if ended and "ended" not in self._told:
            end = run.result.ended_at
            client.set_terminated(self._run_id, STATUS[run.result.status], None if end is None else int(1000 * end))
            self._told.add("ended")
        if told["tags"] not in self._told:
            for tags in _batches(content.tags(run).items(), MAX_ITEMS):
                client.log_batch(self._run_id, tags=[RunTag(k, v) for k, v in tags])
        if told["params"] not in self._told:
            for params in _batches(content.params(run, facts).items(), MAX_ITEMS):
                client.log_batch(self._run_id, params=[Param(k, v) for k, v in params])
            _log_dataset(client, self._run_id, run, facts)
        self._told.update(told.values())

    def _send_points(self, client: MlflowClient, run: Run) -> None:
        zero = run.result.started_at
        for batch in _batches(self._source.events[self.state.points :], MAX_METRICS):
            client.log_batch(self._run_id, metrics=[_metric(point, zero) for point in batch])
            self._save(points=self.state.points + len(batch))
        for batch in _batches(self._source.telemetry[self.state.samples :], MAX_METRICS):
            client.log_batch(self._run_id, metrics=[_metric(point, zero) for point in batch])
            self._save(samples=self.state.samples + len(batch))

    def _send_files(self, client: MlflowClient, ended: bool) -> None:
        """A file that MLflow has as it is now is never sent again."""
        for name in content.ARTIFACTS if ended else content.FIXED_ARTIFACTS:
            path = self.folder / name
            if not path.exists() or path.stat().st_size > content.MAX_ARTIFACT_BYTES:
                continue
            sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
            if self.state.artifacts.get(name) != sha256:
                client.log_artifact(self._run_id, str(path))
                self._save(artifacts={**self.state.artifacts, name: sha256})

    def _save(self, **changes: Any) -> None:
        self.state = replace(self.state, **changes)
        self.state.save(self.folder)


def in_brief(error: Exception) -> str:
    """What went wrong in one short line: an unreachable server is buried in five layers of exceptions."""
    if system := re.search(r"\[Errno -?\d+\] ([^'\")]+)", str(error)):
        return f"not reached ({system[1]})"
    first = (str(error).splitlines() or [repr(error)])[0]
    return first if len(first) <= LONGEST_REASON else first[:LONGEST_REASON] + " ..."


def mirror(folder: Path, tracking_uri: str) -> MirrorResult:
    """Bring MLflow at ``tracking_uri`` level with ``folder``. Doing so twice changes nothing."""
    with _alone(folder) as alone:
        before = MirrorState.load(folder)
        if not alone:
            return MirrorResult("busy", tracking_uri, before.mlflow_run_id)
        work = Mirror(folder, tracking_uri)
        try:
            work.round()
        except FAULTS as error:
            work.give_up(error)
            return MirrorResult("failed", tracking_uri, work.state.mlflow_run_id, work.state.reason)
        return MirrorResult("unchanged" if work.state == before else "mirrored", tracking_uri, work.state.mlflow_run_id)


def follow(folder: Path, tracking_uri: str, complete: Callable[[], object]) -> MirrorResult:
    """Mirror ``folder`` in rounds until its run has ended. A run whose harness is gone has ended too: it was killed.

    complete  waits until nothing more comes into the folder of a run that has ended
    """
    with _alone(folder) as alone:
        if not alone:
            return MirrorResult("busy", tracking_uri, MirrorState.load(folder).mlflow_run_id)
        work = Mirror(folder, tracking_uri)
        pause, tries, due = EVERY, LAST_TRIES, 0.0
        while True:
            ended = RunFolder(folder).result().status != "running"
            if ended:
                complete()
            if ended or time.monotonic() >= due:
                try:
                    if work.round():
                        return MirrorResult("mirrored", tracking_uri, work.state.mlflow_run_id)
                    pause = EVERY
                except FAULTS as error:
                    work.give_up(error)
                    pause, tries = min(2 * pause, SLOWEST), tries - ended
                    if tries == 0:
                        return MirrorResult("failed", tracking_uri, work.state.mlflow_run_id, work.state.reason)
                due = time.monotonic() + pause
            time.sleep(POLL)


def open_store(tracking_uri: str) -> MlflowClient:
    """A client whose store is there; an embedded one is made here."""
    embedded = database(tracking_uri)
    if embedded is None:
        return MlflowClient(tracking_uri)
    with making(embedded):
        client = MlflowClient(tracking_uri)
        client.search_experiments(max_results=1)
    return client


def _find_or_create(client: MlflowClient, run: Run, state: MirrorState) -> tuple[str, str]:
    """(MLflow run, experiment) of ``run``: the one that carries its id, or a new one."""
    experiment = experiment_id(client, content.experiment(run), state.tracking_uri)
    found = client.search_runs([experiment], f"tags.`harness.run_id` = '{run.id}'", max_results=1)
    if found:
        return found[0].info.run_id, experiment
    start = int(1000 * run.result.started_at)
    made = client.create_run(experiment, start_time=start, tags=content.tags(run), run_name=run.id)
    return made.info.run_id, experiment


def experiment_id(client: MlflowClient, name: str, tracking_uri: str) -> str:
    """The experiment ``name``, made if it is not there. Raises HarnessError where it was deleted."""
    found = client.get_experiment_by_name(name)
    if found is None:
        embedded = database(tracking_uri)
        artifacts = None if embedded is None else (embedded.parent.absolute() / "artifacts" / name).as_uri()
        try:
            return client.create_experiment(name, artifact_location=artifacts)
        except MlflowException:
            found = client.get_experiment_by_name(name)  # another mirror may have made it just now
            if found is None:
                raise
    if found.lifecycle_stage != "active":
        command = f"MLFLOW_TRACKING_URI={tracking_uri} mlflow experiments restore --experiment-id {found.experiment_id}"
        raise HarnessError(f"the experiment {name} was deleted in MLflow; bring it back with: {command}")
    return found.experiment_id


def _log_dataset(client: MlflowClient, run_id: str, run: Run, facts: Mapping[str, Value]) -> None:
    data = content.dataset(run, facts)
    if data is None:
        return
    profile = canonical(dict(data.profile))
    entity = Dataset(data.name, data.digest, "local", canonical({"uri": data.name}), profile=profile)
    client.log_inputs(run_id, [DatasetInput(entity, [InputTag("mlflow.data.context", "training")])])


def log(client: MlflowClient, run_id: str, params: Mapping[str, str], points: Sequence[Point], zero: float) -> None:
    """Send all of it, in batches that MLflow takes; ``zero``: the time since the epoch from which points count."""
    for some in _batches(params.items(), MAX_ITEMS):
        client.log_batch(run_id, params=[Param(key, value) for key, value in some])
    for batch in _batches(points, MAX_METRICS):
        client.log_batch(run_id, metrics=[_metric(point, zero) for point in batch])


def _metric(point: Point, zero: float) -> Metric:
    return Metric(content.key_of(point.key), point.value, int(1000 * (zero + point.t)), point.step)


def _batches(items: Any, size: int) -> Iterator[list[Any]]:
    left = iter(items)
    while batch := list(islice(left, size)):
        yield batch


def _source_digest(folder: Path) -> str:
    """What the folder's files are now: a change in any of them makes the mirror stale, and so do new figures."""
    sizes = {name: (folder / name).stat().st_size for name in content.ARTIFACTS if (folder / name).exists()}
    records = {name: RunFolder(folder).read_json(name) for name in ("result.json", "tags.json")}
    return digest({**sizes, **records, "figures": FIGURES})


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[bool]:
    """Whether this process is the only one that mirrors ``folder``; it stays so while the context lasts."""
    with (folder / "mirror.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def main(argv: Sequence[str]) -> int:
    """The process: see the module's first lines."""
    parser = argparse.ArgumentParser(prog="python -m harness.mirror.tracking")
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--uri", required=True)
    parser.add_argument("--follow", action="store_true")
    parser.add_argument("--create", action="store_true")
    options = parser.parse_args(argv)
    if options.create:
        open_store(options.uri)
        return 0
    if options.folder is None:
        parser.error("a run folder is missing")
    if options.follow:
        os.nice(10)  # the run that it watches goes first
        result = follow(options.folder, options.uri, sys.stdin.buffer.read)
    else:
        result = mirror(options.folder, options.uri)
    return {"failed": 1, "busy": BUSY}.get(result.status, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
