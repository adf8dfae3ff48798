"""The part of a drafter's step whose shapes never change: four tensors in, hidden states out. It runs eager or
compiled, and on a GPU as two CUDA graphs, which start with one call each what took thousands of kernel launches.

Shapes: B rows of the share, S positions, F features, N block slots, K block positions, H hidden.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import cast

import torch
from torch import Tensor, nn

from experiments.dflash.attention import Attention, build_mask
from experiments.dflash.compiling import Forward, compile_forward
from experiments.dflash.config import DFlashConfig
from experiments.dflash.model import DFlashDrafter
from experiments.dflash.target import document_positions
from harness.errors import UsageError


class BlockForward(nn.Module):
    """Who sees whom, and the drafter's forward under it. Nothing in it depends on what a tensor holds, or waits for it:
    a step that was captured is right for every other step."""

    def __init__(self, drafter: DFlashDrafter, backend: str, attention: Attention) -> None:
        super().__init__()
        self.drafter = drafter  # a child, so that its parameters are this module's
        self._hidden = compile_forward(drafter, backend)
        self._attention = attention

    def forward(self, features_BSF: Tensor, document_BS: Tensor, anchor_BN: Tensor, block_BNKH: Tensor) -> Tensor:
        """``hidden_BNKH``, ready for the target's lm_head.

        document_BS  number of each position's document in its row, -1 for padding
        anchor_BN    positions of the anchors in the row; 0 in an empty slot
        block_BNKH   target embeddings of [anchor token, MASK, ...]
        """
        anchor_document_BN = document_BS.gather(1, anchor_BN)
        mask = build_mask(self._attention, anchor_BN, anchor_document_BN, document_BS, block_BNKH.shape[2])
        position_BS = document_positions(document_BS)
        return self._hidden(features_BSF, position_BS, block_BNKH, position_BS.gather(1, anchor_BN), mask)


def refuse_cuda_graphs(config: DFlashConfig, device: torch.device) -> None:
    """Raises UsageError where CUDA graphs are asked for on a device that has none."""
    if config.cuda_graphs and device.type != "cuda":
        raise UsageError(f"cuda_graphs=true needs a GPU, and the device is {device}: leave cuda_graphs out")


class _Captured(nn.Module):
    """What is captured: the forward under its autocast, which the backward is not under, as in an eager step."""

    def __init__(self, block: BlockForward, autocast: AbstractContextManager[None]) -> None:
        super().__init__()
        self._block = block
        self._autocast = autocast

    def forward(self, *inputs: Tensor) -> Tensor:
        with self._autocast:
            hidden: Tensor = self._block(*inputs)
        return hidden


def as_cuda_graphs(block: BlockForward, example: tuple[Tensor, ...], autocast: AbstractContextManager[None]) -> Forward:
    """``block``'s training forward and backward as CUDA graphs of ``example``'s shapes and types. ``block`` stays as it
    is; what the graphs hold of the GPU's memory is given back with what is returned.

    Warms up and captures at once, on the device of ``example`` and under ``autocast``, whose cache must be off: then a
    replay rounds the weights as they are in its step. Nothing else may use a GPU in this process meanwhile, since
    torch captures in the mode in which another thread's allocation breaks it; so it is called before workers start.
    """
    # The capture keeps the nodes that add up gradients, with their stream; torch orders it with the step's, and warns.
    torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)
    with torch.cuda.device(example[0].device):
        return cast(Forward, torch.cuda.make_graphed_callables(_Captured(block, autocast), example))
