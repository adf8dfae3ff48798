"""A run that a tracker knows: its points made into steps, facts and telemetry. ``mirror/logged.py`` asks MLflow."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from harness.records import SCHEMA, Status, Value
from harness.run.imported.facts import of_params
from harness.run.imported.figures import Figures, figures_of

SYSTEM = "system/"


class Logged(NamedTuple):
    """One value of one metric. ``t``: seconds since the run began."""

    t: float
    step: int
    value: float


@dataclass(frozen=True)
class LoggedRun:
    """A run as MLflow has it. Times in seconds since 1970."""

    id: str
    uri: str
    name: str
    status: Status
    said: str  # the status in MLflow's own word
    started_at: float
    ended_at: float | None
    metrics: Mapping[str, Sequence[Logged]]
    params: Mapping[str, str]
    tags: Mapping[str, str]
    files: Mapping[str, str] = field(default_factory=dict)  # of a run that a harness mirrored: where each now lies

    @property
    def harness_id(self) -> str:
        """The id of the run folder that this run mirrors; "" where no harness made it."""
        return self.tags.get("harness.run_id", "")


def rows_of(run: LoggedRun) -> tuple[list[Figures], list[Figures]]:
    """(rows, evaluations) of a run's points: what it said of each step, in order of the steps."""
    rows: dict[int, Figures] = {}
    evaluations: dict[int, Figures] = {}
    for key, points in run.metrics.items():
        if key.startswith(SYSTEM):
            continue
        counted = all(point.step == 0 for point in points)  # nobody told MLflow the steps
        for number, point in enumerate(points, 1):
            said = figures_of(f"{key}: {point.value!r}")
            if said is None:
                break  # no point of this metric says anything of a step
            if said.counts or said.evaluated:
                _join(evaluations if said.evaluated else rows, number if counted else point.step, said, point.t)
    return [rows[step] for step in sorted(rows)], [evaluations[step] for step in sorted(evaluations)]


def _join(into: dict[int, Figures], step: int, said: Figures, t: float) -> None:
    row = into.setdefault(step, Figures(step, step=step, clock=t))
    row.clock = max(row.clock or 0.0, t)
    row.evaluated.update(said.evaluated)
    row.named.update(said.named)
    for name in ("loss", "tokens", "rate", "seconds"):
        if (value := getattr(said, name)) is not None:
            setattr(row, name, value)


def facts_of(run: LoggedRun, known: Mapping[str, Value]) -> dict[str, Value]:
    """Its params and what else MLflow says of it, as facts; what a person gave (``known``) goes before."""
    facts = of_params(run.params, known)
    commit = run.tags.get("mlflow.source.git.commit")
    if commit:
        facts["code.commit"] = commit
    facts |= {f"context.mlflow.{n}": v for n in ("source.name", "user") if (v := run.tags.get(f"mlflow.{n}"))}
    return facts


# --- MLflow's own system metrics -------------------------------------------------------------------------

_MACHINE: Mapping[str, tuple[str, str, float]] = {
    "cpu_utilization_percentage": ("cpu", "use_pct", 1.0),
    "system_memory_usage_megabytes": ("memory", "used_bytes", 1e6),
    "disk_usage_megabytes": ("disk", "used_bytes", 1e6),
}
_CARD: Mapping[str, tuple[str, float]] = {
    "utilization_percentage": ("use_pct", 1.0),
    "memory_usage_megabytes": ("memory_used_bytes", 1e6),
    "power_usage_watts": ("power_w", 1.0),
}


def telemetry_of(run: LoggedRun) -> list[dict[str, Any]]:
    """MLflow's system metrics as the samples of ``telemetry.jsonl``, in order of time; empty where it kept none."""
    samples: defaultdict[float, dict[str, Any]] = defaultdict(dict)
    for key, points in run.metrics.items():
        for point in points if key.startswith(SYSTEM) else ():
            _put(samples[round(point.t, 1)], key.removeprefix(SYSTEM), point.value)
    return [{"schema": SCHEMA, "t": t, **_cards_listed(samples[t])} for t in sorted(samples) if samples[t]]


def _put(sample: dict[str, Any], name: str, value: float) -> None:
    if name in _MACHINE:
        part, figure, times = _MACHINE[name]
        sample.setdefault(part, {})[figure] = value * times
    elif name.startswith("gpu_"):
        index, _, rest = name.removeprefix("gpu_").partition("_")
        if index.isdecimal() and rest in _CARD:
            figure, times = _CARD[rest]
            sample.setdefault("gpus", {}).setdefault(int(index), {})[figure] = value * times


def _cards_listed(sample: dict[str, Any]) -> dict[str, Any]:
    if "gpus" not in sample:
        return sample
    return {**sample, "gpus": [{"index": index, **state} for index, state in sorted(sample["gpus"].items())]}
