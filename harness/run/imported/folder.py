"""The run folder of a run that happened elsewhere: so that it can be shown, compared and explained.

Nothing is made up. What its log or its tracker does not say is absent, how it was read is in ``imported.json``, and
what a person should know of that is a warning of the run.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import shutil
import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.records import (
    FIRST_STEP,
    IMPORTED,
    Eval,
    Event,
    Fingerprint,
    Finished,
    Note,
    Result,
    Status,
    Step,
    Summary,
    Value,
    event_to_json,
)
from harness.run.columns import write_columns
from harness.run.folder import RunFolder, run_folders
from harness.run.imported.facts import asked_for, cache_of
from harness.run.imported.figures import Figures
from harness.run.imported.rows import Steps
from harness.run.summary import summarise

RECORD = "imported.json"


@dataclass(frozen=True)
class Imported:
    """What an import came to: a ``new`` folder, one whose facts ``changed``, or one that was there as it is."""

    folder: RunFolder
    new: bool
    changed: bool
    understood: tuple[str, ...]
    not_understood: tuple[int, ...] = ()


@dataclass(frozen=True)
class End:
    """How a run ended, as far as anybody says."""

    status: Status
    reason: str = ""
    signal: int | None = None


@dataclass(frozen=True)
class Source:
    """A run that is about to become a folder.

    key      what tells it from any other run: of the same key, it is the same run
    reading  how it is read: read otherwise, the same run would have other steps
    """

    key: str
    reading: str
    name: str
    origin: str
    end: End
    started_at: float  # seconds since 1970
    ended_at: float | None
    steps: Steps
    events: tuple[Event, ...]
    understood: tuple[str, ...]
    facts: Mapping[str, Value]  # those that nobody had to give
    stdout: bytes = b""
    stderr: str = ""
    telemetry: tuple[Mapping[str, Any], ...] = ()
    mlflow_run_id: str | None = None


def happened(steps: Steps, evaluations: Sequence[Figures], remarks: Sequence[str], ended: bool) -> tuple[Event, ...]:
    """All that happened, in order."""
    numbers = [step.step for step in steps.steps]
    events: list[Event] = [*(Note(0.0, text, "warning") for text in remarks), *steps.steps]
    for each in evaluations:
        before = bisect_right(numbers, each.step or 0)
        metrics = {name: value for name, value in each.evaluated.items() if name != "runtime"}
        seconds = each.evaluated.get("runtime", 0.0)
        t = 0.0
        if before:
            t, seconds = _evaluated(steps.steps[before - 1 : before + 1], seconds, steps.clocked)
        events.append(Eval(t, "step", metrics, None, each.step or 0, seconds))
    events.sort(key=lambda event: event.t)
    return (*events, Finished(events[-1].t if events else 0.0)) if ended else tuple(events)


def _evaluated(around: Sequence[Step], seconds: float, clocked: bool) -> tuple[float, float]:
    """When an evaluation was over, which nobody says, and its seconds: 0 where the steps around it leave no room.

    It comes after its step, before or within the next one; within its own only where that is as long as it.
    """
    own, *later = around
    end = own.t + seconds
    if clocked or all(step.t >= end for step in later):
        return end, seconds
    return own.t, seconds if own.seconds >= seconds else 0.0


def steps_in_words(steps: Steps) -> tuple[str, ...]:
    """What was understood of the steps, for a person to check."""
    if not steps.steps:
        return ("no steps", *steps.words)
    first, last = steps.steps[0].step, steps.steps[-1].step
    span = f" ({first:,} to {last:,})" if (first, last) != (1, len(steps.steps)) else ""
    unknown = () if steps.first_step else ("when it began is not known, so neither is the time to the first step",)
    return (f"{len(steps.steps):,} steps{span}", *steps.words, *unknown)


def keep(source: Source, runs: Path, given: Mapping[str, Value]) -> Imported:
    """The folder of the run: a new one, or the one that it has, with the facts given now beside those given before.

    Raises UsageError where it has one and was read otherwise.
    """
    there = next((f for f in run_folders(runs) if (f.read_json(RECORD) or {}).get("key") == source.key), None)
    if there is None:
        with aside(runs, _id(source)) as folder:
            _write_what_happened(folder, source)
            _write_facts(folder, source, given)
        return Imported(RunFolder(runs / folder.id), True, False, source.understood)
    record = there.read_json(RECORD) or {}
    if record.get("reading", "") != source.reading:
        raise UsageError(
            f"{source.origin} is {there.id} already, read by {record['reading'] or 'the usual patterns'}; "
            f"import it under another --name, or remove {there.path} first"
        )
    before: Mapping[str, Value] = record.get("given", {})
    changed = {**before, **given} != before
    if changed:
        _write_facts(there, source, {**before, **given})
    return Imported(there, False, changed, source.understood)


def _id(source: Source) -> str:
    moment = time.strftime("%Y%m%d-%H%M%S", time.gmtime(source.started_at))
    slug = re.sub(r"[^a-z0-9_.]+", "_", source.name.lower()).strip("_.")[:40] or "log"
    return f"{moment}-{slug}-{hashlib.sha256(source.key.encode()).hexdigest()[:4]}"


@contextmanager
def aside(runs: Path, run_id: str) -> Iterator[RunFolder]:
    """A folder to fill, which then is the run's: whoever looks meanwhile, or a kill, leaves none or all of it."""
    place = runs / f".import-{secrets.token_hex(4)}"
    try:
        (place / run_id / "artifacts").mkdir(parents=True)
    except OSError as error:
        raise UsageError(f"{runs} cannot hold runs: {error.strerror}; set HARNESS_RUNS to a folder") from None
    try:
        yield RunFolder(place / run_id)
        (place / run_id).rename(runs / run_id)
    finally:
        shutil.rmtree(place)


