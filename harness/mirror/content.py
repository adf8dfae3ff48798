"""What MLflow is told of a run beside its metrics: params, tags, the data set, the description, the files. Pure.

Params are the settings, so that MLflow's compare view shows which differ. Tags are the identities and the headline
facts. The whole fingerprint goes along as a file: a run has hundreds of facts, and MLflow draws each as a row.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from harness import figures
from harness.records import Run, Value

MAX_KEY = 250
MAX_PARAM = 6000
MAX_TAG = 8000  # characters; beyond these three MLflow refuses the whole batch
MAX_DATASET_DIGEST = 36
MAX_ARTIFACT_BYTES = 64 * 2**20  # a longer file is not copied to MLflow: it stays in the run folder

FIXED_ARTIFACTS = ("spec.json", "fingerprint.json", "lock.txt", "code.patch")
"""Files that are whole when a run starts; the others grow until it ends."""

ARTIFACTS = (
    *FIXED_ARTIFACTS,
    "caches.json",
    "stdout.log",
    "stderr.log",
    "events.jsonl",
    "telemetry.jsonl",
    "result.json",
    "steps.parquet",
    "explanation.html",
    "explanation.json",
)

HEADLINES: Mapping[str, str] = {
    "lock": "environment.lock",
    "python": "environment.python",
    "torch": "environment.package.torch",
    "cuda": "environment.cuda",
    "gpu": "environment.gpu.0.name",
    "gpus": "environment.gpu.count",
    "driver": "environment.gpu.driver",
    "cpu": "environment.cpu.model",
    "host": "context.host",
    "commit": "code.commit",
    "dirty": "code.dirty",
}
"""Tag ``harness.NAME`` <- the fact of the fingerprint, where it was recorded."""


@dataclass(frozen=True)
class Dataset:
    """The data that a run trained on, as MLflow lists it."""

    name: str
    digest: str
    profile: Mapping[str, Value]


def experiment(run: Run) -> str:
    """Runs of one recipe share an experiment: with the same settings and metrics, a comparison says something."""
    return run.spec.recipe or "command"


def spell(value: Value) -> str:
    """As a person would type it in an override: ``true``, ``none``, ``8``."""
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def params(run: Run, facts: Mapping[str, Value]) -> dict[str, str]:
    """The settings, flat, and the workload facts that only the child knew (``facts`` of its Started event)."""
    settings: dict[str, Value] = {**run.spec.config, **facts}
    if run.spec.argv and not run.spec.recipe:
        settings["command"] = shlex.join(run.spec.argv)
    return {key: value[:MAX_PARAM] for key, value in _legal(settings).items()}


def tags(run: Run) -> dict[str, str]:
    """Identities and headline facts. An unknown fact has no tag: it is unknown, not empty."""
    facts = run.fingerprint.facts if run.fingerprint else {}
    named: dict[str, Value] = {
        "run_id": run.id,
        "spec": run.spec.id,
        "status": run.result.status,
        "env": run.spec.env or None,
        "fingerprint": run.fingerprint.digest if run.fingerprint else None,
        "reason": run.result.reason or None,
        "folder": run.folder,
        "tags": ", ".join(run.tags),  # empty where it has none (any more)
        **{name: facts.get(fact) for name, fact in HEADLINES.items()},
    }
    if run.result.status != "running":
        named["cache_start"] = run.result.summary.cache_start
        named["lossless"] = run.result.summary.lossless
        named["bound"] = run.result.summary.bound or None
    prefixed: dict[str, Value] = {f"harness.{key}": value for key, value in named.items() if value is not None}
    source = run.spec.recipe or shlex.join(run.spec.argv)
    commit = named["commit"]
    own = {"mlflow.source.name": source, "mlflow.source.type": "LOCAL"} | (
        {"mlflow.source.git.commit": str(commit)} if commit else {}
    )
    legal = _legal({**prefixed, **own, "mlflow.note.content": description(run)})
    return {key: value[:MAX_TAG] for key, value in legal.items()}


def dataset(run: Run, facts: Mapping[str, Value]) -> Dataset | None:
    """The training data, or None where the child did not say what it reads."""
    digest = facts.get("workload.data.digest")
    if digest is None:
        return None
    profile = {k.removeprefix("workload.data."): v for k, v in facts.items() if k.startswith("workload.data.")}
    name = str(profile.get("name") or f"{experiment(run)} data")
    return Dataset(name=name, digest=str(digest)[:MAX_DATASET_DIGEST], profile=profile)


def description(run: Run) -> str:
    """A short page of Markdown that says what the run was and what came of it."""
    result, summary = run.result, run.result.summary
    accept = f"accept length {figures.accept_text(summary)}" if figures.accept_text(summary) else ""
    speed = figures.ktok(summary.throughput_tok_s) if summary.throughput_tok_s else ""
    headline = [f"**{experiment(run)}**", result.status, speed, accept, figures.lossless_text(summary)]
    table = "\n".join(["| | |", "|---|---|", *(f"| {name} | {text} |" for name, text in _rows(run) if text)])
    head = " · ".join(part for part in headline if part)
    return "\n\n".join(part for part in (head, result.reason, run.spec.summary, table) if part)


def _rows(run: Run) -> Iterable[tuple[str, str]]:
    summary = run.result.summary
    yield "steps", f"{summary.steps:,}" if summary.steps else ""
    yield "roles", figures.roles_text(summary)
    yield "time to first step", figures.duration(summary.first_step_s) if summary.first_step_s is not None else ""
    yield "loss", figures.loss_text(summary)
    yield "untrained baselines", figures.baseline_text(summary)
    yield "compile", figures.compile_text(summary)
    before, after = figures.held(run.cache_before), figures.held(run.cache_after)
    yield "compile cache", f"{before} → {after}" if run.cache_after else ""
    yield "environment", run.spec.env
    yield "run folder", f"`{run.folder}`"
    yield "again", f"`harness rerun {run.id}`"


def _legal(values: Mapping[str, Value]) -> dict[str, str]:
    """Keys that MLflow takes: letters, digits and ``_-. :/``, at most 250 characters."""
    return {key_of(key): spell(value) for key, value in values.items()}


def key_of(text: str) -> str:
    """``text`` as a key that MLflow takes, of a param, a tag or a metric."""
    parts = [part for part in re.sub(r"[^\w\-. :/]", "_", text).split("/") if part not in ("", ".", "..")]
    return "/".join(parts)[:MAX_KEY] or "_"
