"""Pairs of real runs: ``toy``, and ``tiny`` where there is time for it, made by the harness on this machine.

What is switched on is known, and everything else is real: processes, clocks, the machine's load and its facts. The
runs of the two sides take turns, so that what happens to the machine happens to both.
"""

from __future__ import annotations

import dataclasses
import os
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.pairs.pair import HARMLESS_CHANGES, NONE, Pair
from benchmarks.pairs.ways import Patterns
from harness.places import Places
from harness.records import Event, Fingerprint
from harness.run.folder import RunFolder
from harness.run.orders import recipe_order
from harness.run.resolve import resolve
from harness.run.runner import execute

RUNS = {"toy": 4, "tiny": 2}
"""Runs a side."""

STEP_S = 0.01
BASE: Mapping[str, dict[str, str]] = {
    "toy": {"seconds": str(STEP_S), "steps": "150", "tokens": "1000"},
    "tiny": {"train.steps": "80", "threads": "1", "data.sequences": "64", "eval.prompts": "2"},
}


@dataclass(frozen=True)
class Switch:
    """A setting of a real recipe that makes it slower."""

    kind: str
    recipe: str
    settings: dict[str, str]
    truth: Patterns


def _slow(phase: str, share: float) -> Switch:
    return Switch("a phase", "toy", {f"slow.{phase}": f"{share * STEP_S:.5f}"}, (f"execution.slow.{phase}",))


TOY = (
    _slow("data", 0.4),
    _slow("wait", 0.6),
    _slow("target", 0.3),
    _slow("forward", 1.2),
    _slow("backward", 0.5),
    _slow("optimizer", 0.8),
    _slow("communication", 0.5),
    Switch("cache", "toy", {"cold_start": "1.5"}, ("execution.cold_start", "observed.cache*", "observed.compile*")),
    Switch(
        "padding",
        "toy",
        {"tokens": "650", "padding": "350"},
        ("workload.tokens", "workload.padding", "observed.padding*", "observed.tokens*"),
    ),
    Switch("cpu", "toy", {"seconds": str(1.5 * STEP_S)}, ("execution.seconds",)),
)

TINY = (
    Switch("dense", "tiny", {"compile": "none"}, ("execution.compile", "execution.compile.used", "observed.dense*")),
    Switch("batch", "tiny", {"train.anchors": "96"}, ("workload.train.anchors",)),
    Switch("shape", "tiny", {"model.layers": "3"}, ("workload.model.*",)),
    Switch("batch", "tiny", {"train.batch": "1"}, ("workload.train.batch", "observed.tokens*")),
)

SETTINGS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "toy": (("seed", "5"), ("noise", "0.021"), ("steps", "170")),
    "tiny": (("train.seed", "5"), ("train.lr", "0.002"), ("train.warmup", "0.05"), ("train.clip", "0.9")),
}
VARIABLES = {
    "NCCL_DEBUG": "INFO",
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    "HF_HOME": "/tmp/hf",
    "PYTHONHASHSEED": "0",
    "TORCH_SHOW_CPP_STACKTRACES": "1",
    "CUDA_LAUNCH_BLOCKING": "0",
    "NVIDIA_TF32_OVERRIDE": "0",
    "TRANSFORMERS_VERBOSITY": "error",
}
"""Variables that are recorded, and that no run without a GPU asks for."""


class Silent:
    """Looks on and says nothing."""

    def started(self, folder: RunFolder, fingerprint: Fingerprint) -> None:
        pass

    def event(self, event: Event) -> None:
        pass

    def output(self, stream: str, text: str) -> None:
        pass


def real_pair(recipe: str, seed: int, where: Places) -> Pair:
    """Make the runs of pair ``seed`` under ``where.runs``; each fifth pair has no true change."""
    dice = random.Random(f"real {recipe} {seed}")
    switches = {"toy": TOY, "tiny": TINY}[recipe]
    switch = None if seed % 5 == 4 else switches[(seed - seed // 5) % len(switches)]
    settings = dict(dice.sample(SETTINGS[recipe], len(SETTINGS[recipe])))
    variables = dict(dice.sample(list(VARIABLES.items()), HARMLESS_CHANGES - len(settings)))
    changed = {**BASE[recipe], **settings, **(switch.settings if switch else {})}
    before: list[Path] = []
    after: list[Path] = []
    for turn in range(RUNS[recipe]):
        for side in ("AB", "BA")[turn % 2]:
            if side == "A":
                before.append(_run(recipe, BASE[recipe], {}, where))
            else:
                after.append(_run(recipe, changed, variables, where))
    name = " ".join(f"{k}={v}" for k, v in switch.settings.items()) if switch else ""
    truth = (switch.truth,) if switch else ()
    return Pair(
        switch.kind if switch else NONE, seed, name, recipe, tuple(before), tuple(after), (), truth, synthetic=False
    )


def _run(recipe: str, settings: Mapping[str, str], variables: Mapping[str, str], where: Places) -> Path:
    spec = resolve(recipe, [f"{key}={value}" for key, value in settings.items()])
    with _variables(variables):
        run = execute(recipe_order(spec, where), where, Silent())
    if run.result.status != "finished":
        raise RuntimeError(f"{run.folder}: {run.result.status}: {run.result.reason}")
    return Path(run.folder)


@contextmanager
def _variables(added: Mapping[str, str]) -> Iterator[None]:
    """``added`` in this process's environment, for a run to inherit."""
    before = dict(os.environ)
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]
        os.environ.update({name: before[name] for name in added if name in before})


def apart(where: Places, runs: Path) -> Places:
    """The same environments and models, and another folder for the runs."""
    return dataclasses.replace(where, runs=runs)