def _write_what_happened(folder: RunFolder, source: Source) -> None:
    _write_lines(folder.path / "events.jsonl", (event_to_json(event) for event in source.events))
    if source.telemetry:
        _write_lines(folder.path / "telemetry.jsonl", source.telemetry)
    (folder.path / "stdout.log").write_bytes(source.stdout)
    (folder.path / "stderr.log").write_text(source.stderr, encoding="utf-8")
    write_columns(folder.path)


def _write_lines(path: Path, objects: Iterable[Mapping[str, Any]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for data in objects:
            file.write(json.dumps(_finite(data), separators=(",", ":"), allow_nan=False) + "\n")


def _finite(data: Any) -> Any:
    """JSON has no NaN: null stands for it, as in a run of our own."""
    if isinstance(data, Mapping):
        return {key: _finite(value) for key, value in data.items()}
    return None if isinstance(data, float) and not -float("inf") < data < float("inf") else data


def _write_facts(folder: RunFolder, source: Source, given: Mapping[str, Value]) -> None:
    """What is known of the run, and the figures that follow from it."""
    facts = {**source.facts, **given, IMPORTED: source.origin, "context.name": source.name}
    if not source.steps.first_step:
        facts[FIRST_STEP] = "unknown"
    folder.write_json("fingerprint.json", Fingerprint(facts).to_json())
    if cache := cache_of(facts):
        folder.write_json("caches.json", {"root": None, "before": asdict(cache), "after": None})
    end, summary = source.end, _summary(source, facts)
    result = Result(end.status, None, end.signal, end.reason, source.started_at, source.ended_at, summary)
    folder.write_json("result.json", result.to_json())
    read = {name: getattr(source, name) for name in ("key", "reading", "origin", "understood", "mlflow_run_id")}
    folder.write_json(RECORD, {**read, "given": dict(given)})
    folder.write_json("spec.json", asked_for(facts).to_json())


def _summary(source: Source, facts: Mapping[str, Value]) -> Summary:
    """The figures of the events, without those that would be made up."""
    summary = summarise(source.events, cache_of(facts))
    return replace(
        summary,
        cache_start=str(facts.get("state.cache.start", summary.cache_start)),
        first_step_s=summary.first_step_s if source.steps.first_step else None,
        whole_run_tok_s=None if source.steps.nominal else summary.whole_run_tok_s,
    )
