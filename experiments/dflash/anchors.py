"""Anchors: the positions from which the drafter drafts a block, and the slots of those blocks that are supervised.

Shapes: B rows, S positions, N block slots a row, K positions of a block, J = K - 1 of them drafted.
All of it is index work on the host: the loader's masks are there, and the count of supervised slots is then known
without waiting for a device.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Anchors:
    """A fixed number of block slots a row, so that shapes never change from step to step.

    anchor_BN  positions in the row, ascending among the valid slots, which come first; 0 in an empty slot
    valid_BN   False where a row had fewer anchors than slots
    """

    anchor_BN: Tensor
    valid_BN: Tensor


@dataclass(frozen=True, eq=False)
class Supervision:
    """Which drafted slots carry weight, and which token each foresees.

    live_BNJ      the block is valid, and the token is in the row, in the anchor's document, and asked for
    position_BNJ  position of that token in the row; some position in bounds where the slot is not live
    """

    live_BNJ: Tensor
    position_BNJ: Tensor


def anchor_candidates(loss_mask_BS: Tensor, document_BS: Tensor) -> Tensor:
    """``candidate_BS``: positions that are supervised, as the next one is, in one document (-1 is padding)."""
    candidate_BS = torch.zeros_like(loss_mask_BS)
    same = (document_BS[:, :-1] == document_BS[:, 1:]) & (document_BS[:, :-1] >= 0)
    candidate_BS[:, :-1] = loss_mask_BS[:, :-1] & loss_mask_BS[:, 1:] & same
    return candidate_BS


def sample_anchors(loss_mask_BS: Tensor, document_BS: Tensor, slots: int, chance_BS: Tensor) -> Anchors:
    """Draw up to ``slots`` anchors a row, uniformly and without repeats, where ``chance_BS`` is uniform on [0, 1).

    Packed documents take turns: none gets its second anchor before each has its first, so short ones do not starve.
    """
    candidate_BS = anchor_candidates(loss_mask_BS, document_BS)
    size = candidate_BS.shape[1]
    turn_BS = _rank_within_document(chance_BS, torch.where(candidate_BS, document_BS, -1))
    priority_BS = torch.where(candidate_BS, turn_BS + chance_BS, torch.inf)
    picked_BN = priority_BS.argsort(dim=-1)[:, :slots]
    picked_BN = torch.where(candidate_BS.gather(1, picked_BN), picked_BN, size).sort(dim=-1).values
    picked_BN = torch.nn.functional.pad(picked_BN, (0, max(0, slots - size)), value=size)
    valid_BN = picked_BN < size
    return Anchors(torch.where(valid_BN, picked_BN, 0), valid_BN)


def _rank_within_document(chance_BS: Tensor, document_BS: Tensor) -> Tensor:
    """Of each position, how many of its document's positions have a smaller chance."""
    by_chance_BS = chance_BS.argsort(dim=-1)
    by_document_BS = document_BS.gather(1, by_chance_BS).argsort(dim=-1, stable=True)
    order_BS = by_chance_BS.gather(1, by_document_BS)  # documents side by side, each in the order of chance
    sorted_BS = document_BS.gather(1, order_BS)
    first_BS = torch.searchsorted(sorted_BS, sorted_BS)
    rank_BS = torch.arange(document_BS.shape[1]) - first_BS
    return torch.empty_like(rank_BS).scatter_(1, order_BS, rank_BS)


def supervise(anchors: Anchors, loss_mask_BS: Tensor, document_BS: Tensor, block_size: int) -> Supervision:
    """The drafted slots of each block: slot k of a block foresees token anchor + k; slot 0 is the anchor itself."""
    rows, size = loss_mask_BS.shape
    slots = anchors.anchor_BN.shape[1]
    position_BNJ = anchors.anchor_BN[:, :, None] + torch.arange(1, block_size)
    inside_BNJ = position_BNJ < size
    position_BNJ = position_BNJ.clamp(max=size - 1)
    flat = position_BNJ.reshape(rows, -1)
    shape = (rows, slots, block_size - 1)
    wanted_BNJ = loss_mask_BS.gather(1, flat).reshape(shape)
    same_BNJ = document_BS.gather(1, flat).reshape(shape) == document_BS.gather(1, anchors.anchor_BN)[:, :, None]
    return Supervision(inside_BNJ & wanted_BNJ & same_BNJ & anchors.valid_BN[:, :, None], position_BNJ)
