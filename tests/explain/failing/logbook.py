"""Runs that failed, made from a log: the fixtures in ``failures/``, whose first lines say how the run ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harness.evidence import Evidence, Steps
from harness.records import CacheState, Finished, Result, Run, RunSpec, Value

FIXTURES = sorted((Path(__file__).parent / "logs").glob("*.log"))


def a_run(result: Result, env: str = "cu130", before: CacheState | None = None, run_id: str = "b") -> Run:
    spec = RunSpec(recipe="", env=env, argv=("python", "train.py"))
    return Run(run_id, f"runs/{run_id}", spec, result, None, before, before)


def failed(
    stderr: str = "", stdout: str = "", status: str = "failed", exit_code: int | None = 1, signal: int | None = None,
    reason: str = "", facts: Mapping[str, Value] | None = None, **more: Any,
) -> Evidence:  # fmt: skip
    """The evidence of a run that ended so, with these logs."""
    result = Result(status, exit_code, signal, reason)  # type: ignore[arg-type]
    return Evidence(
        a_run(result), facts or {}, stderr=tuple(stderr.split("\n")), stdout=tuple(stdout.split("\n")), **more
    )


def read(path: Path) -> tuple[Evidence, dict[str, str]]:
    """A fixture, and what its head says of it."""
    text = path.read_text("utf-8").splitlines()
    head = dict(line[3:].split("=", 1) for line in text if line.startswith("#: "))
    log = "\n".join(line for line in text if not line.startswith("#: "))
    return failed(
        log,
        status=head.get("status", "failed"),
        exit_code=int(head.get("exit_code", 1)),
        signal=int(head["signal"]) if "signal" in head else None,
        reason=head.get("reason", ""),
        facts={"context.cwd": head["cwd"]} if "cwd" in head else {},
        finished=Finished(9.0, False, head["finished"]) if "finished" in head else None,
    ), head


def steps(t: Sequence[float], number: Sequence[int] | None = None) -> Steps:
    """The steps of one role on one device that ended at these times."""
    ends = np.asarray(t, dtype=float)
    ones = np.ones(len(ends), dtype=np.int64)
    numbers = np.asarray(number if number is not None else range(1, len(ends) + 1), dtype=np.int64)
    return Steps(ends, numbers, 0 * ones, np.full(len(ends), 0.1), 1000 * ones, 0 * ones, {}, ("cuda:0",))
