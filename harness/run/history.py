"""The runs of one workload: those before a run, and the baseline that somebody chose.

A workload is known by a digest of the facts that make the work; which those are, ``explain`` says, so the function
comes as an argument: ``Work``. What is known of each run is kept in ``runs/.workloads.json``, so that thousands need
not be read again. It is only a memory: an entry is read anew where the run's folder is newer, and the whole where
``Work`` speaks differently of no facts at all, or where the file is lost.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from harness.errors import RecordError, UsageError
from harness.pin.fingerprint import spec_facts
from harness.records import SCHEMA, Fingerprint, Result, RunSpec, Value, digest
from harness.run.folder import RunFolder
from harness.run.lines import parsed

INDEX = ".workloads.json"
BASELINES = "baselines.json"

Work = Callable[[Mapping[str, Value]], str]
"""The digest of the facts that make the work. Another table of which those are gives another digest of no facts."""


class Entry(NamedTuple):
    """What the index knows of a run that finished."""

    id: str
    work: str
    unit: str  # what its throughput counts: "tokens" or "steps"
    started_at: float  # unix seconds
    rate: float | None  # steady units a second; None where it had none, or counted steps
    first_step_s: float | None
    way: str  # a digest of how it was executed, and in which environment


class Past(NamedTuple):
    """A run of the same workload."""

    folder: Path
    rate: float | None
    first_step_s: float | None
    way: str  # the same for two runs that were executed alike, in one environment


def earlier(runs: Path, folder: RunFolder, work: Work, whenever: bool = False) -> list[Past]:
    """The finished runs of the workload of ``folder`` that count in its unit and began before it, the latest first.

    ``whenever``: those that began after it too. Of a run that did not record its work there are none: what is unknown
    is not the same. Raises RecordError where ``folder`` is no run.
    """
    mine = _read(folder, work)
    if mine.work == work({}):
        return []
    itself = folder.id if folder.path.resolve().parent == runs.resolve() else None
    found = [
        entry
        for entry in _known(runs, work).values()
        if (entry.work, entry.unit) == (mine.work, mine.unit)
        and entry.id != itself
        and (whenever or (entry.started_at, entry.id) < (mine.started_at, mine.id))
    ]
    found.sort(key=lambda entry: (entry.started_at, entry.id), reverse=True)
    return [Past(runs / entry.id, entry.rate, entry.first_step_s, entry.way) for entry in found]


def way_of(folder: RunFolder, work: Work) -> str:
    """How a run was executed, as in ``Past.way``. Raises RecordError where the folder is no run."""
    return _read(folder, work).way


# --- the baseline ----------------------------------------------------------------------------------------


def set_baseline(runs: Path, folder: RunFolder, work: Work) -> str | None:
    """Hold later runs of the workload of ``folder`` against it. Returns the run that was the baseline before.

    Raises UsageError where the run is kept elsewhere, or did not record its work.
    """
    if folder.path.resolve().parent != runs.resolve():
        raise UsageError(f"{folder.path} is not in {runs}: a baseline is one of the runs that are kept there")
    mine = _read(folder, work).work
    if mine == work({}):
        raise UsageError(
            f"{folder.id} did not record what it computed, so no run is known to be of its workload: "
            "name both runs instead (harness explain A B), or import it with --set workload.NAME=VALUE"
        )
    chosen = _baselines(runs, work)
    before = chosen.get(mine)
    rest = {run: at for at, run in chosen.items() if at != mine}
    _write(runs / BASELINES, {"schema": SCHEMA, "baselines": {**rest, folder.id: mine}})
    return before


def baseline_of(runs: Path, folder: RunFolder, work: Work) -> RunFolder | None:
    """The chosen baseline of the workload of ``folder``, or None where none was chosen.

    Raises RecordError where the one that was chosen is gone.
    """
    mine = _read(folder, work).work
    chosen = _baselines(runs, work).get(mine)
    if chosen is None or mine == work({}):
        return None
    if not (runs / chosen / "spec.json").exists():
        raise RecordError(f"the baseline of this workload, {chosen}, is gone from {runs}: harness baseline set RUN")
    return RunFolder(runs / chosen)


def _baselines(runs: Path, work: Work) -> dict[str, str]:
    """Workload -> run. The workload of a run that is there is asked anew: the table may speak differently by now."""
    path = runs / BASELINES
    try:
        written = {str(run): str(known) for run, known in parsed(path.read_bytes())["baselines"].items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordError(f"{path} cannot be read ({error}): remove it, and choose baselines anew") from None
    found = {}
    for run, known in written.items():
        try:
            found[_read(RunFolder(runs / run), work).work] = run
        except RecordError:  # it is gone, which matters to whoever asks for this workload
            found[known] = run
    return found


# --- the index -------------------------------------------------------------------------------------------


def _known(runs: Path, work: Work) -> dict[str, Entry]:
    """Every finished run under ``runs``, from the index where its folder has not changed since."""
    kept = _load(runs / INDEX, work({}))
    now: dict[str, tuple[int, Entry]] = {}
    for name, changed in _folders(runs):
        before = kept.get(name)
        entry = before[1] if before and before[0] == changed else _finished(RunFolder(runs / name), work)
        if entry is not None:
            now[name] = (changed, entry)
    if now != kept:
        rows = {name: [changed, list(entry)] for name, (changed, entry) in now.items()}
        with suppress(OSError):  # a place that cannot be written to is read anew each time
            _write(runs / INDEX, {"schema": SCHEMA, "work": work({}), "runs": rows})
    return {name: entry for name, (_, entry) in now.items()}


def _folders(runs: Path) -> Iterator[tuple[str, int]]:
    """Each folder that may be a run, and when it was last changed; a run writes its result there as the last file."""
    if not runs.is_dir():
        return
    with os.scandir(runs) as found:
        for item in found:
            if item.is_dir() and not item.name.startswith("."):
                yield item.name, item.stat().st_mtime_ns


def _load(path: Path, version: str) -> dict[str, tuple[int, Entry]]:
    """What the index remembers; nothing where it is not there, or is not what this version writes."""
    try:
        data = orjson.loads(path.read_bytes())
        if data["schema"] != SCHEMA or data["work"] != version:
            return {}
        return {name: (changed, Entry(*entry)) for name, (changed, entry) in data["runs"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _finished(folder: RunFolder, work: Work) -> Entry | None:
    """What is known of a run; None for one that did not finish, or whose files cannot be read."""
    try:
        if _json(folder, "result.json").get("status") != "finished":
            return None
        return _read(folder, work)
    except RecordError:
        return None


def _read(folder: RunFolder, work: Work) -> Entry:
    """The entry of a run, whether it has ended or not. Raises RecordError where the folder is no run."""
    spec = _json(folder, "spec.json")
    if not spec:
        raise RecordError(f"{folder.path} is not a run folder: it has no spec.json; `harness runs` lists the runs")
    recorded = _json(folder, "fingerprint.json")
    try:
        facts = Fingerprint.from_json(recorded).facts if recorded else spec_facts(RunSpec.from_json(spec))
        result = Result.from_json({"status": "running", "exit_code": None, **_json(folder, "result.json")})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RecordError(f"{folder.path} cannot be read: {error}") from None
    summary = result.summary
    unit = "tokens" if summary.tokens or not summary.steps else "steps"
    rate = summary.throughput_tok_s.value if summary.throughput_tok_s else None
    way = digest([Fingerprint(facts).digest, {k: v for k, v in facts.items() if k.startswith("execution.")}])
    return Entry(folder.id, work(facts), unit, result.started_at, rate, summary.first_step_s, way)


def _json(folder: RunFolder, name: str) -> dict[str, Any]:
    """The object in a file, {} where there is none; read fast, for there are thousands."""
    path = folder.path / name
    try:
        data = parsed(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise RecordError(f"{path} cannot be read: {error}") from None
    if not isinstance(data, dict) or data.get("schema", SCHEMA) != SCHEMA:
        raise RecordError(f"{path} is not a record of this version")
    return data


def _write(path: Path, data: Mapping[str, Any]) -> None:
    """The old file or the new one, never half of one."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_bytes(orjson.dumps(data))
    beside.replace(path)
