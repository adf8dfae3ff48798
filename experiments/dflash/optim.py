"""How the drafter's weights move: AdamW, warm-up and cosine, clipping, and a guard against non-finite steps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from experiments.dflash.config import TrainConfig


def learning_rate(step: int, train: TrainConfig) -> float:
    """The rate of step 1..steps: a straight rise to ``lr`` over the warm-up's share, then half a cosine towards 0."""
    warmup = round(train.warmup * train.steps)
    if step <= warmup:
        return train.lr * step / warmup
    done = (step - 1 - warmup) / max(1, train.steps - warmup)
    return train.lr * 0.5 * (1 + math.cos(math.pi * done))


def make_optimizer(parameters: Iterable[nn.Parameter], train: TrainConfig) -> torch.optim.AdamW:
    """AdamW over fp32 weights; fused, because only the fused step can be skipped without asking the device."""
    return torch.optim.AdamW(parameters, lr=train.lr, weight_decay=train.weight_decay, fused=True)


def guarded_step(optimizer: torch.optim.AdamW, loss: Tensor, lr: float, clip: float) -> tuple[Tensor, Tensor]:
    """Clip the gradients and step, unless the loss or a gradient is not finite: then nothing moves, momentum included.

    Returns the gradient's norm before clipping and whether the step was skipped, both still on the device. The device
    itself decides (through the flag that GradScaler sets for a fused optimizer), so that nobody waits for it here.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    norm = nn.utils.clip_grad_norm_(parameters, clip)
    skipped = ~(norm.isfinite() & loss.detach().isfinite())
    for group in optimizer.param_groups:
        group["lr"] = lr
    optimizer.found_inf = skipped.float()  # type: ignore[attr-defined]
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return norm, skipped


def dump_batch(folder: Path, step: int, tensors: Mapping[str, Tensor]) -> Path:
    """Keep what a non-finite step was computed from, so that it can be computed again."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"nonfinite-step-{step:06d}.safetensors"
    save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, path)
    return path
