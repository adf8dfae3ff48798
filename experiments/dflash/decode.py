"""Greedy decoding, plain and speculative, of many prompts at once over one key-value cache.

Shapes: R rows (prompts), P prompt tokens, B block size, T slots of the buffers, F captured features, V vocabulary.

A row that has ``length`` verified tokens has its newest one, the anchor, at position ``length - 1``. The target has not
seen the anchor yet, so features and keys exist for the positions before it only. A round drafts B - 1 tokens after the
anchor, lets the target see anchor and draft in one pass, keeps the longest prefix that the target would have written
itself, and adds the token that it would have written next: the new anchor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from experiments.dflash.target import Target


@dataclass(frozen=True)
class Context:
    """What a proposer may look at, for the rows that are still being decoded.

    ids_RT        verified tokens; what lies at ``length`` and after is undefined
    length_R      verified tokens of each row, the anchor included
    features_RTF  the target's features; defined before the anchor, at positions below ``length - 1``
    block_size    B: the anchor and the B - 1 tokens asked for
    """

    ids_RT: Tensor
    length_R: Tensor
    features_RTF: Tensor
    block_size: int

    @property
    def anchor_R(self) -> Tensor:
        """The newest verified token of each row."""
        return self.ids_RT.gather(1, self.length_R[:, None] - 1)[:, 0]


Proposer = Callable[[Context], Tensor]
"""Drafts ``ids_RD`` (D = B - 1) for the positions after each row's anchor. Any draft is safe: it is verified."""


class KeyValueCache:
    """Keys and values of R rows that stand at different lengths, as transformers' attention layers update them.

    Each row writes at its own positions. Nothing is ever cropped by copying: what a rejected draft wrote lies at or
    after the row's new start, where ``mask`` hides it until the next pass overwrites it.
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.layers: dict[int, tuple[Tensor, Tensor]] = {}
        self.positions_RQ = torch.empty(0, 0, dtype=torch.long)

    def at(self, start_R: Tensor, queries: int) -> tuple[Tensor, Tensor]:
        """Prepare a pass over ``queries`` tokens a row from ``start_R`` on: ``positions_RQ`` and ``mask_R1QT``."""
        self.positions_RQ = start_R[:, None] + torch.arange(queries, device=start_R.device)
        keys_T = torch.arange(self.slots, device=start_R.device)
        return self.positions_RQ, (keys_T <= self.positions_RQ[:, :, None])[:, None]

    def update(self, keys: Tensor, values: Tensor, layer: int, *_: object, **__: object) -> tuple[Tensor, Tensor]:
        """Write the pass's ``(R, heads, Q, dim)`` keys and values; all slots of the layer back."""
        if layer not in self.layers:
            shape = (*keys.shape[:2], self.slots, keys.shape[3])
            self.layers[layer] = (keys.new_zeros(shape), values.new_zeros(shape))
        stored = self.layers[layer]
        index = self.positions_RQ[:, None, :, None].expand_as(keys)
        stored[0].scatter_(2, index, keys)
        stored[1].scatter_(2, index, values)
        return stored

    def keep(self, rows: Tensor) -> None:
        """Drop every row but ``rows``."""
        self.layers = {layer: (k[rows], v[rows]) for layer, (k, v) in self.layers.items()}


@dataclass(frozen=True)
class Decoded:
    """A row's continuation, the prompt left out.

    tokens    what was written, ``new_tokens`` of them or fewer where an end-of-text token came first
    accepted  drafted tokens that were kept, one figure a round
    drafts    what was drafted, one list a round
    starts    index into ``tokens`` of each round's first drafted token
    """

    tokens: list[int]
    accepted: list[int] = field(default_factory=list)
    drafts: list[list[int]] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)


def greedy(target: Target, prompts: Sequence[Sequence[int]], new_tokens: int) -> list[list[int]]:
    """The target's own greedy continuations, ``new_tokens`` each or up to an end-of-text token: the reference."""
    nothing: Proposer = lambda context: context.ids_RT[:, :0]  # noqa: E731
    return [row.tokens for row in speculate(target, prompts, new_tokens, 1, nothing)]


