"""The drafter's loss: weighted cross-entropy over the drafted slots, with never more than a chunk of logits alive.

Shapes: B rows, S positions, N block slots, K block positions, J = K - 1 drafted slots, H hidden, V vocabulary,
L live slots.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from experiments.dflash.anchors import Supervision

Head = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Weighting:
    """How the slots of a block count: DFlash's fixed decay, or D-PACE's, which follows the drafter's own odds."""

    kind: Literal["decay", "dpace"]
    gamma: float  # decay: exp(-(k - 1) / gamma) for slot k
    alpha: float  # dpace: q' = (1 - alpha) q + alpha


@dataclass(frozen=True, eq=False)
class Loss:
    """Sums over a share of a step's blocks: shares add up, and the loss is the quotient of their sums.

    total    of the weighted cross-entropies: what to call backward on
    weight   of the weights
    matched  over the blocks with a live slot: drafted tokens that are right, up to the first wrong one
    blocks   with a live slot
    """

    total: Tensor
    weight: Tensor
    matched: Tensor
    blocks: Tensor

    @property
    def value(self) -> Tensor:
        """The loss of these blocks alone."""
        return self.total / self.weight


def labels(kind: Literal["target", "ground_truth"], ids_BS: Tensor, logits_BSV: Tensor) -> Tensor:
    """``label_BS``: what should stand at each position, by the target's greedy choice or by the text itself."""
    if kind == "ground_truth":
        return ids_BS
    return torch.cat([ids_BS[:, :1], logits_BSV[:, :-1].argmax(dim=-1)], dim=1)


def block_loss(
    hidden_BNKH: Tensor, label_BS: Tensor, supervision: Supervision, lm_head: Head, weighting: Weighting, chunk: int
) -> Loss:
    """The loss of a batch of blocks: the weighted sum of cross-entropies, and the sum of the weights.

    Slots without weight never reach the lm_head. ``chunk`` blocks' worth of logits exist at one time, forward and
    backward; the last chunk is filled up, so that every chunk has one shape. Raises ValueError without a live slot.
    """
    device = hidden_BNKH.device
    width = supervision.live_BNJ.shape[-1]
    live_L = supervision.live_BNJ.flatten().nonzero()[:, 0]  # on the host: no device is waited for
    if not len(live_L):
        raise ValueError("no drafted slot carries weight: the batch has no valid anchor")
    label_BNJ = _labels_of_slots(label_BS, supervision.position_BNJ.to(device))
    live_L = live_L.to(device)
    drafted = hidden_BNKH[:, :, 1:].flatten(0, 2)
    ce_L, right_L = chunked_cross_entropy(drafted[live_L], label_BNJ.flatten()[live_L], lm_head, chunk * width)
    live_BNJ = supervision.live_BNJ.to(device)
    ce_BNJ = _spread(ce_L, live_L, live_BNJ)
    weight_BNJ = slot_weights(ce_BNJ.detach(), live_BNJ, weighting)
    matched = _spread(right_L, live_L, live_BNJ).int().cumprod(dim=-1).sum()
    return Loss((weight_BNJ * ce_BNJ).sum(), weight_BNJ.sum(), matched, live_BNJ.any(dim=-1).sum())


def chunked_cross_entropy(hidden_LH: Tensor, label_L: Tensor, lm_head: Head, rows: int) -> tuple[Tensor, Tensor]:
    """Cross-entropy of each row, and whether the head's first choice is right, ``rows`` rows of logits at a time.

    Each chunk's logits are computed again in the backward pass instead of being kept. The reentrant checkpoint is
    the one that trainers of this kind use; it asks that ``hidden_LH`` requires a gradient.
    """
    missing = -len(label_L) % rows
    hidden = F.pad(hidden_LH, (0, 0, 0, missing))
    label = F.pad(label_L, (0, missing))

    def one_chunk(hidden_RH: Tensor, label_R: Tensor) -> tuple[Tensor, Tensor]:
        logits_RV = lm_head(hidden_RH).float()
        return F.cross_entropy(logits_RV, label_R, reduction="none"), logits_RV.argmax(dim=-1) == label_R

    parts = [
        checkpoint(one_chunk, hidden_RH, label_R, use_reentrant=True)
        for hidden_RH, label_R in zip(torch.split(hidden, rows), torch.split(label, rows), strict=True)
    ]
    ce, right = (torch.cat(part)[: len(label_L)] for part in zip(*parts, strict=True))
    return ce, right


def slot_weights(ce_BNJ: Tensor, live_BNJ: Tensor, weighting: Weighting) -> Tensor:
    """``weight_BNJ``, zero where a slot is not live.

    decay  exp(-(k - 1) / gamma) for slot k = 1..J
    dpace  w_j = sum over m >= j of the product over i <= m of q'_i, with q = exp(-CE) and q' = (1 - alpha) q + alpha:
           how many accepted tokens are at stake in slot j. Slots that are not live neither multiply nor add.
    """
    if weighting.kind == "decay":
        step_J = torch.arange(live_BNJ.shape[-1], device=live_BNJ.device, dtype=ce_BNJ.dtype)
        return live_BNJ * torch.exp(-step_J / weighting.gamma)
    odds_BNJ = torch.where(live_BNJ, (1 - weighting.alpha) * torch.exp(-ce_BNJ) + weighting.alpha, 1.0)
    reached_BNJ = live_BNJ * odds_BNJ.cumprod(dim=-1)
    return live_BNJ * reached_BNJ.flip(-1).cumsum(dim=-1).flip(-1)


def _labels_of_slots(label_BS: Tensor, position_BNJ: Tensor) -> Tensor:
    return label_BS.gather(1, position_BNJ.flatten(1)).view(position_BNJ.shape)


def _spread(value_L: Tensor, live_L: Tensor, like_BNJ: Tensor) -> Tensor:
    """The live slots' values back in their places; zero elsewhere."""
    flat = value_L.new_zeros(like_BNJ.numel())
    return flat.index_put((live_L,), value_L).view(like_BNJ.shape)
