"""Runs of the first user's box, from the figures of their accounts: whole run folders, as the harness leaves them.

Five target threads and three drafter threads on eight GPUs; 21.5 Ktok/s when all was well.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.records import (
    CacheState,
    Checkpoint,
    Compile,
    Event,
    Fingerprint,
    Finished,
    Note,
    Result,
    RunSpec,
    Started,
    Step,
    Value,
    event_to_json,
)
from harness.run.columns import write_columns
from harness.run.folder import RunFolder
from harness.run.summary import summarise

WARM = CacheState(353_000_000, 285, {"fxgraph": {"bytes": 353_000_000, "entries": 285}})
COLD = CacheState(19_000_000, 62, {"fxgraph": {"bytes": 19_000_000, "entries": 62}})

PHASES = {"data": 0.01, "wait": 0.06, "forward": 0.36, "backward": 0.50, "optimizer": 0.05, "other": 0.02}

FACTS: Mapping[str, Value] = {
    "code.commit": "a" * 40,
    "environment.gpu.count": 8,
    "environment.gpu.0.name": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
    "environment.driver": "580.65.06",
    "environment.package.torch": "2.11.0+cu128",
    "environment.package.triton": "3.6.0",
    "environment.python": "3.12.3",
    "execution.devices": "target:cuda:0 ... drafter:cuda:7",
    "execution.compile.used": "inductor",
    "execution.attention.used": "flex",
    "workload.data.sequences": 902_000,
    "workload.data.digest": "d" * 64,
    "workload.model.heads": "balanced",
    "workload.train.batch": 4,
    "workload.train.seed": 0,
}


@dataclass(frozen=True)
class Told:
    """What differs from the good run."""

    rate: float = 21_500.0
    facts: Mapping[str, Value] = field(default_factory=dict)
    cache: CacheState = WARM
    phases: Mapping[str, float] = field(default_factory=lambda: PHASES)
    compile_s: float = 3.0
    steps: int = 300
    stderr: str = ""
    warning: str = ""
    seed: int = 1
    pause_s: float = 0.0  # after each tenth step, for a checkpoint
    recompile_s: float = 0.0  # in each of steps 40, 60, 80, 100 and 120


def run(runs: Path, name: str, told: Told) -> RunFolder:
    """A whole run under ``runs``; one with ``stderr`` crashed after its last step."""
    folder = RunFolder(runs / name)
    folder.path.mkdir(parents=True)
    held = {"state.cache.bytes": told.cache.bytes, "state.cache.entries": told.cache.entries}
    facts = {**FACTS, **held, **told.facts}
    start = 1_795_000_000.0 + 3600 * sum(map(ord, name))
    spec = RunSpec(recipe="qwen3_6_27b_8gpu", env="cu128", argv=("python", "-m", "experiments.dflash.train"))
    folder.write_json("spec.json", spec.to_json())
    folder.write_json("fingerprint.json", Fingerprint(facts).to_json())
    events = list(_events(told))
    with (folder.path / "events.jsonl").open("w") as file:
        file.writelines(json.dumps(event_to_json(event)) + "\n" for event in events)
    folder.write_json("caches.json", {"root": "/c", "before": vars(told.cache), "after": vars(told.cache)})
    (folder.path / "stdout.log").write_text("")
    (folder.path / "stderr.log").write_text(told.stderr)
    summary = summarise(events, told.cache)
    failed = bool(told.stderr)
    reason = told.stderr.strip().splitlines()[-1] if failed else ""
    outcome = "failed" if failed else "finished"
    result = Result(outcome, int(failed), None, reason, start, start + events[-1].t, summary)  # type: ignore[arg-type]
    folder.write_json("result.json", result.to_json())
    write_columns(folder.path)
    return folder


def _events(told: Told) -> list[Event]:
    dice = random.Random(told.seed)
    said: list[Event] = [
        Started(40.0, 1, told.steps, {}),
        Compile(45.0 + told.compile_s, "flex_attention", told.compile_s, 1, 9),
    ]
    if told.warning:
        said.append(Note(46.0, told.warning, "warning"))
    t, tokens, luck = 45.0 + told.compile_s, 12_288, 0.0
    for number in range(1, told.steps + 1):
        luck = 0.6 * luck + dice.gauss(0, 0.002)
        seconds = tokens / told.rate * (1 + luck)
        phases = {name: share * seconds for name, share in told.phases.items()}
        if told.recompile_s and number in range(40, 121, 20):
            seconds += told.recompile_s
            phases["compile"] = told.recompile_s
            said.append(Compile(t + told.recompile_s, "flex_attention", told.recompile_s, 0, 1))
        t += seconds
        said.append(Step(t, number, "drafter", "cuda:5", seconds, tokens, 400, phases, {"loss": 4.0}))
        if told.pause_s and number % 10 == 0:
            t += told.pause_s
            said.append(Checkpoint(t, f"step-{number}.safetensors", number))
    return said if told.stderr else [*said, Finished(t + 1)]


def _compiled(told: Told) -> Compile:
    """Warm, all nine graphs come from the cache; else they are compiled anew."""
    warm = told.cache.entries == WARM.entries
    return Compile(45.0 + told.compile_s, "flex_attention", told.compile_s, 1, 9 if warm else 0, 0 if warm else 9)
