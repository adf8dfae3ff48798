"""The run folder: the truth about a run, readable from its files alone, on any machine and at any time.

The harness process that owns a run holds a lock on the folder's ``lock`` file for as long as it lives. So a run that
says "running" and whose lock is free is one whose harness died; ``reap`` writes that down.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import re
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import NewerRecord, RecordError, UsageError
from harness.records import (
    SCHEMA,
    CacheState,
    Event,
    Fingerprint,
    Result,
    Run,
    RunSpec,
    event_from_json,
    known_fields,
)


@dataclass(frozen=True)
class RunFolder:
    """One run's folder, ``runs/<id>/``."""

    path: Path

    @property
    def id(self) -> str:
        return self.path.name

    @classmethod
    def create(cls, runs: Path, name: str) -> RunFolder:
        """A new, empty folder under ``runs``, named for the time (UTC) and for ``name``."""
        try:
            runs.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{runs} cannot hold runs: {error.strerror}; set HARNESS_RUNS to a folder") from None
        slug = re.sub(r"[^a-z0-9_.]+", "_", name.lower()).strip("_.")[:40] or "run"
        while True:
            path = runs / f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{slug}-{secrets.token_hex(2)}"
            try:
                path.mkdir()
            except FileExistsError:
                continue
            (path / "artifacts").mkdir()
            return cls(path)

    def write_json(self, name: str, data: Mapping[str, Any]) -> None:
        """Write ``data`` with its schema, as ``write_text`` writes."""
        self.write_text(name, json.dumps({"schema": SCHEMA, **data}, indent=1, ensure_ascii=False) + "\n")

    def write_text(self, name: str, text: str) -> None:
        """Write ``text``, so that a reader sees the old file or the new one, never half of one."""
        beside = self.path / f".{name}.{os.getpid()}"
        with beside.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self.path / name)

    def read_json(self, name: str) -> dict[str, Any] | None:
        """The object in ``name``, or None where there is no such file.

        Raises RecordError for a file that is no JSON object, or that a later version wrote.
        """
        path = self.path / name
        try:
            data = json.loads(path.read_text("utf-8"))
        except FileNotFoundError:
            return None
        except (ValueError, OSError) as error:
            raise RecordError(f"{path} cannot be read: {error}") from None
        if not isinstance(data, dict):
            raise RecordError(f"{path} is not a JSON object")
        if data.get("schema", SCHEMA) > SCHEMA:
            raise NewerRecord(f"{path} has schema {data['schema']} and this version reads {SCHEMA}: update the harness")
        return data

    def events(self) -> Iterator[Event]:
        """What happened, in order. A torn last line is left out."""
        yield from EventTail(self.path / "events.jsonl").poll()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder's lock: this process owns the run. Raises RecordError where another one does."""
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RecordError(f"run {self.id} is still running") from None
            yield
        finally:
            os.close(descriptor)

    @property
    def alive(self) -> bool:
        """Whether a harness process owns this run now."""
        try:
            descriptor = os.open(self.path / "lock", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def result(self) -> Result:
        """``result.json``; where it still says "running" and no harness lives, what that means: killed."""
        alive = self.alive  # before the file is read: a run that ends in between has written it by then
        data = self.read_json("result.json")
        result = Result.from_json(data) if data else Result(status="running", exit_code=None)
        if result.status == "running" and not alive:
            return dataclasses.replace(result, status="killed", reason="the harness died before the run ended")
        return result

    def load(self) -> Run:
        """The run as its files tell it. Raises RecordError where there is no ``spec.json``."""
        spec = self.read_json("spec.json")
        if spec is None:
            raise RecordError(f"{self.path} is not a run folder: it has no spec.json; `harness runs` lists the runs")
        fingerprint = self.read_json("fingerprint.json")
        caches = self.read_json("caches.json") or {}
        return Run(
            id=self.id,
            folder=str(self.path),
            spec=RunSpec.from_json(spec),
            result=self.result(),
            fingerprint=Fingerprint.from_json(fingerprint) if fingerprint else None,
            cache_before=_cache_state(caches.get("before")),
            cache_after=_cache_state(caches.get("after")),
            mlflow_run_id=(self.read_json("mirror.json") or {}).get("mlflow_run_id"),
            tags=tuple((self.read_json("tags.json") or {}).get("tags", ())),
        )


def _cache_state(data: Mapping[str, Any] | None) -> CacheState | None:
    return known_fields(CacheState, data) if data else None


class LineTail:
    """Reads a file of JSON objects, one a line, while it grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self.skipped = 0  # complete lines that are no object: torn by a kill and written on by somebody else

    def poll(self) -> Iterator[dict[str, Any]]:
        """The objects of the lines completed since the last poll. A last line without its end waits for the next."""
        if not self._path.exists() or self._path.stat().st_size == self._offset:
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._offset += len(line)
                try:
                    data = json.loads(line)
                except ValueError:
                    data = None
                if isinstance(data, dict):
                    yield data
                else:
                    self.skipped += 1


class EventTail:
    """Reads ``events.jsonl`` while it grows: each ``poll`` gives the events of the lines completed since the last."""

    def __init__(self, path: Path) -> None:
        self._lines = LineTail(path)
        self._unfit = 0

    @property
    def skipped(self) -> int:
        """Complete lines that are no event of a kind that this version knows the shape of."""
        return self._lines.skipped + self._unfit

    def poll(self) -> Iterator[Event]:
        """The new events, in order."""
        for data in self._lines.poll():
            try:
                event = event_from_json(data)
            except (KeyError, TypeError):
                self._unfit += 1
                continue
            if event is not None:
                yield event


def run_folders(runs: Path) -> list[RunFolder]:
    """Every run under ``runs``, the latest first."""
    found = [path.parent for path in runs.glob("*/spec.json")]
    return [RunFolder(path) for path in sorted(found, key=_moment, reverse=True)]


def _moment(path: Path) -> tuple[str, int]:
    """The second that a run began, from its name; runs of one second by when their spec was written."""
    return "-".join(path.name.split("-")[:2]), (path / "spec.json").stat().st_mtime_ns


def find(runs: Path, reference: str) -> RunFolder:
    """The run that ``reference`` names: "@1" the latest, "@2" the one before, a folder, an id, or the start of one.

    Raises UsageError where it names none, or several.
    """
    if "/" in reference or reference in (".", ".."):
        folder = RunFolder(Path(reference).absolute())
        if not (folder.path / "spec.json").exists():
            raise UsageError(f"{reference} is not a run folder: it has no spec.json; `harness runs` lists the runs")
        return folder
    known = run_folders(runs)
    if not known or not reference:
        raise UsageError(
            f"{reference!r} names no run" + ("" if known else f": there are none in {runs} yet; nox -s train")
        )
    if reference.startswith("@"):
        number = int(reference[1:]) if reference[1:].isdecimal() else 0
        if not 1 <= number <= len(known):
            raise UsageError(f"{reference} names no run: there are {len(known)}, and @1 is the latest")
        return known[number - 1]
    matches = [f for f in known if f.id == reference] or [f for f in known if f.id.startswith(reference)]
    if len(matches) != 1:
        names = ", ".join(f.id for f in matches[:5])
        why = f"{len(matches)} runs start so: {names}" if matches else f"no run in {runs} starts so"
        raise UsageError(f"{reference}: {why}; `harness runs` lists them")
    return matches[0]
