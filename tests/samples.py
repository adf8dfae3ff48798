"""A run folder as a run leaves it, small and the same each time."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

from harness.records import (
    CacheState,
    Compile,
    Eval,
    Event,
    Fingerprint,
    Finished,
    Interval,
    Result,
    RunSpec,
    Started,
    Status,
    Step,
    Summary,
    Value,
    event_to_json,
)
from harness.run.folder import RunFolder

STARTED_AT = 1_795_000_000.0
CONFIG: Mapping[str, Value] = {"train.batch": 8, "train.lr": 3e-4, "train.steps": 40, "compile": "inductor"}
FACTS: Mapping[str, Value] = {
    "environment.lock": "ab" * 32,
    "environment.python": "3.11.7",
    "environment.package.torch": "2.13.0+cpu",
    "environment.gpu.count": 0,
    "code.commit": "9ff1230" + "0" * 33,
    "code.dirty": False,
    "context.host": "box",
}
EVALS = {
    "before": {"accept_length": 1.02, "accept_length_run": 1.0},
    "repeat_anchor": {"accept_length": 1.44, "accept_length_run": 3.95},
    "ngram": {"accept_length": 1.61, "accept_length_run": 4.4},
    "after": {"accept_length": 2.31, "accept_length_run": 6.1},
}


def events(steps: int = 40, speed: float = 1.0) -> list[Event]:
    """What a child that trains ``steps`` steps says."""
    known: dict[str, Value] = {"workload.data.digest": "d" * 64, "workload.data.sequences": 900}
    said: list[Event] = [Started(1.0, 1, steps, known)]
    said += [Eval(1.5, name, EVALS[name], lossless=None) for name in ("repeat_anchor", "ngram")]
    said += [Eval(2.0, "before", EVALS["before"], lossless=True), Compile(9.0, "drafter", 6.5, 1, 0, 12)]
    for n in range(1, steps + 1):
        seconds = (0.20 + 0.01 * math.sin(n)) / speed
        shares = {"target": 0.4, "forward": 0.3, "backward": 0.25, "other": 0.05}
        phases = {name: share * seconds for name, share in shares.items()}
        metrics = {"loss": 1 + 5 * math.exp(-n / 20), "lr": 3e-4}
        said.append(Step(9 + 0.2 * n / speed, n, "drafter", "cpu", seconds, 4000, 96, phases, metrics))
    end = 9 + 0.2 * steps / speed
    return [*said, Eval(end + 1, "after", EVALS["after"], lossless=True), Finished(end + 1.5)]


def summary(steps: int = 40, speed: float = 1.0) -> Summary:
    value = 20_000.0 * speed
    return Summary(
        steps=steps,
        tokens=4000 * steps,
        padding=96 * steps,
        throughput_tok_s=Interval(value, 0.99 * value, 1.01 * value),
        whole_run_tok_s=9_000.0,
        first_step_s=9.2,
        warmup_steps=2,
        compile_steps=1,
        compile_s=6.5,
        cache_misses=12,
        cache_start="cold",
        phases={"target": 3.2, "forward": 2.4, "backward": 2.0, "other": 0.4},
        evals=EVALS,
        lossless=True,
        loss_first=5.756,
        loss_last=1.677,
    )


def begin(runs: Path, run_id: str, recipe: str = "tiny", config: Mapping[str, Value] = CONFIG) -> RunFolder:
    """The folder of a run that has just begun: nobody holds its lock unless the test does."""
    folder = RunFolder(runs / run_id)
    folder.path.mkdir(parents=True)
    argv = ("python", "-m", "experiments.dflash.train") if recipe else ("./train.sh", "--fast", "a b")
    spec = RunSpec(recipe=recipe, env="cpu" if recipe else "", argv=argv, config=config, summary="A small drafter.")
    folder.write_json("spec.json", spec.to_json())
    folder.write_json("fingerprint.json", Fingerprint(FACTS).to_json())
    folder.write_json("result.json", Result("running", None, started_at=STARTED_AT).to_json())
    (folder.path / "lock.txt").write_text("torch==2.13.0+cpu\n")
    (folder.path / "stdout.log").write_text("training\n")
    (folder.path / "stderr.log").write_text("")
    return folder


def append(folder: RunFolder, said: list[Event]) -> None:
    with (folder.path / "events.jsonl").open("a") as file:
        file.writelines(json.dumps(event_to_json(event)) + "\n" for event in said)


def end(folder: RunFolder, status: Status = "finished", reason: str = "", outcome: Summary | None = None) -> None:
    """Write how the run ended, as its harness does last."""
    kinds = {"fxgraph": {"bytes": 9_000_000, "entries": 30}, "triton": {"bytes": 1_000_000, "entries": 2}}
    before, after = CacheState(0, 0), CacheState(10_000_000, 32, kinds)
    folder.write_json("caches.json", {"root": "/c", "before": vars(before), "after": vars(after)})
    with (folder.path / "telemetry.jsonl").open("w") as file:
        file.writelines(json.dumps({"schema": 1, "t": 2.0 * n, "cpu": {"use_pct": 50.0 + n}}) + "\n" for n in range(9))
    outcome = summary() if outcome is None else outcome
    code = {"finished": 0, "failed": 1}.get(status)
    result = Result(status, code, None, reason, STARTED_AT, STARTED_AT + 20, outcome)
    folder.write_json("result.json", result.to_json())


def recorded(runs: Path, run_id: str = "20261129-172855-tiny-3f2a", speed: float = 1.0, **begins: object) -> RunFolder:
    """A whole run that finished."""
    folder = begin(runs, run_id, **begins)  # type: ignore[arg-type]
    append(folder, events(speed=speed))
    end(folder, outcome=summary(speed=speed))
    return folder
