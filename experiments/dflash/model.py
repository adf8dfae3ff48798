"""The DFlash drafter (arXiv 2602.06036): Qwen3-style layers whose keys and values also come from the target.

    features_BSF = the target's hidden states, K of its layers side by side
    x_BSH = hidden_norm(fc(features_BSF))          the context, the same for every layer
    h_BQH = embedding of [anchor token, MASK, ...] for each block
    each layer: queries from h, keys and values from x and h through the same projections

Embedding and lm_head are the target's and are not held here. Parameter names are those that vLLM and SGLang load.

Shapes: B rows, S context positions, F = K * H features, H hidden, N block slots, K block positions, Q = N * K,
T = S + Q, M query heads, G key heads, D dimensions a head.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiments.dflash.attention import Mask, attend, build_mask
from experiments.dflash.config import DFlashConfig


@dataclass(frozen=True)
class DrafterShape:
    """Everything that decides the drafter's parameters and positions."""

    hidden: int  # the target's, since its embedding and lm_head are used
    features: int  # captured target layers * hidden
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    block_size: int
    rope_theta: float
    norm_eps: float

    def __post_init__(self) -> None:
        if self.heads % self.kv_heads:
            raise ValueError(f"the drafter's {self.heads} heads are no multiple of its {self.kv_heads} kv heads")


def drafter_shape(config: DFlashConfig, target_config: Any) -> DrafterShape:
    """The drafter that ``config`` asks for on a target with transformers' ``target_config``."""
    own, of = config.model, target_config
    head_dim = getattr(of, "head_dim", None) or of.hidden_size // of.num_attention_heads
    return DrafterShape(
        hidden=of.hidden_size,
        features=len(own.layer_ids(of.num_hidden_layers)) * of.hidden_size,
        layers=own.layers,
        heads=own.heads or of.num_attention_heads,
        kv_heads=own.kv_heads or of.num_key_value_heads,
        head_dim=own.head_dim or head_dim,
        ffn=own.ffn or of.intermediate_size,
        block_size=own.block_size,
        rope_theta=float(of.rope_parameters["rope_theta"]),
        norm_eps=float(of.rms_norm_eps),
    )


