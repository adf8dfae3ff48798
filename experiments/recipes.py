"""Recipes: each a function that returns a complete RunSpec. Standard library only.

The one parameter's default is the recipe's whole configuration; ``harness run NAME key=value`` overrides it, and
``scale=NAME`` starts from another of its configurations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from experiments.dflash.config import DataConfig, DFlashConfig, EvalConfig, ModelConfig, TargetConfig, TrainConfig
from experiments.dflash.layout import TopologyConfig
from experiments.toy import ToyConfig
from harness.config import flatten, kinds
from harness.records import RunSpec

TOY = ToyConfig()

TINY = DFlashConfig()

# What this budget buys, measured once on two shared cores (11 minutes, 687 CPU-seconds, uncompiled): the loss falls
# from 89 to about 7 nats, and the accept length rises from 1.00 to 1.08, where n-gram lookup has 1.27. So it proves the
# path on a real model and makes no good drafter; for more, raise train.steps (3 s each on idle cores), data.sequences.
SMOLLM2 = DFlashConfig(
    target=TargetConfig(kind="smollm2"),
    model=ModelConfig(layers=1, block_size=8, target_layer_ids="1,14,27"),
    data=DataConfig(sequences=64, length=80, prompt=48),
    train=TrainConfig(steps=60, batch=4, anchors=16, lr=3e-3),
    eval=EvalConfig(prompts=4, prompt_tokens=48, new_tokens=32),
)

# DFlash's published choices for a Qwen3 target: five draft layers, blocks of 16. Each drafter trains on 4 rows a step:
# as planned, its GPU then holds 85.7 of its 96 GiB (89.6 in ``threads``), a target's 65.2, the first target's 72.0.
QWEN3_6_27B = DFlashConfig(
    target=TargetConfig(kind="qwen3.6-27b"),
    model=ModelConfig(layers=5, block_size=16, target_layer_ids=""),
    data=DataConfig(kind="text", sequences=902_000, length=3072),
    train=TrainConfig(steps=100_000, batch=12, anchors=512, lr=6e-4),
    topology=TopologyConfig("processes", targets="cuda:0,cuda:1,cuda:2,cuda:3,cuda:4", drafters="cuda:5,cuda:6,cuda:7"),
    precision="bf16",
)

# The same eight workers with tiny's models and data, simulated on the CPU: minutes on two cores. aot_eager traces
# as inductor does, in seconds: three drafters that each wait for inductor's C++ would take most of the run.
QWEN3_6_27B_AT_TINY = replace(
    TINY,
    train=replace(TINY.train, steps=60, batch=6),
    eval=replace(TINY.eval, prompts=4),
    topology=TopologyConfig("processes", targets="cpu:0,cpu:1,cpu:2,cpu:3,cpu:4", drafters="cpu:5,cpu:6,cpu:7"),
    compile="aot_eager",
)


def tiny(config: DFlashConfig = TINY) -> RunSpec:
    """A byte-level Qwen3 target on real code, pre-trained once, and its drafter: minutes on two CPU cores."""
    return _dflash("tiny", config)


def smollm2(config: DFlashConfig = SMOLLM2) -> RunSpec:
    """SmolLM2-135M-Instruct as the target, real prompts; what a CPU's budget buys, no more."""
    return _dflash("smollm2", config)


def qwen3_6_27b_8gpu(config: DFlashConfig = QWEN3_6_27B) -> RunSpec:
    """The Blackwell box: Qwen3.6-27B frozen on five GPUs, the drafter on three."""
    return _dflash("qwen3_6_27b_8gpu", config)


def toy(config: ToyConfig = TOY) -> RunSpec:
    """A trainer of a page without torch, with slowdowns to switch on: it proves the harness in seconds."""
    return _spec(
        "toy",
        config,
        ("python", "-m", "experiments.toy"),
        summary=_first_line(toy),
        env="tools",
        devices=("trainer:cpu",),
    )


RECIPES: Mapping[str, Callable[..., RunSpec]] = {
    "tiny": tiny,
    "smollm2": smollm2,
    "qwen3_6_27b_8gpu": qwen3_6_27b_8gpu,
    "toy": toy,
}

SCALES: Mapping[str, Mapping[str, Any]] = {"qwen3_6_27b_8gpu": {"tiny": QWEN3_6_27B_AT_TINY}}
"""Other configurations of a recipe, by name."""

DEFAULT = "tiny"
"""What a request without a name runs, where no recipe is made for the machine's GPUs."""


def _dflash(name: str, config: DFlashConfig) -> RunSpec:
    """What the config's target and devices ask of a machine and its environment.

    Raises ValueError for what only CUDA can do, where no device is one.
    """
    full_size = config.target.kind == "qwen3.6-27b"
    devices = _devices(config, auto="cuda:0" if full_size else "cpu")
    gpus = _gpus(devices)
    if config.attention == "flex" and not gpus:
        raise ValueError(f"attention=flex needs CUDA, and this run of {name} has no GPU: use attention=sdpa")
    return _spec(
        name,
        config,
        ("python", "-m", "experiments.dflash.train"),
        plan_argv=("python", "-m", "experiments.dflash.plan"),
        summary=_first_line(RECIPES[name]),
        env="cu130" if gpus else "cpu",
        devices=devices,
        needs_gpus=gpus,
        needs_gpu_name="RTX PRO 6000" if full_size else "",
        data=True,
        plan_only="this version has no loader for the weights of Qwen3.6-27B" if full_size else "",
    )


def _devices(config: DFlashConfig, auto: str) -> tuple[str, ...]:
    """``role:device`` of all that takes part on one machine; where there are several machines, each has these.

    ``auto`` is what the device of that name stands for.
    """
    topology = config.topology
    if topology.kind == "inline":
        return (f"target+drafter:{auto if config.device == 'auto' else config.device}",)
    targets = tuple(f"target:{device}" for device in topology.target_devices)
    return targets + tuple(f"drafter:{device}" for device in topology.drafter_devices)


def _gpus(devices: tuple[str, ...]) -> int:
    """How many GPUs a machine must have for ``devices`` to be there: one more than the greatest number."""
    named = (entry.split(":")[1:] for entry in devices)
    return max((int(number[0]) + 1 if number else 1 for kind, *number in named if kind == "cuda"), default=0)


def _spec(name: str, config: Any, argv: tuple[str, ...], **rest: Any) -> RunSpec:
    return RunSpec(recipe=name, argv=argv, config=flatten(config), kinds=kinds(config), **rest)


def _first_line(recipe: Callable[..., RunSpec]) -> str:
    return (recipe.__doc__ or "").strip().splitlines()[0]
