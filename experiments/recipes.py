"""Recipes: each a function that returns a complete RunSpec. Standard library only.

The one parameter's default is the recipe's whole configuration; ``harness run NAME key=value`` overrides it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from experiments.dflash.config import DataConfig, DFlashConfig, EvalConfig, ModelConfig, TargetConfig, TrainConfig
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

# DFlash's published choices for a Qwen3 target: five draft layers, blocks of 16.
QWEN3_6_27B = DFlashConfig(
    target=TargetConfig(kind="qwen3.6-27b"),
    model=ModelConfig(layers=5, block_size=16, target_layer_ids=""),
    data=DataConfig(kind="text", sequences=902_000, length=3072),
    train=TrainConfig(steps=100_000, batch=4, anchors=512, lr=6e-4),
    precision="bf16",
)


def tiny(config: DFlashConfig = TINY) -> RunSpec:
    """A byte-level Qwen3 target on real code, pre-trained once, and its drafter: minutes on two CPU cores."""
    return _on_cpu("tiny", config)


def smollm2(config: DFlashConfig = SMOLLM2) -> RunSpec:
    """SmolLM2-135M-Instruct as the target, real prompts; what a CPU's budget buys, no more."""
    return _on_cpu("smollm2", config)


def qwen3_6_27b_8gpu(config: DFlashConfig = QWEN3_6_27B) -> RunSpec:
    """The Blackwell box: Qwen3.6-27B frozen on five GPUs, the drafter on three."""
    devices = tuple(f"target:cuda:{i}" for i in range(5)) + tuple(f"drafter:cuda:{i}" for i in range(5, 8))
    return _dflash(
        "qwen3_6_27b_8gpu",
        config,
        env="cu130",
        devices=devices,
        needs_gpus=8,
        needs_gpu_name="RTX PRO 6000",
        plan_only="this version trains on one device",
    )


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


DEFAULT = "tiny"
"""What a request without a name runs, where no recipe is made for the machine's GPUs."""


def _on_cpu(name: str, config: DFlashConfig) -> RunSpec:
    """One device, in the environment without CUDA. Raises ValueError for what only CUDA can do."""
    if config.attention == "flex":
        raise ValueError(f"attention=flex needs CUDA, and {name} runs in the environment cpu: use attention=sdpa")
    if config.device not in ("auto", "cpu"):
        raise ValueError(f"device={config.device} is not there, {name} runs in the environment cpu: use device=cpu")
    return _dflash(name, config, env="cpu", devices=("target+drafter:cpu",))


def _dflash(name: str, config: DFlashConfig, **rest: Any) -> RunSpec:
    return _spec(
        name,
        config,
        ("python", "-m", "experiments.dflash.train"),
        plan_argv=("python", "-m", "experiments.dflash.plan"),
        summary=_first_line(RECIPES[name]),
        data=True,
        **rest,
    )


def _spec(name: str, config: Any, argv: tuple[str, ...], **rest: Any) -> RunSpec:
    return RunSpec(recipe=name, argv=argv, config=flatten(config), kinds=kinds(config), **rest)


def _first_line(recipe: Callable[..., RunSpec]) -> str:
    return (recipe.__doc__ or "").strip().splitlines()[0]
