"""Proposers that were never trained: what a drafter has to beat before its accept length says anything."""

from __future__ import annotations

import torch
from torch import Tensor

from experiments.dflash.decode import Context

LONGEST_MATCH = 3
"""Tokens of the ending that n-gram lookup looks for first; it falls back to 2, then to 1."""


def repeat_anchor(context: Context) -> Tensor:
    """The anchor again and again: right where a weak target loops on one token."""
    return context.anchor_R[:, None].expand(-1, context.block_size - 1)


def ngram_lookup(context: Context) -> Tensor:
    """What followed the last earlier occurrence of the ending (prompt lookup decoding).

    The longest ending of at most ``LONGEST_MATCH`` tokens that occurred before wins. What was copied is copied from in
    turn, so that a loop is continued past its own end. Without any occurrence the anchor is repeated.
    """
    rows = [
        continue_by_lookup(ids[:length], context.block_size - 1)
        for ids, length in zip(context.ids_RT.tolist(), context.length_R.tolist(), strict=True)
    ]
    return torch.tensor(rows, dtype=torch.long, device=context.ids_RT.device)


def continue_by_lookup(tokens: list[int], count: int) -> list[int]:
    """``count`` tokens after ``tokens`` by n-gram lookup in ``tokens`` themselves."""
    for size in range(min(LONGEST_MATCH, len(tokens) - 1), 0, -1):
        ending = tokens[-size:]
        for start in range(len(tokens) - size - 1, -1, -1):
            if tokens[start : start + size] == ending:
                source = list(tokens)
                for i in range(count):
                    source.append(source[start + size + i])
                return source[len(tokens) :]
    return [tokens[-1]] * count
