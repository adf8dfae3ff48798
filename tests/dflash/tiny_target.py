"""A random target of two small layers and rows for it: a real transformers model with no knowledge in it."""

from __future__ import annotations

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from experiments.dflash.data import Dataset
from experiments.dflash.target import Target

VOCAB = 24
MASK = 23


def random_target(seed: int = 0, spread: float = 0.6, eos_ids: tuple[int, ...] = ()) -> Target:
    """Two layers, hidden 16. A wide spread makes its greedy text varied rather than a loop of one token."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        initializer_range=spread,
        tie_word_embeddings=False,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=None,
    )
    return Target(Qwen3ForCausalLM(config), (0,), MASK, (0, MASK), f"random-{seed}", f"digest-{seed}", eos_ids)


def plain_greedy(target: Target, prompt: list[int], new_tokens: int) -> list[int]:
    """The reference: no cache, no batch, one token a pass over everything, and transformers' own causal mask."""
    ids = list(prompt)
    for _ in range(new_tokens):
        with torch.no_grad():
            token = int(target.model(input_ids=torch.tensor([ids])).logits[0, -1].argmax())
        ids.append(token)
        if token in target.eos_ids:
            break
    return ids[len(prompt) :]


def make_dataset(rows_a_step: int, learn: bool = True) -> Dataset:
    """Eight rows of twelve: two documents each, two places of padding at the end."""
    ids = torch.randint(1, VOCAB - 1, (8, 12), generator=torch.Generator().manual_seed(0))
    document = torch.tensor([[0] * 6 + [1] * 4 + [-1] * 2]).repeat(8, 1)
    return Dataset(ids, (document >= 0) & learn, document, rows_a_step, seed=0, digest="d")
