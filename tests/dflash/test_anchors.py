"""Anchors: what may be one, that draws are fair and repeatable, and which slots they supervise."""

from __future__ import annotations

from collections import Counter

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from experiments.dflash.anchors import Anchors, anchor_candidates, sample_anchors, supervise


@st.composite
def packed_rows(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """A loss mask and documents: each row some documents side by side, then padding."""
    rows, size = draw(st.integers(1, 3)), draw(st.integers(2, 24))
    documents = torch.full((rows, size), -1)
    for row in range(rows):
        at = number = 0
        while at < size and draw(st.booleans()):
            length = draw(st.integers(1, size - at))
            documents[row, at : at + length] = number
            at, number = at + length, number + 1
    bits = draw(st.lists(st.booleans(), min_size=rows * size, max_size=rows * size))
    return torch.tensor(bits).view(rows, size) & (documents >= 0), documents


def drawn(loss_mask: Tensor, document: Tensor, slots: int, seed: int) -> Anchors:
    """Anchors whose chances come from ``seed``."""
    generator = torch.Generator().manual_seed(seed)
    chance = torch.rand(loss_mask.shape, generator=generator, dtype=torch.float64)
    return sample_anchors(loss_mask, document, slots, chance)


@given(packed_rows(), st.integers(1, 30), st.integers(0, 99))
@settings(max_examples=150, deadline=None)
def test_anchors_are_candidates_ascending_distinct_and_as_many_as_fit(
    rows: tuple[Tensor, Tensor], slots: int, seed: int
) -> None:
    loss_mask, document = rows
    anchors = drawn(loss_mask, document, slots, seed)
    assert anchors.anchor_BN.shape == anchors.valid_BN.shape == (len(document), slots)
    for row in range(len(document)):
        allowed = [
            p
            for p in range(document.shape[1] - 1)
            if loss_mask[row, p] and loss_mask[row, p + 1] and document[row, p] == document[row, p + 1] >= 0
        ]
        chosen = anchors.anchor_BN[row][anchors.valid_BN[row]].tolist()
        assert set(chosen) <= set(allowed)
        assert chosen == sorted(set(chosen))
        assert len(chosen) == min(slots, len(allowed))
        assert anchors.valid_BN[row].tolist() == [True] * len(chosen) + [False] * (slots - len(chosen))
        assert not anchors.anchor_BN[row][~anchors.valid_BN[row]].any()


@given(packed_rows(), st.integers(1, 12), st.integers(0, 99))
@settings(max_examples=150, deadline=None)
def test_no_document_gets_a_second_anchor_before_each_has_its_first(
    rows: tuple[Tensor, Tensor], slots: int, seed: int
) -> None:
    loss_mask, document = rows
    anchors = drawn(loss_mask, document, slots, seed)
    candidates = anchor_candidates(loss_mask, document)
    for row in range(len(document)):
        available = Counter(document[row][candidates[row]].tolist())
        given_out = Counter(document[row][anchors.anchor_BN[row][anchors.valid_BN[row]]].tolist())
        most = max(given_out.values(), default=0)
        for name, count in available.items():
            assert given_out[name] >= min(count, most - 1)


def test_the_same_seed_draws_the_same_anchors_and_another_seed_others() -> None:
    loss_mask, document = torch.ones(4, 64, dtype=torch.bool), torch.zeros(4, 64, dtype=torch.int64)
    first, again, other = (drawn(loss_mask, document, 8, s).anchor_BN for s in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_every_candidate_is_drawn_about_equally_often() -> None:
    loss_mask, document = torch.ones(4000, 9, dtype=torch.bool), torch.zeros(4000, 9, dtype=torch.int64)
    anchors = drawn(loss_mask, document, 2, 0)
    counts = anchors.anchor_BN.flatten().bincount(minlength=9)
    assert counts[8] == 0  # the last position has no next one
    assert (counts[:8] - 1000).abs().max() < 5 * 1000**0.5


@given(packed_rows(), st.integers(1, 8), st.integers(2, 9), st.integers(0, 99))
@settings(max_examples=150, deadline=None)
def test_supervision_against_its_definition(
    rows: tuple[Tensor, Tensor], slots: int, block_size: int, seed: int
) -> None:
    loss_mask, document = rows
    size = document.shape[1]
    anchors = drawn(loss_mask, document, slots, seed)
    supervision = supervise(anchors, loss_mask, document, block_size)
    for row in range(len(document)):
        for slot in range(slots):
            anchor = int(anchors.anchor_BN[row, slot])
            for k in range(1, block_size):
                position = anchor + k
                live = bool(
                    anchors.valid_BN[row, slot]
                    and position < size
                    and loss_mask[row, position]
                    and document[row, position] == document[row, anchor]
                )
                assert bool(supervision.live_BNJ[row, slot, k - 1]) == live
                if live:
                    assert supervision.position_BNJ[row, slot, k - 1] == position
    # whoever is an anchor has something to foresee
    assert torch.equal(supervision.live_BNJ[:, :, 0], anchors.valid_BN)


def test_a_row_without_candidates_has_only_empty_slots() -> None:
    loss_mask, document = torch.zeros(1, 8, dtype=torch.bool), torch.zeros(1, 8, dtype=torch.int64)
    anchors = drawn(loss_mask, document, 3, 0)
    assert not anchors.valid_BN.any()
    empty = Anchors(torch.zeros(1, 3, dtype=torch.int64), torch.zeros(1, 3, dtype=torch.bool))
    assert torch.equal(anchors.anchor_BN, empty.anchor_BN)
    assert not supervise(anchors, loss_mask, document, 4).live_BNJ.any()
