"""How fast training is on this machine's GPUs: ``nox -s gpu`` ends with it. About two minutes, with whatever is there.

On one GPU, which target and drafter share: tiny and a mid-size drafter, compiled and not, flex_attention against SDPA,
the best of them also with CUDA graphs, and with a thread and a stream for each role.
On two or more also threads (compile guard on) against processes: one target, the other GPUs (three at most) drafters.
The targets are random: what they know decides no speed. Prints a table, and writes .harness/gpu-benchmark.json.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from transformers import Qwen3ForCausalLM

from experiments.dflash.attention import Attention
from experiments.dflash.config import Backend, DFlashConfig, ModelConfig, TargetConfig, TrainConfig
from experiments.dflash.data import Dataset
from experiments.dflash.layout import Kind, TopologyConfig
from experiments.dflash.pretrain import MASK, RESERVED, architecture
from experiments.dflash.target import Target
from experiments.dflash.topology.crew import crew
from experiments.dflash.topology.start import start
from experiments.dflash.train import settled
from harness.config import flatten
from harness.errors import HarnessError
from harness.places import places
from harness.run.events import Recorder

WARM_UP = 3
"""Steps that are not counted: the first compiles, the next ones fill caches."""

TINY = DFlashConfig(train=TrainConfig(steps=30, batch=12))
MID = DFlashConfig(
    target=TargetConfig(layers=8, hidden=1024, heads=8, kv_heads=4, head_dim=128, ffn=3072),
    model=ModelConfig(layers=3, block_size=16, target_layer_ids="1,3,5"),
    data=replace(TINY.data, length=1024),
    train=TrainConfig(steps=15, batch=12, anchors=64),
    precision="bf16",
)
SIZES = {"tiny": TINY, "mid": MID}


@dataclass(frozen=True)
class Measured:
    """One configuration. ``tokens_a_second``: over all drafters, at the median step; None where it failed, and why."""

    name: str
    first_step_s: float = 0.0
    step_s: float = 0.0
    tokens_a_second: float | None = None
    failed: str = ""


def cells(sizes: Mapping[str, DFlashConfig], device: str, gpus: int) -> Iterator[tuple[str, DFlashConfig]]:
    """What is measured, by name; flex_attention and more than one device only on CUDA."""
    attentions: tuple[Attention, ...] = ("sdpa", "flex") if device.startswith("cuda") else ("sdpa",)
    backends: tuple[Backend, ...] = ("none", "inductor") if device.startswith("cuda") else ("none", "aot_eager")
    for size, config in sizes.items():
        for attention in attentions:
            for backend in backends:
                name = f"{size}, {attention}, {'uncompiled' if backend == 'none' else backend}"
                yield name, replace(config, device=device, attention=attention, compile=backend)
        if device.startswith("cuda"):
            best = replace(config, device=device, attention="flex", compile="inductor")
            yield f"{size}, flex, inductor, CUDA graphs", replace(best, cuda_graphs=True)
            shared = TopologyConfig("threads", device, device)
            yield f"{size}, flex, inductor, two threads on one GPU", replace(best, device="auto", topology=shared)
    kinds: tuple[Kind, ...] = ("threads", "processes")
    for size, config in sizes.items() if gpus > 1 else ():
        drafters = ",".join(f"cuda:{number}" for number in range(1, min(gpus, 4)))
        for kind in kinds:
            yield f"{size}, {kind}", replace(config, topology=TopologyConfig(kind, "cuda:0", drafters))


def random_target(config: DFlashConfig) -> Target:
    """Of the config's shape, the same in every process."""
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(architecture(config.target))
    return Target(model, config.model.layer_ids(config.target.layers), MASK, RESERVED, "random", "random")


def random_dataset(config: DFlashConfig) -> Dataset:
    """Rows of one document each, without padding."""
    size = (4 * config.train.batch, config.data.length)
    ids = torch.randint(1, 128, size, generator=torch.Generator().manual_seed(0))
    every = torch.ones(size, dtype=torch.bool)
    return Dataset(ids, every, torch.zeros(size, dtype=torch.int64), config.train.batch, 0, "random")


def train(config: DFlashConfig, recorder: Recorder) -> str:
    """A training by the trainer's own crew."""
    team = crew(settled(config)[0], recorder)
    team.board(team.make(lambda: random_target(config)), team.make(lambda: random_dataset(config)))
    return team.train()


