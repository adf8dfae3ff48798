"""A run's folder as evidence: all that its files say, as arrays and records, however much of it is there.

Only ``spec.json`` must be there, and no file may be from a later version: anything else that is missing, torn or in
part unreadable is an empty part and a plain line in ``gaps``. A run that still runs is taken as it stands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from harness.errors import NewerRecord, RecordError
from harness.evidence import Evidence, Series, Steps
from harness.pin.fingerprint import spec_facts
from harness.records import (
    CacheState,
    Checkpoint,
    Compile,
    Eval,
    Fingerprint,
    Finished,
    Note,
    Result,
    Run,
    RunSpec,
    Started,
    Value,
    known_fields,
)
from harness.run import columns
from harness.run.folder import RunFolder
from harness.run.lines import Lines, read_lines
from harness.run.series import read_series
from harness.run.verdict import outcome

LOG_BYTES = 64 << 10
PATCH_BYTES = 1 << 20

R = TypeVar("R")


def gather(folder: RunFolder) -> Evidence:
    """The evidence of one run. Raises RecordError, one line, where the folder is no run or a later version's."""
    reading = _Reading(folder)
    spec = folder.read_json("spec.json")
    if spec is None:
        raise RecordError(f"{folder.path} is not a run folder: it has no spec.json; `harness runs` lists the runs")
    try:
        asked = RunSpec.from_json(spec)
    except (TypeError, KeyError, AttributeError) as error:
        raise RecordError(f"{folder.path / 'spec.json'} is no request for a run: {error}") from None
    lines, steps = reading.events()
    telemetry = reading.telemetry()
    finished = outcome(lines.all_of(Finished))
    run = reading.run(asked, finished)
    started = lines.all_of(Started)
    last = [event.t for event in lines.others]
    last += [float(each.t[-1]) for each in steps.values()] + [float(series.t[-1]) for series in telemetry.values()]
    return Evidence(
        run=run,
        facts=_facts(run, started),
        steps=steps,
        compiles=lines.all_of(Compile),
        evals=lines.all_of(Eval),
        checkpoints=lines.all_of(Checkpoint),
        notes=lines.all_of(Note),
        started_t=started[0].t if started else None,
        finished=finished,
        end=max(last, default=0.0),
        telemetry=telemetry,
        stdout=reading.log("stdout.log"),
        stderr=reading.log("stderr.log"),
        patch=reading.patch(run),
        gaps=tuple(reading.gaps),
    )


def _facts(run: Run, started: tuple[Started, ...]) -> dict[str, Value]:
    """The fingerprint's facts, or those of the request where there is none, and what the child said of itself."""
    facts = dict(run.fingerprint.facts) if run.fingerprint else spec_facts(run.spec)
    for event in started:
        facts.update(event.facts)
    return facts


