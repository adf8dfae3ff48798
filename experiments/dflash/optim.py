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


class Gradients:
    """The gradients of all parameters in one flat buffer, with a step's figures behind them.

    Each parameter's ``grad`` is a view of it, so that one sum over the drafters covers everything that they share.
    """

    FIGURES = ("total", "weight", "matched", "blocks")  # as loss.Loss has them

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self._parameters = list(parameters)
        size = sum(p.numel() for p in self._parameters)
        first = self._parameters[0]
        self.flat = torch.zeros(size + len(self.FIGURES), dtype=first.dtype, device=first.device)
        self.figures = self.flat[size:]
        start = 0
        for parameter in self._parameters:
            end = start + parameter.numel()
            parameter.grad = self.flat[start:end].view_as(parameter)
            start = end

    def clear(self) -> None:
        """Before a step."""
        self.flat.zero_()

    def note(self, *figures: Tensor) -> None:
        """This share's figures, in the order of ``FIGURES``."""
        self.figures.copy_(torch.stack([figure.detach().to(self.flat.dtype) for figure in figures]))


def guarded_step(optimizer: torch.optim.AdamW, gradients: Gradients, lr: float, clip: float) -> tuple[Tensor, Tensor]:
    """Divide the summed gradients by the summed weight, clip them and step.

    Where the loss or a gradient is not finite, or nothing carried weight, nothing moves, momentum included.
    Returns the gradient's norm before clipping and whether the step was skipped, both still on the device. The device
    itself decides (through the flag that GradScaler sets for a fused optimizer), so that nobody waits for it here.
    """
    total, weight = gradients.figures[0].clone(), gradients.figures[1].clone()
    gradients.flat[: -len(gradients.FIGURES)] /= torch.where(weight > 0, weight, 1.0)
    norm = nn.utils.clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], clip)
    skipped = ~(norm.isfinite() & total.isfinite() & (weight > 0))
    for group in optimizer.param_groups:
        group["lr"] = lr
    optimizer.found_inf = skipped.float()  # type: ignore[attr-defined]
    optimizer.step()
    return norm, skipped


def dump_batch(folder: Path, step: int, drafter: int, tensors: Mapping[str, Tensor]) -> Path:
    """Keep what a drafter computed a non-finite step from, so that it can be computed again."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"nonfinite-step-{step:06d}-drafter-{drafter}.safetensors"
    save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, path)
    return path
