"""The frozen target: a causal language model with its embedding, its head, and the hidden states that a drafter sees.

Shapes: B rows, S tokens, H hidden, K captured layers, F = K * H, V vocabulary.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel


@dataclass(frozen=True, eq=False)
class Borrowed:
    """What a drafter uses of its target and does not own: the embedding and the head, on the drafter's device."""

    embedding: nn.Module
    head: nn.Module
    mask_token_id: int

    def embed(self, ids: Tensor) -> Tensor:
        """Token embeddings, one more dimension than ``ids``."""
        embedded: Tensor = self.embedding(ids)
        return embedded

    def lm_head(self, hidden: Tensor) -> Tensor:
        """Logits over the vocabulary for hidden states that are already normed."""
        logits: Tensor = self.head(hidden)
        return logits


@dataclass(frozen=True, eq=False)
class Target:
    """A frozen causal language model, as a drafter is trained against it.

    layer_ids       layers, from 0, whose output is captured: ``hidden_states[id + 1]``, before the final norm
    mask_token_id   an id that no text holds; the empty slots of a draft block carry it
    reserved_ids    ids that are never drafted: mask, padding, control tokens
    eos_ids         ids that end a continuation (none for bytes)
    digest          of what the target was asked to be; the same on every machine and under every version of torch
    """

    model: PreTrainedModel
    layer_ids: tuple[int, ...]
    mask_token_id: int
    reserved_ids: tuple[int, ...]
    name: str
    digest: str
    eos_ids: tuple[int, ...] = ()
    tokenizer: Any = None  # transformers' own; None where a token is a byte

    def __post_init__(self) -> None:
        # transformers' last hidden state is taken after the final norm, which is not what layer L - 1 put out
        last = self.config.num_hidden_layers - 2
        if not self.layer_ids or max(self.layer_ids) > last:
            raise ValueError(f"layer ids must lie between 0 and {last} for {self.name}, not {list(self.layer_ids)}")
        self.model.requires_grad_(False).train(False)

    @property
    def config(self) -> Any:
        """transformers' config of the model."""
        return self.model.config

    @property
    def vocab_size(self) -> int:
        return int(self.config.vocab_size)

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def parameters(self) -> int:
        return sum(p.numel() for p in self.model.parameters())

    @property
    def lent(self) -> Borrowed:
        """The embedding and the head themselves, for a drafter on the target's own device."""
        head: nn.Module = self.model.get_output_embeddings()  # type: ignore[no-untyped-call]
        return Borrowed(self.model.get_input_embeddings(), head, self.mask_token_id)

    def lend(self, device: torch.device) -> Borrowed:
        """Copies of the embedding and the head on ``device``, for a drafter that has a device of its own."""
        own = self.lent
        embedding, head = copy.deepcopy((own.embedding, own.head))  # together: tied weights stay one tensor
        return Borrowed(embedding.to(device), head.to(device), own.mask_token_id)

    def on(self, device: torch.device) -> Target:
        """A replica on ``device``, which shares nothing with this one: two threads may use the two at once."""
        model = copy.deepcopy(self.model)
        model.to(device)  # type: ignore[arg-type]  # transformers wraps it in an untyped decorator
        return replace(self, model=model)

    def embed(self, ids_BS: Tensor) -> Tensor:
        """Token embeddings ``x_BSH``; the drafter owns none."""
        return self.lent.embed(ids_BS)

    def lm_head(self, hidden: Tensor) -> Tensor:
        """Logits over the vocabulary for hidden states that are already normed."""
        return self.lent.lm_head(hidden)

    @torch.no_grad()
    def features(self, ids_BS: Tensor, document_BS: Tensor) -> tuple[Tensor, Tensor]:
        """The captured layers side by side ``features_BSF`` (raw, before the drafter's fusion), and ``logits_BSV``.

        ``document_BS`` numbers the documents packed into a row, -1 for padding: each sees only itself, from position 0.
        """
        mask_B1SS = causal_document_mask(document_BS)[:, None]
        return self.forward(ids_BS, document_positions(document_BS), mask_B1SS)

    def forward(
        self, ids_BS: Tensor, positions_BS: Tensor, mask_B1ST: Tensor, cache: Any = None
    ) -> tuple[Tensor, Tensor]:
        """``features_BSF`` and ``logits_BSV`` under an explicit mask (True: may be seen) over ``cache``'s T keys."""
        output = self.model(
            input_ids=ids_BS,
            position_ids=positions_BS,
            attention_mask=mask_B1ST,
            cache=cache,
            use_cache=cache is not None,
            output_hidden_states=True,
        )
        return torch.cat([output.hidden_states[i + 1] for i in self.layer_ids], -1), output.logits


def causal_document_mask(document_BS: Tensor) -> Tensor:
    """``mask_BSS``: True where the query (row) may see the key (column): not later, and of the same document."""
    same_BSS = document_BS[:, :, None] == document_BS[:, None, :]
    size = document_BS.shape[1]
    causal_SS = torch.ones(size, size, dtype=torch.bool, device=document_BS.device).tril()
    return same_BSS & causal_SS


def document_positions(document_BS: Tensor) -> Tensor:
    """Each token's position within its document, from 0."""
    index_S = torch.arange(document_BS.shape[1], device=document_BS.device)
    starts_BS = torch.ones_like(document_BS, dtype=torch.bool)
    starts_BS[:, 1:] = document_BS[:, 1:] != document_BS[:, :-1]
    return index_S - torch.where(starts_BS, index_S, 0).cummax(-1).values