class _Reading:
    """Reads the files of one folder, and keeps a line for each that is not as it should be."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.gaps: list[str] = []

    def json(self, name: str, what: str, make: Callable[[Mapping[str, Any]], R]) -> R | None:
        """``make`` of the object in a file; None and a gap, which says ``what`` is unknown, where it cannot be had."""
        try:
            data = self.folder.read_json(name)
            if data is None:
                self.gaps.append(f"{name} is missing: {what}")
                return None
            return make(data)
        except NewerRecord:
            raise
        except (RecordError, ValueError, KeyError, TypeError, AttributeError):
            self.gaps.append(f"{name} cannot be read: {what}")
            return None

    def run(self, spec: RunSpec, finished: Finished | None) -> Run:
        """The run; how it ended is told from its events where ``result.json`` does not say."""
        alive = self.folder.alive  # before the file is read: a run that ends in between has written it by then
        result = self.json("result.json", "how the run ended is told from its events", Result.from_json)
        if result is None or (result.status == "running" and not alive):
            result = _ended(result, finished, alive)
        if result.status == "running":
            self.gaps.append("the run is still running: it is taken as it stands")
        cut = result.status == "finished" and spec.recipe and not finished  # a recipe's last line says that it ended
        if cut and not any(gap.startswith("events.jsonl") for gap in self.gaps):
            self.gaps.append("events.jsonl ends before the run did: what came after is unknown")
        caches = self.json("caches.json", "what the compile caches held is unknown", dict) or {}
        mirror = self.folder.path / "mirror.json"  # there only where the run is mirrored
        fingerprint = self.json("fingerprint.json", "only what was asked for is known of it", Fingerprint.from_json)
        mirrored = self.json("mirror.json", "its MLflow run is unknown", dict) if mirror.exists() else None
        return Run(
            id=self.folder.id,
            folder=str(self.folder.path),
            spec=spec,
            result=result,
            fingerprint=fingerprint,
            cache_before=_cache_state(caches.get("before")),
            cache_after=_cache_state(caches.get("after")),
            mlflow_run_id=(mirrored or {}).get("mlflow_run_id"),
        )

    def events(self) -> tuple[Lines, Mapping[str, Steps]]:
        """What happened, and the steps: from their columns where those are there, else from the lines."""
        path, steps = self.folder.path / "events.jsonl", self._columns()
        unknown = "compilations, evaluations and notes are unknown" if steps else "no step is known"
        try:
            lines = read_lines(path, steps is None)
            self._filled(path, unknown)
        except OSError as error:
            self.gaps.append(f"events.jsonl {_trouble(error)}: {unknown}")
            return Lines(), steps or {}
        if lines.torn:
            self.gaps.append("events.jsonl ends in half a line, which is left out")
        steps = lines.steps.finish() if steps is None else steps
        unfit = lines.skipped + lines.steps.skipped
        if unfit:
            self.gaps.append(f"events.jsonl has {unfit:,} line{'s' if unfit > 1 else ''} that are no events: left out")
        return lines, steps

    def _filled(self, path: Path, unknown: str) -> bool:
        """Whether the file holds anything; a gap where it does not."""
        if path.stat().st_size:
            return True
        self.gaps.append(f"{path.name} is empty: {unknown}")
        return False

    def _columns(self) -> Mapping[str, Steps] | None:
        try:
            return columns.read_steps(self.folder.path)
        except FileNotFoundError:
            return None  # as a run without steps, or without an end, leaves it
        except ValueError as error:
            self.gaps.append(f"{columns.NAME} cannot be read ({error}): the steps are read from events.jsonl")
            return None

    def telemetry(self) -> Mapping[str, Series]:
        path, unknown = self.folder.path / "telemetry.jsonl", "how the machine was doing is unknown"
        try:
            series, skipped = read_series(path)
            if self._filled(path, unknown) and _torn(path):
                self.gaps.append("telemetry.jsonl ends in half a line, which is left out")
        except OSError as error:
            self.gaps.append(f"telemetry.jsonl {_trouble(error)}: {unknown}")
            return {}
        if skipped:
            self.gaps.append(f"telemetry.jsonl has {skipped:,} lines that are no samples: left out")
        return series

    def log(self, name: str) -> tuple[str, ...]:
        """The last lines; a progress bar's redrawn line is as many lines as it was drawn."""
        try:
            with (self.folder.path / name).open("rb") as file:
                size = file.seek(0, 2)
                file.seek(max(0, size - LOG_BYTES))
                text = file.read().decode(errors="replace")
        except OSError as error:
            self.gaps.append(f"{name} {_trouble(error)}: what the run said there is unknown")
            return ()
        lines = re.split(r"[\r\n]+", text)
        whole = lines[1:] if size > LOG_BYTES else lines  # the first is the end of one
        return tuple(line for line in whole if line.strip())

    def patch(self, run: Run) -> str:
        path = self.folder.path / "code.patch"
        known = run.fingerprint is not None and "code.patch.sha256" in run.fingerprint.facts
        try:
            with path.open("rb") as file:
                return file.read(PATCH_BYTES).decode(errors="replace")
        except OSError as error:
            if known:  # of a command that is not in a checkout there is none
                self.gaps.append(f"code.patch {_trouble(error)}: what was changed in the code is unknown")
            return ""


def _ended(said: Result | None, finished: Finished | None, alive: bool) -> Result:
    """How a run ended that nobody wrote the end of."""
    if alive:
        return said or Result("running", None)
    if said is not None:
        return replace(said, status="killed", reason="the harness died before the run ended")
    if finished is None:
        return Result("killed", None, reason="nobody wrote down how it ended")
    return Result("finished" if finished.ok else "failed", None, reason=finished.reason)


def _torn(path: Path) -> bool:
    """Whether a file of lines, which is not empty, ends within one."""
    with path.open("rb") as file:
        file.seek(-1, 2)
        return file.read() != b"\n"


def _trouble(error: OSError) -> str:
    return "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"


def _cache_state(data: Any) -> CacheState | None:
    return known_fields(CacheState, data) if isinstance(data, dict) and {"bytes", "entries"} <= data.keys() else None
