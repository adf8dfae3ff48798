"""The loss against the same sums written out, in one piece, slot by slot."""

from __future__ import annotations

import math
from typing import Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from experiments.dflash.anchors import Supervision
from experiments.dflash.loss import Weighting, block_loss, labels, slot_weights

VOCABULARY, HIDDEN, SIZE = 11, 6, 10


def make_case(seed: int, slots: int, width: int, share: float) -> tuple[Tensor, Tensor, Supervision, nn.Linear]:
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(2, slots, width, HIDDEN, generator=generator)
    label = torch.randint(0, VOCABULARY, (2, SIZE), generator=generator)
    live = torch.rand(2, slots, width - 1, generator=generator) < share
    live[0, 0, 0] = True
    position = torch.randint(0, SIZE, live.shape, generator=generator)
    head = nn.Linear(HIDDEN, VOCABULARY, bias=False).requires_grad_(False)
    head.weight.copy_(torch.randn(VOCABULARY, HIDDEN, generator=generator))
    return hidden, label, Supervision(live, position), head


def literal_loss(
    hidden: Tensor, label: Tensor, supervision: Supervision, head: nn.Linear, weighting: Weighting
) -> Tensor:
    """All logits at once, one slot after the other, the weights by their formulas."""
    total, weights = hidden.new_zeros(()), 0.0
    rows, slots, width = supervision.live_BNJ.shape
    for row in range(rows):
        for slot in range(slots):
            entropies: dict[int, Tensor] = {}
            for j in range(1, width + 1):
                if supervision.live_BNJ[row, slot, j - 1]:
                    logits = head.weight @ hidden[row, slot, j]
                    right = label[row, supervision.position_BNJ[row, slot, j - 1]]
                    entropies[j] = logits.logsumexp(0) - logits[right]
            for j, entropy in entropies.items():
                weight = literal_weight(j, {i: float(e.detach()) for i, e in entropies.items()}, weighting)
                total = total + weight * entropy
                weights += weight
    return total / weights


def literal_weight(j: int, entropies: dict[int, float], weighting: Weighting) -> float:
    if weighting.kind == "decay":
        return math.exp(-(j - 1) / weighting.gamma)
    alpha = weighting.alpha
    odds = {i: (1 - alpha) * math.exp(-entropy) + alpha for i, entropy in entropies.items()}
    return sum(math.prod(odds[i] for i in odds if i <= m) for m in odds if m >= j)


@pytest.mark.parametrize("kind", ["decay", "dpace"])
@given(
    seed=st.integers(0, 10_000),
    slots=st.integers(1, 4),
    width=st.integers(2, 6),
    share=st.sampled_from([0.2, 0.7, 1.0]),
    chunk=st.integers(1, 9),
)
@settings(max_examples=40, deadline=None)
def test_chunked_loss_and_gradients_equal_the_literal_ones(
    kind: Literal["decay", "dpace"], seed: int, slots: int, width: int, share: float, chunk: int
) -> None:
    hidden, label, supervision, head = make_case(seed, slots, width, share)
    hidden.requires_grad_()
    weighting = Weighting(kind, gamma=4.0, alpha=0.5)
    ours = block_loss(hidden, label, supervision, head, weighting, chunk).value
    literal = literal_loss(hidden, label, supervision, head, weighting)
    torch.testing.assert_close(ours, literal, atol=1e-5, rtol=1e-5)
    (gradient,) = torch.autograd.grad(literal, hidden)
    torch.autograd.backward(ours)  # the reentrant checkpoint takes no autograd.grad
    assert hidden.grad is not None
    torch.testing.assert_close(hidden.grad, gradient, atol=1e-5, rtol=1e-5)


def test_only_live_slots_reach_the_head_and_never_more_than_a_chunk() -> None:
    hidden, label, supervision, head = make_case(3, slots=4, width=5, share=0.5)
    hidden.requires_grad_()
    live = int(supervision.live_BNJ.sum())
    seen: list[Tensor] = []

    def spy(rows: Tensor) -> Tensor:
        seen.append(rows.detach())
        logits: Tensor = head(rows)
        return logits

    loss = block_loss(hidden, label, supervision, spy, Weighting("decay", 4.0, 0.5), chunk=1)
    assert {len(rows) for rows in seen} == {4}  # one block's worth, the last one filled up
    assert len(seen) == math.ceil(live / 4)
    expected = hidden.detach()[:, :, 1:][supervision.live_BNJ]
    assert torch.equal(torch.cat(seen)[:live], expected)
    torch.autograd.backward(loss.value)
    assert len(seen) == 2 * math.ceil(live / 4)  # and once more each on the way back, instead of being kept


def test_decay_is_a_literal() -> None:
    live = torch.tensor([[[True, True, False, True]]])
    weights = slot_weights(torch.zeros(1, 1, 4), live, Weighting("decay", gamma=2.0, alpha=0.5))
    expected = torch.tensor([[[1.0, math.exp(-0.5), 0.0, math.exp(-1.5)]]])
    torch.testing.assert_close(weights, expected)


def test_dpace_is_a_literal() -> None:
    # q = 1/2, 1/4 with alpha 1/2: q' = 3/4, 5/8; products 3/4 and 15/32
    entropy = torch.tensor([[[math.log(2), math.log(4)]]])
    live = torch.ones(1, 1, 2, dtype=torch.bool)
    weights = slot_weights(entropy, live, Weighting("dpace", gamma=4.0, alpha=0.5))
    torch.testing.assert_close(weights, torch.tensor([[[3 / 4 + 15 / 32, 15 / 32]]]))


def test_matched_sums_the_lengths_of_the_right_prefixes() -> None:
    head = nn.Linear(3, 3, bias=False).requires_grad_(False)
    head.weight.copy_(torch.eye(3))
    choice = torch.tensor([[[0, 1, 1, 2], [0, 0, 2, 2]]])  # slot 0 is the anchor
    hidden = nn.functional.one_hot(choice, 3).float().requires_grad_()
    label = torch.tensor([[0, 1, 2, 2, 0]])
    position = torch.tensor([[[1, 2, 3], [2, 3, 4]]])
    live = torch.tensor([[[True, True, True], [True, True, False]]])
    loss = block_loss(hidden, label, Supervision(live, position), head, Weighting("decay", 4.0, 0.5), 1)
    assert (float(loss.matched), float(loss.blocks)) == (1.0, 2.0)  # 1, then wrong; and wrong at once, whatever follows


def test_labels_are_the_text_or_what_the_target_would_say_next() -> None:
    ids = torch.tensor([[4, 5, 6]])
    logits = torch.zeros(1, 3, 9)
    logits[0, 0, 7] = logits[0, 1, 8] = logits[0, 2, 1] = 1.0
    assert labels("ground_truth", ids, logits).tolist() == [[4, 5, 6]]
    assert labels("target", ids, logits).tolist() == [[4, 7, 8]]


def test_a_batch_without_a_live_slot_is_refused() -> None:
    hidden, label, supervision, head = make_case(0, slots=2, width=3, share=0.5)
    empty = Supervision(torch.zeros_like(supervision.live_BNJ), supervision.position_BNJ)
    with pytest.raises(ValueError, match="no valid anchor"):
        block_loss(hidden.requires_grad_(), label, empty, head, Weighting("decay", 4.0, 0.5), 4)
