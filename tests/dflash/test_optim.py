"""The schedule by its literals; a step that is not finite moves nothing."""

from __future__ import annotations

import copy
import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from experiments.dflash.config import TrainConfig
from experiments.dflash.optim import Gradients, dump_batch, guarded_step, learning_rate, make_optimizer


def test_warm_up_then_cosine() -> None:
    train = TrainConfig(steps=100, warmup=0.04, lr=8.0)
    assert [learning_rate(step, train) for step in (1, 2, 3, 4)] == [2.0, 4.0, 6.0, 8.0]
    assert learning_rate(5, train) == 8.0
    assert learning_rate(53, train) == pytest.approx(4.0)  # half of the 96 steps after the warm-up
    assert learning_rate(100, train) == pytest.approx(4.0 * (1 + math.cos(math.pi * 95 / 96)))
    assert learning_rate(100, train) > 0


def test_no_warm_up_starts_at_the_peak() -> None:
    assert learning_rate(1, TrainConfig(steps=10, warmup=0.0, lr=1.0)) == 1.0


def one_step(
    model: nn.Linear, optimizer: torch.optim.AdamW, scale: float, weight: float = 4.0
) -> tuple[Tensor, Tensor]:
    """A step on a loss that is a sum over ``weight``."""
    gradients = Gradients(model.parameters())
    total = (model(torch.ones(2, 3)) * scale).square().sum() * weight
    torch.autograd.backward(total)
    gradients.note(total, torch.tensor(weight), torch.tensor(0.0), torch.tensor(1.0))
    return guarded_step(optimizer, gradients, lr=0.1, clip=1.0)


def frozen(model: nn.Linear, optimizer: torch.optim.AdamW) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    state: dict[str, Tensor] = next(iter(optimizer.state.values()), {})
    return copy.deepcopy(dict(model.state_dict())), copy.deepcopy(state)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("good_before", [0, 2])
def test_a_non_finite_step_moves_neither_weights_nor_momentum(bad: float, good_before: int) -> None:
    model = nn.Linear(3, 2)
    optimizer = make_optimizer(model.parameters(), TrainConfig(weight_decay=0.1))
    for _ in range(good_before):
        _, skipped = one_step(model, optimizer, 1.0)
        assert not bool(skipped)
    weights, state = frozen(model, optimizer)
    norm, skipped = one_step(model, optimizer, bad)
    assert bool(skipped)
    assert not math.isfinite(float(norm))
    after_weights, after_state = frozen(model, optimizer)
    for name, value in weights.items():
        assert torch.equal(after_weights[name], value)
    for name, value in state.items():
        assert torch.equal(after_state[name], value)
    _, skipped = one_step(model, optimizer, 1.0)  # and the next good one moves again
    assert not bool(skipped)
    assert not torch.equal(model.weight, weights["weight"])


def test_a_good_step_equals_plain_adamw_with_clipping() -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    plain = copy.deepcopy(model)
    optimizer = make_optimizer(model.parameters(), TrainConfig(weight_decay=0.1))
    reference = torch.optim.AdamW(plain.parameters(), lr=0.1, weight_decay=0.1, fused=False, foreach=False)
    for scale in (3.0, 0.01, 5.0):
        norm, _ = one_step(model, optimizer, scale)
        torch.autograd.backward((plain(torch.ones(2, 3)) * scale).square().sum())
        expected = nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
        reference.step()
        reference.zero_grad()
        torch.testing.assert_close(norm, expected)
        torch.testing.assert_close(model.weight, plain.weight)


def test_a_step_that_nothing_carries_weight_in_moves_nothing() -> None:
    model = nn.Linear(3, 2)
    optimizer = make_optimizer(model.parameters(), TrainConfig())
    weights, _ = frozen(model, optimizer)
    _, skipped = one_step(model, optimizer, 1.0, weight=0.0)
    assert bool(skipped)
    assert torch.equal(model.weight, weights["weight"])


def test_the_gradients_are_one_buffer_that_backward_adds_to() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    gradients = Gradients(model.parameters())
    torch.autograd.backward(model(torch.ones(1, 3)).sum())
    apart = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    assert torch.equal(gradients.flat[: len(apart)], apart)
    assert bool(apart.any())
    gradients.clear()
    assert all(p.grad is not None and not p.grad.any() for p in model.parameters())


def test_the_dump_can_be_read_back(tmp_path: Path) -> None:
    tensors = {"ids": torch.arange(6).view(2, 3).t(), "loss_mask": torch.tensor([True, False])}
    path = dump_batch(tmp_path / "artifacts", 12, 1, tensors)
    assert path.name == "nonfinite-step-000012-drafter-1.safetensors"
    loaded = load_file(path)
    assert torch.equal(loaded["ids"], tensors["ids"])
    assert torch.equal(loaded["loss_mask"], tensors["loss_mask"])
