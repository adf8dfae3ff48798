"""Bytes of each part of a training's memory, from shapes alone.

Parameters are counted on the meta device. The rest is arithmetic over shapes, written out below, for the moment of a
step when each part is largest; an allocator's fragmentation and CUDA's own context (about 1 GB) come on top.

Shapes: B rows of a share, S tokens a row, N block slots, K block positions, Q = N * K, T = S + Q, H hidden, I FFN,
V vocabulary, F features.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from experiments.dflash.architectures import on_meta
from experiments.dflash.config import DFlashConfig
from experiments.dflash.model import DFlashDrafter, DrafterShape, drafter_shape


@dataclass(frozen=True)
class Shapes:
    """The sizes that decide everything. They are those of a share: what one drafter trains on in a step."""

    config: DFlashConfig
    drafter: DrafterShape
    drafter_parameters: int
    target_parameters: int
    target_layers: int
    target_ffn: int
    vocab: int
    tied: bool  # whether the target's embedding and head are one tensor

    @property
    def rows(self) -> int:
        """B."""
        return self.config.train.batch // self.config.topology.drafter_count

    @property
    def width(self) -> int:
        """Bytes of an activation, and of a frozen weight."""
        return 2 if self.config.precision == "bf16" else 4

    @property
    def tokens(self) -> int:
        """B * S."""
        return self.rows * self.config.data.length

    @property
    def queries(self) -> int:
        """Q: block positions a row."""
        return self.config.train.anchors * self.config.model.block_size


def shapes(config: DFlashConfig) -> Shapes:
    """Counted on the meta device: nothing is allocated."""
    target: PreTrainedModel = on_meta(config.target)
    shape = drafter_shape(config, target.config)
    with torch.device("meta"):
        drafter = DFlashDrafter(shape)
    return Shapes(
        config=config,
        drafter=shape,
        drafter_parameters=sum(p.numel() for p in drafter.parameters()),
        target_parameters=sum(p.numel() for p in target.parameters()),
        target_layers=target.config.num_hidden_layers,
        target_ffn=target.config.intermediate_size,
        vocab=target.config.vocab_size,
        tied=bool(target.config.tie_word_embeddings),
    )


# --- the target's side -----------------------------------------------------------------------------------


def target_memory(s: Shapes) -> dict[str, int]:
    """A frozen target and one pass of B rows: every layer's hidden states, as transformers hands them out, then the FFN
    (gate, up, product) of the layer at work, and logits for every token."""
    hidden = s.drafter.hidden
    return {
        "parameters": s.target_parameters,
        "weights_bytes": s.target_parameters * s.width,
        "activations_bytes": s.tokens * s.width * ((s.target_layers + 1) * hidden + 3 * s.target_ffn),
        "features_bytes": shares_at_target(s) * share_bytes(s),
        "logits_bytes": s.tokens * s.vocab * s.width,
    }


def share_bytes(s: Shapes) -> int:
    """A share's features, with a label of eight bytes for each token."""
    return s.tokens * (s.drafter.features * s.width + 8)


def shares_at_target(s: Shapes) -> int:
    """The one that it makes; in ``threads`` also the one before, while that is copied to its drafter."""
    return 2 if s.config.topology.kind == "threads" else 1


def evaluated_bytes(s: Shapes) -> int:
    """The drafter's weights once more, on the target's device on which the run evaluates."""
    return 4 * s.drafter_parameters


# --- the drafter's side ----------------------------------------------------------------------------------


def drafter_memory(s: Shapes) -> dict[str, int]:
    """A drafter in training: fp32 weights and autocast copies, gradients, two moments, what a step keeps."""
    return {
        "parameters": s.drafter_parameters,
        "weights_bytes": (4 if s.config.precision == "fp32" else 6) * s.drafter_parameters,
        "gradients_bytes": gradients_bytes(s),
        "optimizer_bytes": 8 * s.drafter_parameters,
        "activations_bytes": drafter_activations(s),
        "features_bytes": shares_at_drafter(s) * share_bytes(s),
        "logits_bytes": logits_chunk(s),
    }


def gradients_bytes(s: Shapes) -> int:
    """The flat buffer: each parameter's gradient is a view of it, and torch.distributed sums it in place. ``threads``
    also has this drafter's slice of the sum, and that of another drafter, which is added to it."""
    drafters = s.config.topology.drafter_count
    slices = 2 / drafters if s.config.topology.kind == "threads" and drafters > 1 else 0
    return 4 * s.drafter_parameters + int(slices * 4 * s.drafter_parameters)


def shares_at_drafter(s: Shapes) -> int:
    """Those that may wait there, and the one in use. ``inline``: the one in use, while the target makes the next."""
    return 1 if s.config.topology.kind == "inline" else s.config.topology.queue + 1


def borrowed_bytes(s: Shapes) -> int:
    """The target's embedding and head, which a drafter on a device of its own needs beside it."""
    return (1 if s.tied else 2) * s.vocab * s.drafter.hidden * s.width


def drafter_activations(s: Shapes) -> int:
    """What autograd keeps of a drafter's forward pass: what its linear, norm, product and attention operations read.

    A layer, a row: block side 2 norm inputs, 2 norm outputs and the residual (5 Q H); keys and values from T H; queries
    before and after their norm and rotation, and the output (4 Q q, q = heads x size); keys and values likewise
    (4 T k); gate, its activation, up, their product (4 Q I).
    """
    d = s.drafter
    q, k = d.heads * d.head_dim, d.kv_heads * d.head_dim
    keys = s.config.data.length + s.queries
    layer = s.queries * (5 * d.hidden + 4 * q + 4 * d.ffn) + keys * (d.hidden + 4 * k)
    outside = 2 * s.config.data.length * d.hidden + 2 * s.queries * d.hidden
    return s.rows * (d.layers * layer + outside) * s.width


def logits_chunk(s: Shapes) -> int:
    """One chunk of blocks in its backward pass: logits as they come, in fp32, their softmax, and the gradients."""
    copies = 4 + 4 + 4 if s.config.precision == "fp32" else 2 + 4 + 4 + 4 + 2
    return s.config.train.chunk_blocks * (s.config.model.block_size - 1) * s.vocab * copies


def dense_scores(s: Shapes) -> int:
    """What one layer's attention scores would take as a dense fp32 matrix: B x heads x Q x T."""
    keys = s.config.data.length + s.queries
    return 4 * s.rows * s.drafter.heads * s.queries * keys