@torch.no_grad()
def speculate(
    target: Target, prompts: Sequence[Sequence[int]], new_tokens: int, block_size: int, proposer: Proposer
) -> list[Decoded]:
    """Each prompt's continuation, drafted by ``proposer`` and verified by ``target``.

    With exact arithmetic the tokens equal the target's own greedy decoding, whatever is proposed. ``block_size`` 1 is
    plain greedy decoding, one token a pass.
    """
    state = _prefill(target, prompts, new_tokens + block_size)
    results = [Decoded([int(token)]) for token in state.context(1).anchor_R]
    live = list(range(len(prompts)))
    while live:
        finished = [_ended(target, results[row].tokens, new_tokens) for row in live]
        if any(finished):
            kept = [i for i, done in enumerate(finished) if not done]
            live = [live[i] for i in kept]
            state.keep(kept)
        if live:
            _round(target, state, block_size, proposer, [results[row] for row in live])
    return [_cut(target, result, new_tokens) for result in results]


@dataclass
class _State:
    """The buffers of the rows that are still being decoded."""

    ids_RT: Tensor
    length_R: Tensor
    features_RTF: Tensor
    cache: KeyValueCache

    def context(self, block_size: int) -> Context:
        return Context(self.ids_RT, self.length_R, self.features_RTF, block_size)

    def keep(self, rows: list[int]) -> None:
        index = torch.tensor(rows, dtype=torch.long, device=self.ids_RT.device)
        self.ids_RT, self.length_R = self.ids_RT[index], self.length_R[index]
        self.features_RTF = self.features_RTF[index]
        self.cache.keep(index)


def _prefill(target: Target, prompts: Sequence[Sequence[int]], room: int) -> _State:
    """The target's pass over the prompts, shorter ones padded on the right, and its first token as the anchor."""
    if not prompts or not all(prompts):
        raise ValueError("decoding needs at least one prompt, and at least one token in each")
    length_R = torch.tensor([len(prompt) for prompt in prompts], device=target.device)
    longest = int(length_R.max())
    ids_RT = torch.zeros(len(prompts), longest + room, dtype=torch.long, device=target.device)
    for row, prompt in enumerate(prompts):
        ids_RT[row, : len(prompt)] = torch.tensor(list(prompt))
    cache = KeyValueCache(longest + room)
    positions, mask = cache.at(torch.zeros_like(length_R), longest)
    features_RPF, logits_RPV = target.forward(ids_RT[:, :longest], positions, mask, cache)
    features_RTF = features_RPF.new_zeros(len(prompts), longest + room, features_RPF.shape[-1])
    features_RTF[:, :longest] = features_RPF
    first_R = logits_RPV[torch.arange(len(prompts)), length_R - 1].argmax(-1)
    ids_RT.scatter_(1, length_R[:, None], first_R[:, None])
    return _State(ids_RT, length_R + 1, features_RTF, cache)


def _round(target: Target, state: _State, block_size: int, proposer: Proposer, results: list[Decoded]) -> None:
    """Draft, verify, accept; ``state`` and ``results`` move on by one token or more."""
    context = state.context(block_size)
    draft_RD = proposer(context)
    block_RB = torch.cat([context.anchor_R[:, None], draft_RD], 1)
    positions_RB, mask = state.cache.at(state.length_R - 1, block_size)
    features_RBF, logits_RBV = target.forward(block_RB, positions_RB, mask, state.cache)
    truth_RB = logits_RBV.argmax(-1)
    accepted_R = (draft_RD == truth_RB[:, :-1]).long().cumprod(1).sum(1)
    # everything is written; what was rejected lies beyond the new length, and the next round overwrites it
    state.features_RTF.scatter_(1, positions_RB[:, :, None].expand_as(features_RBF), features_RBF)
    state.ids_RT.scatter_(1, positions_RB + 1, truth_RB)
    state.length_R = state.length_R + accepted_R + 1
    for result, draft, truth, accepted in zip(
        results, draft_RD.tolist(), truth_RB.tolist(), accepted_R.tolist(), strict=True
    ):
        result.starts.append(len(result.tokens))
        result.drafts.append(draft)
        result.accepted.append(accepted)
        result.tokens.extend(truth[: accepted + 1])


def _ended(target: Target, tokens: list[int], new_tokens: int) -> bool:
    return len(tokens) >= new_tokens or any(token in target.eos_ids for token in tokens)


def _cut(target: Target, result: Decoded, new_tokens: int) -> Decoded:
    """``result`` with what a last round wrote past the end, or past an end-of-text token, taken off its tokens."""
    ends = [i + 1 for i, token in enumerate(result.tokens) if token in target.eos_ids]
    return Decoded(result.tokens[: min([new_tokens, *ends])], result.accepted, result.drafts, result.starts)
