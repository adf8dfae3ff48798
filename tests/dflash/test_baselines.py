"""The untrained proposers on texts that can be checked by eye."""

from __future__ import annotations

import pytest
import torch

from experiments.dflash.baselines import continue_by_lookup, ngram_lookup, repeat_anchor
from experiments.dflash.decode import Context


def drafted(text: str, count: int) -> str:
    return bytes(continue_by_lookup(list(text.encode()), count)).decode()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the cat and the", " cat "),  # copies what followed the last "the"
        ("abcX abcY abc", "Y abc"),  # the latest occurrence wins
        ("xbc1 abc2 xbc", "1 abc"),  # three tokens matched are worth more than a later match of two
        ("ababab", "ababa"),  # goes on past the end of what there is to copy
        ("aaaa", "aaaaa"),
        ("abcde", "eeeee"),  # nothing occurred before: the anchor again
        ("q", "qqqqq"),
    ],
)
def test_ngram_lookup(text: str, expected: str) -> None:
    assert drafted(text, 5) == expected


def test_proposers_read_only_verified_tokens() -> None:
    ids = torch.tensor([[1, 2, 3, 1, 2, 9, 9], [5, 6, 0, 0, 0, 0, 0]])
    context = Context(ids, torch.tensor([5, 2]), torch.zeros(2, 7, 1), block_size=4)
    assert context.anchor_R.tolist() == [2, 6]
    assert repeat_anchor(context).tolist() == [[2, 2, 2], [6, 6, 6]]
    assert ngram_lookup(context).tolist() == [[3, 1, 2], [6, 6, 6]]
