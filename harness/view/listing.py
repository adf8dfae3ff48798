"""Runs as a list, and one run as the JSON of ``harness show --json``. Which run a word names: ``folder.find``."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.errors import RecordError
from harness.figures import accept_length, took
from harness.records import SCHEMA, CacheState, Run
from harness.run.folder import run_folders


@dataclass(frozen=True)
class Listing:
    """Runs, the latest first; how many there are in all; and folders that cannot be read, each with the reason."""

    runs: tuple[Run, ...]
    total: int
    unreadable: tuple[str, ...] = ()


def list_runs(folder: Path, limit: int | None = None) -> Listing:
    """The latest ``limit`` runs under ``folder``, or all. One broken record does not hide the others."""
    known = run_folders(folder)
    runs: list[Run] = []
    unreadable: list[str] = []
    for found in known[:limit]:
        try:
            runs.append(found.load())
        except RecordError as error:
            unreadable.append(str(error))
    return Listing(tuple(runs), len(known), tuple(unreadable))


def to_json(run: Run) -> dict[str, Any]:
    """The run in one object, for programs. What is not known is null. Throughput in tokens a second, times in s."""
    result, summary = run.result, run.result.summary
    return {
        "schema": SCHEMA,
        "id": run.id,
        "recipe": run.spec.recipe or None,
        "argv": list(run.spec.argv),
        "env": run.spec.env or None,
        "status": result.status,
        "reason": result.reason,
        "warnings": list(summary.warnings),
        "exit_code": result.exit_code,
        "signal": result.signal,
        "folder": run.folder,
        "tags": list(run.tags),
        "started_at": result.started_at or None,
        "ended_at": result.ended_at,
        "seconds": took(run),
        "spec_id": run.spec.id,
        "config": dict(run.spec.config),
        "lock_digest": run.fingerprint.facts.get("environment.lock") if run.fingerprint else None,
        "fingerprint_digest": run.fingerprint.digest if run.fingerprint else None,
        "mlflow_run_id": run.mlflow_run_id,
        "steps": summary.steps,
        "tokens": summary.tokens,
        "padding": summary.padding,
        "throughput_tok_s": asdict(summary.throughput_tok_s) if summary.throughput_tok_s else None,
        "whole_run_tok_s": summary.whole_run_tok_s,
        "first_step_s": summary.first_step_s,
        "loss": {"first": summary.loss_first, "last": summary.loss_last},
        "phases": dict(summary.phases),
        "waits": dict(summary.waits),
        "bound": summary.bound or None,
        "devices": [asdict(device) for device in summary.devices],
        "accept_length": accept_length(summary),
        "lossless": summary.lossless,
        "evals": {name: dict(metrics) for name, metrics in summary.evals.items()},
        "compile_s": summary.compile_s,
        "compile": {
            "hits": summary.cache_hits,
            "misses": summary.cache_misses,
            "bypasses": summary.cache_bypasses,
            "start": summary.cache_start,
        },
        "cache": {"before": _cache(run.cache_before), "after": _cache(run.cache_after)},
    }


def _cache(state: CacheState | None) -> dict[str, Any] | None:
    return {"bytes": state.bytes, "entries": state.entries, "by_kind": dict(state.by_kind)} if state else None