class DFlashDrafter(nn.Module):
    """Drafts whole blocks at once from the target's hidden states."""

    inv_freq_D2: Tensor

    def __init__(self, shape: DrafterShape) -> None:
        super().__init__()
        self.shape = shape
        self.fc = nn.Linear(shape.features, shape.hidden, bias=False)
        self.hidden_norm = nn.RMSNorm(shape.hidden, shape.norm_eps)
        self.layers = nn.ModuleList(DraftLayer(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.hidden, shape.norm_eps)
        exponent = torch.arange(0, shape.head_dim, 2, dtype=torch.float32) / shape.head_dim
        self.register_buffer("inv_freq_D2", shape.rope_theta**-exponent, persistent=False)

    @torch.no_grad()
    def initialise(self, std: float, seed: int) -> None:
        """Normal weights of ``std`` from ``seed`` alone; the norms stay one."""
        generator = torch.Generator().manual_seed(seed)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                parameter.copy_(torch.empty(parameter.shape).normal_(0.0, std, generator=generator))

    def forward(
        self, features_BSF: Tensor, position_BS: Tensor, block_BNKH: Tensor, anchor_position_BN: Tensor, mask: Mask
    ) -> Tensor:
        """Hidden states ``hidden_BNKH``, ready for the target's lm_head, of every block at once.

        features_BSF        the target's raw hidden states; those of position p come from its having read token p
        position_BS         position of each feature within its document
        block_BNKH          target embeddings of [anchor token, MASK, ...]
        anchor_position_BN  position of each anchor within its document; slot k of a block stands k further on
        mask                from ``build_mask``: the context strictly before the anchor, and the own block
        """
        rows, slots, width, hidden = block_BNKH.shape
        context_BSH = self.hidden_norm(self.fc(features_BSF))
        block_position_BNK = anchor_position_BN[:, :, None] + torch.arange(width, device=block_BNKH.device)
        position_BT = torch.cat([position_BS, block_position_BNK.flatten(1)], dim=1)
        rotation = self._rotation(position_BT)
        h_BQH = block_BNKH.reshape(rows, slots * width, hidden)
        for layer in self.layers:
            h_BQH = layer(h_BQH, context_BSH, rotation, mask)
        normed_BQH: Tensor = self.norm(h_BQH)
        return normed_BQH.view(rows, slots, width, hidden)

    def _rotation(self, position_BT: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin ``_B1TD`` of the rotary positions, in fp32."""
        angle_BTD2 = position_BT[:, :, None].float() * self.inv_freq_D2
        angle_B1TD = torch.cat([angle_BTD2, angle_BTD2], dim=-1)[:, None]
        return angle_B1TD.cos(), angle_B1TD.sin()

    @torch.no_grad()
    def draft(self, features_BSF: Tensor, anchor: int | Tensor, block_BKH: Tensor) -> Tensor:
        """One block a row, for decoding: ``hidden_BKH``, where slot k foresees the token at position anchor + k.

        features_BSF  features of positions 0..S-1 of one document a row; only those before the anchor are seen, so
                      rows of unequal length may be padded at the end
        anchor        position of the anchor token (at most S), one for all rows or one a row
        block_BKH     target embeddings of [anchor token, MASK, ...]
        """
        rows, size = features_BSF.shape[:2]
        anchor_B1 = torch.as_tensor(anchor, device=features_BSF.device).expand(rows)[:, None]
        document_BS = anchor_B1.new_zeros(rows, size)
        position_BS = torch.arange(size, device=features_BSF.device).expand(rows, size)
        mask = build_mask("sdpa", anchor_B1, anchor_B1.new_zeros(rows, 1), document_BS, block_BKH.shape[1])
        return self.forward(features_BSF, position_BS, block_BKH[:, None], anchor_B1, mask)[:, 0]


class DraftLayer(nn.Module):
    """A Qwen3 layer; its norms are on the block's side alone."""

    def __init__(self, shape: DrafterShape) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(shape.hidden, shape.norm_eps)
        self.self_attn = InjectedAttention(shape)
        self.post_attention_layernorm = nn.RMSNorm(shape.hidden, shape.norm_eps)
        self.mlp = MLP(shape)

    def forward(self, h_BQH: Tensor, context_BSH: Tensor, rotation: tuple[Tensor, Tensor], mask: Mask) -> Tensor:
        attended_BQH: Tensor = self.self_attn(self.input_layernorm(h_BQH), context_BSH, rotation, mask)
        h_BQH = h_BQH + attended_BQH
        fed_BQH: Tensor = self.mlp(self.post_attention_layernorm(h_BQH))
        return h_BQH + fed_BQH


class InjectedAttention(nn.Module):
    """Queries from the blocks, keys and values from the context and the blocks."""

    def __init__(self, shape: DrafterShape) -> None:
        super().__init__()
        self.head_dim = shape.head_dim
        self.q_proj = nn.Linear(shape.hidden, shape.heads * shape.head_dim, bias=False)
        self.k_proj = nn.Linear(shape.hidden, shape.kv_heads * shape.head_dim, bias=False)
        self.v_proj = nn.Linear(shape.hidden, shape.kv_heads * shape.head_dim, bias=False)
        self.o_proj = nn.Linear(shape.heads * shape.head_dim, shape.hidden, bias=False)
        self.q_norm = nn.RMSNorm(shape.head_dim, shape.norm_eps)
        self.k_norm = nn.RMSNorm(shape.head_dim, shape.norm_eps)

    def forward(self, h_BQH: Tensor, context_BSH: Tensor, rotation: tuple[Tensor, Tensor], mask: Mask) -> Tensor:
        source_BTH = torch.cat([context_BSH, h_BQH], dim=1)
        query_BMQD = self.q_norm(self._heads(self.q_proj(h_BQH)))
        key_BGTD = self.k_norm(self._heads(self.k_proj(source_BTH)))
        value_BGTD = self._heads(self.v_proj(source_BTH))
        cos, sin = rotation
        size = context_BSH.shape[1]
        query_BMQD = rotate(query_BMQD, cos[:, :, size:], sin[:, :, size:])
        key_BGTD = rotate(key_BGTD, cos, sin)
        out_BMQD = attend(query_BMQD, key_BGTD, value_BGTD, mask)
        projected_BQH: Tensor = self.o_proj(out_BMQD.transpose(1, 2).flatten(2))
        return projected_BQH

    def _heads(self, x_BTE: Tensor) -> Tensor:
        return x_BTE.view(*x_BTE.shape[:2], -1, self.head_dim).transpose(1, 2)


class MLP(nn.Module):
    """SwiGLU, as Qwen3 has it."""

    def __init__(self, shape: DrafterShape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden, shape.ffn, bias=False)
        self.up_proj = nn.Linear(shape.hidden, shape.ffn, bias=False)
        self.down_proj = nn.Linear(shape.ffn, shape.hidden, bias=False)

    def forward(self, h_BQH: Tensor) -> Tensor:
        fed_BQH: Tensor = self.down_proj(F.silu(self.gate_proj(h_BQH)) * self.up_proj(h_BQH))
        return fed_BQH


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding over the last dimension, halves paired as in Qwen3 and Llama; keeps ``x``'s type."""
    low, high = x.chunk(2, dim=-1)
    return (x * cos + torch.cat([-high, low], dim=-1) * sin).to(x.dtype)
