"""A run that MLflow knows made into a run folder: the one that it was, where a harness mirrored it from there."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from harness.errors import UsageError
from harness.records import Value
from harness.run.folder import RunFolder
from harness.run.imported.folder import RECORD, End, Imported, Source, aside, happened, keep, steps_in_words
from harness.run.imported.rows import NO_STEPS, steps_of
from harness.run.imported.tracker import LoggedRun, facts_of, rows_of, telemetry_of

WHOLE = ("spec.json", "result.json", "events.jsonl")
"""Files of a run folder without which it is not brought back as it was."""


def import_tracked(run: LoggedRun, runs: Path, facts: Mapping[str, Value], name: str = "") -> Imported:
    """The folder of a run that MLflow knows.

    Raises UsageError where it says nothing of a step, or where facts are given for a run that has recorded its own.
    """
    if run.harness_id and set(WHOLE) <= run.files.keys():
        return _restored(run, runs, facts)
    rows, evaluations = rows_of(run)
    if not rows and run.status == "finished":
        raise UsageError(
            f"MLflow's {run.id} says nothing of a step: none of its {len(run.metrics)} metrics is a loss, tokens, "
            "a rate or seconds"
        )
    steps = steps_of(rows, clock_from_start=True) if rows else NO_STEPS
    finished = run.status == "finished"
    source = Source(
        key=f"mlflow {run.id}",
        reading="",
        name=name or run.name or "mlflow",
        origin=f"MLflow's {run.id} at {run.uri}",
        end=End(run.status, "" if finished else f"MLflow says {run.said}"),
        started_at=run.started_at,
        ended_at=run.ended_at,
        steps=steps,
        events=happened(steps, evaluations, (), finished),
        understood=steps_in_words(steps),
        facts=facts_of(run, facts),
        telemetry=tuple(telemetry_of(run)),
        mlflow_run_id=run.id,
    )
    return keep(source, runs, facts)


def _restored(run: LoggedRun, runs: Path, facts: Mapping[str, Value]) -> Imported:
    """The folder that a harness mirrored, from the files that MLflow has of it."""
    if facts:
        raise UsageError(
            f"MLflow's {run.id} is {run.harness_id}, a run of a harness: its facts are recorded, not given"
        )
    there = RunFolder(runs / Path(run.harness_id).name)
    if (there.path / "spec.json").exists():
        return Imported(there, False, False, ("it is here",))
    with aside(runs, there.id) as folder:
        for name, file in run.files.items():
            shutil.copyfile(file, folder.path / Path(name).name)
        folder.write_json(RECORD, {"key": f"mlflow {run.id}", "origin": run.uri, "mlflow_run_id": run.id})
    return Imported(there, True, False, (f"a run of a harness, as it was: {len(run.files)} files",))
