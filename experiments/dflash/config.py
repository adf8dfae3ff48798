"""Every setting of a DFlash run: one tree of frozen dataclasses. Standard library only: recipes stay torch-free.

Each leaf says what kind of fact it is: ``workload`` (what is computed) or ``execution`` (how).
The defaults are the recipe ``tiny``. ``__post_init__`` raises ValueError with a line that says what would be right.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from experiments.dflash.layout import TopologyConfig
from harness.config import execution, workload

Backend = Literal["auto", "inductor", "aot_eager", "none"]


def _at_least(least: float, **values: float) -> None:
    for name, value in values.items():
        if value < least:
            raise ValueError(f"{name} must be at least {least:g}, not {value:g}")


def _within(low: float, high: float, **values: float) -> None:
    for name, value in values.items():
        if not low <= value <= high:
            raise ValueError(f"{name} must lie between {low:g} and {high:g}, not {value:g}")


@dataclass(frozen=True)
class TargetConfig:
    """The frozen model that the drafter learns to foresee.

    kind "tiny" is a Qwen3-architecture model over bytes, pre-trained here once with the fields below and cached by
    digest; for every other kind the weights decide and the fields below are not used.
    """

    kind: Literal["tiny", "smollm2", "qwen3.6-27b"] = workload("tiny")
    layers: int = workload(4)
    hidden: int = workload(128)
    heads: int = workload(4)
    kv_heads: int = workload(2)
    head_dim: int = workload(32)
    ffn: int = workload(384)
    init: float = workload(0.08)  # standard deviation of the initial weights
    steps: int = workload(900)
    batch: int = workload(3)
    sequence: int = workload(192)  # bytes
    lr: float = workload(6e-3)
    seed: int = workload(0)

    def __post_init__(self) -> None:
        _at_least(1, layers=self.layers, hidden=self.hidden, heads=self.heads, kv_heads=self.kv_heads, ffn=self.ffn)
        _at_least(1, steps=self.steps, batch=self.batch)
        _at_least(2, head_dim=self.head_dim, sequence=self.sequence)
        _at_least(0, seed=self.seed)
        if self.heads % self.kv_heads:
            raise ValueError(f"heads must be a multiple of kv_heads, and {self.heads} is none of {self.kv_heads}")
        if self.head_dim % 2:
            raise ValueError(f"head_dim must be even for rotary positions, not {self.head_dim}")
        if self.init <= 0 or self.lr <= 0:
            raise ValueError("init and lr must be above 0")


@dataclass(frozen=True)
class ModelConfig:
    """The drafter. A 0 means "as the target has it"."""

    layers: int = workload(1)
    block_size: int = workload(8)  # the anchor and block_size - 1 drafted tokens
    target_layer_ids: str = workload("1,2")  # "1,2", counted from 0; "" for DFlash's default rule
    heads: int = workload(0)
    kv_heads: int = workload(0)
    head_dim: int = workload(0)
    ffn: int = workload(0)
    init: float = workload(0.02)  # standard deviation of the initial weights
    seed: int = workload(0)

    def __post_init__(self) -> None:
        _at_least(1, layers=self.layers)
        _at_least(2, block_size=self.block_size)
        _at_least(0, heads=self.heads, kv_heads=self.kv_heads, head_dim=self.head_dim, ffn=self.ffn, seed=self.seed)
        if self.init <= 0:
            raise ValueError(f"init must be above 0, not {self.init:g}")
        if self.kv_heads and self.heads % self.kv_heads:
            raise ValueError(f"heads must be a multiple of kv_heads, and {self.heads} is none of {self.kv_heads}")
        if not all(part.strip().isdigit() for part in self.target_layer_ids.split(",") if self.target_layer_ids):
            raise ValueError(
                f"target_layer_ids must be whole numbers with commas, as in 1,9,17, not {self.target_layer_ids!r}"
            )

    def layer_ids(self, target_layers: int) -> tuple[int, ...]:
        """The target's layers, counted from 0, whose outputs the drafter sees.

        Raises ValueError where an id is not below ``target_layers``.
        """
        if not self.target_layer_ids:
            return default_layer_ids(target_layers, self.layers)
        ids = tuple(int(part) for part in self.target_layer_ids.split(","))
        if max(ids) >= target_layers:
            raise ValueError(f"target_layer_ids names layer {max(ids)}, and the target's last is {target_layers - 1}")
        return ids


def default_layer_ids(target_layers: int, draft_layers: int) -> tuple[int, ...]:
    """DFlash's rule: evenly spread from layer 1 to layer L - 3; the middle one for a drafter of one layer."""
    if draft_layers == 1:
        return (target_layers // 2,)
    span = target_layers - 4
    return tuple(round(1 + i * span / (draft_layers - 1)) for i in range(draft_layers))


@dataclass(frozen=True)
class DataConfig:
    """The sequences that the drafter trains on."""

    kind: Literal["on_policy", "text"] = workload("on_policy")  # the target's own continuations, or text as it is
    sequences: int = workload(768)
    length: int = workload(128)  # tokens a sequence, its prompt included
    prompt: int = workload(64)  # tokens of text that the target continues (on_policy)
    seed: int = workload(0)

    def __post_init__(self) -> None:
        _at_least(1, sequences=self.sequences, prompt=self.prompt)
        _at_least(0, seed=self.seed)
        _at_least(4, length=self.length)
        if self.kind == "on_policy" and self.length < self.prompt + 2:
            raise ValueError(
                f"length counts the prompt too: at prompt={self.prompt} it must be at least {self.prompt + 2}, "
                f"not {self.length}"
            )


@dataclass(frozen=True)
class TrainConfig:
    """How the drafter is optimised."""

    steps: int = workload(750)
    batch: int = workload(4)  # sequences a step, over all drafters
    anchors: int = workload(32)  # block slots a sequence; where fewer anchors are valid, slots stay empty
    lr: float = workload(3e-3)
    warmup: float = workload(0.04)  # share of the steps
    clip: float = workload(1.0)  # greatest norm of the gradient
    weight_decay: float = workload(0.0)
    loss: Literal["decay", "dpace"] = workload("decay")
    labels: Literal["target", "ground_truth"] = workload("target")  # the target's argmax, or the sequence's tokens
    gamma: float = workload(0.0)  # of "decay"; 0 for 7, 5, 4 at blocks of 16, 10, 8
    alpha: float = workload(0.5)  # of "dpace"
    feature_noise: float = workload(0.0)  # standard deviation of the noise on the target's features
    seed: int = workload(0)
    chunk_blocks: int = execution(128)  # blocks whose logits exist at one time

    def __post_init__(self) -> None:
        _at_least(1, steps=self.steps, batch=self.batch, anchors=self.anchors, chunk_blocks=self.chunk_blocks)
        _at_least(0, weight_decay=self.weight_decay, gamma=self.gamma, feature_noise=self.feature_noise)
        _at_least(0, seed=self.seed)
        _within(0, 1, warmup=self.warmup, alpha=self.alpha)
        if self.lr <= 0 or self.clip <= 0:
            raise ValueError("lr and clip must be above 0")


@dataclass(frozen=True)
class EvalConfig:
    """Speculative decoding against the target, before and after training."""

    prompts: int = workload(16)
    prompt_tokens: int = workload(64)
    new_tokens: int = workload(48)
    near_tie: float = workload(1e-3)  # gap of the top two logits under which either choice is right

    def __post_init__(self) -> None:
        _at_least(1, prompts=self.prompts, prompt_tokens=self.prompt_tokens, new_tokens=self.new_tokens)
        _at_least(0, near_tie=self.near_tie)


@dataclass(frozen=True)
class DFlashConfig:
    """A whole run: target, drafter, data, training, evaluation, and how it is executed."""

    target: TargetConfig = TargetConfig()
    model: ModelConfig = ModelConfig()
    data: DataConfig = DataConfig()
    train: TrainConfig = TrainConfig()
    eval: EvalConfig = EvalConfig()
    topology: TopologyConfig = field(default_factory=TopologyConfig)
    precision: Literal["fp32", "bf16"] = workload("fp32")  # bf16: autocast over fp32 weights
    compile: Backend = execution("auto")  # auto: inductor where it can work
    attention: Literal["auto", "sdpa", "flex"] = execution("auto")  # auto: flex on CUDA, sdpa elsewhere
    attention_fallback: Literal["error", "allow"] = execution("error")  # where flex would run as dense math, far slower
    cuda_graphs: bool = execution(False)  # the drafter's forward and backward, each as one CUDA graph (GPUs only)
    device: str = execution("auto")  # of topology.kind=inline; auto: the first CUDA device, else the CPU
    threads: int = execution(1)  # of torch on the CPU: at tiny's size a second one saves a fifth and suffers company

    def __post_init__(self) -> None:
        _at_least(1, threads=self.threads)
        if not re.fullmatch(r"auto|cpu|cuda(:(0|[1-9]\d*))?", self.device):
            raise ValueError(f"device must be auto, cpu or a CUDA device as in cuda:0, not {self.device!r}")
        if self.attention == "flex" and self.on_cpu:
            raise ValueError("attention=flex trains on CUDA only (it has no backward on the CPU); use attention=sdpa")
        if self.cuda_graphs and self.on_cpu:
            raise ValueError("cuda_graphs=true needs a GPU, and the devices are simulated on the CPU: leave it out")
        drafters = self.topology.drafter_count
        if self.train.batch % drafters:
            least = self.train.batch + drafters - self.train.batch % drafters
            raise ValueError(
                f"train.batch must be a multiple of the {drafters} drafters, so that every one has a share of the same "
                f"shape, and {self.train.batch} is none: use train.batch={least}"
            )
        if self.topology.kind != "inline" and self.device != "auto":
            raise ValueError(f"device={self.device} goes with topology.kind=inline; name topology.targets and drafters")
        if self.target.kind == "tiny":
            self.model.layer_ids(self.target.layers - 1)  # the last layer's output is only there after the final norm

    @property
    def gamma(self) -> float:
        """The decay of the loss over a block's positions: as set, or DFlash's choice for the block size."""
        return self.train.gamma or {16: 7.0, 10: 5.0, 8: 4.0}.get(self.model.block_size, self.model.block_size / 2)

    @property
    def on_cpu(self) -> bool:
        """Whether the config itself says that no GPU is used."""
        named = self.topology.target_devices or (self.device,)
        return named[0].partition(":")[0] == "cpu"