def measure(name: str, config: DFlashConfig, folder: Path) -> Measured:
    """Train, in this process (inline) or in one of its own, and read what was recorded."""
    folder.mkdir()
    try:
        if config.topology.kind == "inline" and not config.cuda_graphs:  # a capture that failed spoils its process
            torch.compiler.reset()
            failed = train(config, Recorder(folder, 0.0))
        else:
            failed = elsewhere(config, folder)
    except Exception as error:  # whatever torch and Triton raise where a GPU cannot run it: a line of the table
        failed = (f"{type(error).__name__}: {error}".splitlines())[0]
    return Measured(name, failed=failed) if failed else figures(name, folder)


def elsewhere(config: DFlashConfig, folder: Path) -> str:
    """Train in a process that this program is started in again. Returns why it failed, or ""."""
    (folder / "spec.json").write_text(json.dumps({"config": flatten(config)}))
    environment = {**os.environ, "HARNESS_RUN": str(folder)}
    argv = [sys.executable, *sys.orig_argv[1:]]
    done = subprocess.run(argv, env=environment, stderr=subprocess.PIPE, text=True, timeout=600)
    return (done.stderr.strip().splitlines() or ["it says nothing"])[-1] if done.returncode else ""


def figures(name: str, folder: Path) -> Measured:
    """What the training recorded in ``folder`` came to."""
    lines = (folder / "events.jsonl").read_text("utf-8").splitlines()
    steps = [e for e in map(json.loads, lines) if e["kind"] == "step" and e["role"] == "drafter"]
    settled_in = [step for step in steps if step["step"] > WARM_UP]
    seconds = statistics.median(step["seconds"] for step in settled_in)
    tokens = sum(step["tokens"] for step in settled_in) / len({step["step"] for step in settled_in})
    first = max(step["seconds"] for step in steps if step["step"] == 1)
    return Measured(name, first, seconds, tokens / seconds)


def run(sizes: Mapping[str, DFlashConfig], device: str, gpus: int, console: Console) -> list[Measured]:
    """All cells, one after the other, saying which."""
    found, todo = [], list(cells(sizes, device, gpus))
    with tempfile.TemporaryDirectory(prefix="gpu-benchmark-") as scratch:
        for number, (name, config) in enumerate(todo, 1):
            console.print(f"{number} of {len(todo)}: {name}")
            found.append(measure(name, config, Path(scratch) / str(number)))
    return found


def table(found: Sequence[Measured]) -> Table:
    """Speeds as they are, and as ratios to the first of the same size."""
    shown = Table("what", "first step, s", "step, ms", "tokens/s", "ratio")
    first: dict[str, float] = {}
    for one in found:
        if one.tokens_a_second is None:
            shown.add_row(one.name, "", "", one.failed, "")
            continue
        base = first.setdefault(one.name.partition(",")[0], one.tokens_a_second)
        speed = one.tokens_a_second
        shown.add_row(
            one.name, f"{one.first_step_s:.1f}", f"{one.step_s * 1e3:.1f}", f"{speed:,.0f}", f"{speed / base:.2f}"
        )
    return shown


def main() -> int:
    """The whole benchmark; or, where a benchmark started this process, one training of it."""
    if "HARNESS_RUN" in os.environ:
        return one_training()
    gpus = torch.cuda.device_count()
    if not gpus:
        print("no GPU here: nothing was measured", file=sys.stderr)
        return 2
    console = Console()
    found = run(SIZES, "cuda:0", gpus, console)
    console.print(table(found))
    names = [torch.cuda.get_device_name(number) for number in range(gpus)]
    document: dict[str, Any] = {"torch": torch.__version__, "gpus": names, "cells": [asdict(one) for one in found]}
    kept = places().state / "gpu-benchmark.json"
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(document, indent=1) + "\n")
    console.print(f"written to {kept}")
    return int(any(one.failed for one in found))


def one_training() -> int:
    """The training whose folder HARNESS_RUN names, in this process; its exit code."""
    try:
        reason = start(train, Recorder.from_environment())
    except HarnessError as error:
        reason = str(error)
    if reason:
        print(reason, file=sys.stderr)
    return int(bool(reason))


if __name__ == "__main__":
    sys.exit(main())
