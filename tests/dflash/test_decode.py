"""Speculative decoding changes nothing, whatever is proposed; and the cache holds what a pass without it computes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from experiments.dflash import baselines
from experiments.dflash.decode import Context, KeyValueCache, Proposer, greedy, speculate
from experiments.dflash.target import Target
from tests.dflash.tiny_target import VOCAB, plain_greedy, random_target

TARGET = random_target()
prompts_of_tokens = st.lists(st.lists(st.integers(1, VOCAB - 2), min_size=1, max_size=9), min_size=1, max_size=4)


def oracle(target: Target, prompts: list[list[int]], right: int) -> Proposer:
    """Drafts the first ``right`` tokens of each block as the target would write them, and wrong ones after."""
    texts = [prompt + plain_greedy(target, prompt, 60) for prompt in prompts]

    def propose(context: Context) -> Tensor:
        rows = []
        for ids, length in zip(context.ids_RT.tolist(), context.length_R.tolist(), strict=True):
            text = next(t for t in texts if t[:length] == ids[:length])
            truth = text[length : length + context.block_size - 1]
            rows.append([token if i < right else (token + 1) % VOCAB for i, token in enumerate(truth)])
        return torch.tensor(rows)

    return propose


@settings(max_examples=10, deadline=None)
@given(prompts=prompts_of_tokens, new_tokens=st.integers(1, 20))
def test_batched_greedy_decoding_equals_decoding_one_by_one_without_a_cache(
    prompts: list[list[int]], new_tokens: int
) -> None:
    assert greedy(TARGET, prompts, new_tokens) == [plain_greedy(TARGET, p, new_tokens) for p in prompts]


@settings(max_examples=10, deadline=None)
@given(prompts=prompts_of_tokens, block_size=st.integers(2, 6), seed=st.integers(0, 99))
def test_random_drafts_change_nothing(prompts: list[list[int]], block_size: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)

    def propose(context: Context) -> Tensor:
        return torch.randint(VOCAB, (len(context.length_R), block_size - 1), generator=generator)

    written = [row.tokens for row in speculate(TARGET, prompts, 17, block_size, propose)]
    assert written == [plain_greedy(TARGET, p, 17) for p in prompts]


@pytest.mark.parametrize("right", [0, 1, 2, 3])
def test_rounds_accept_exactly_the_right_prefix(right: int) -> None:
    prompts = [[3, 1, 4], [1, 5, 9, 2, 6]]
    rows = speculate(TARGET, prompts, 20, 4, oracle(TARGET, prompts, right))
    for row, prompt in zip(rows, prompts, strict=True):
        assert row.tokens == plain_greedy(TARGET, prompt, 20)
        assert set(row.accepted) == {right}
        assert len(row.accepted) == -(-19 // (right + 1))  # the first token comes with the prompt's own pass


@pytest.mark.parametrize("proposer", [baselines.repeat_anchor, baselines.ngram_lookup])
def test_baselines_change_nothing(proposer: Proposer) -> None:
    prompts = [[2, 2, 2], [7, 8, 7, 8, 7], [5]]
    written = [row.tokens for row in speculate(TARGET, prompts, 25, 5, proposer)]
    assert written == [plain_greedy(TARGET, p, 25) for p in prompts]


def test_text_ends_at_the_end_token_and_later_rows_go_on() -> None:
    free = plain_greedy(TARGET, [3, 1, 4], 12)
    ending = random_target(eos_ids=(free[4],))
    cut = free[: free.index(free[4]) + 1]
    rows = speculate(ending, [[3, 1, 4], [1, 5, 9]], 12, 4, oracle(TARGET, [[3, 1, 4], [1, 5, 9]], 3))
    assert rows[0].tokens == cut
    assert rows[1].tokens == plain_greedy(ending, [1, 5, 9], 12)


def test_features_are_those_of_a_full_pass_at_every_position_before_the_anchor() -> None:
    prompts = [[3, 1, 4], [1, 5, 9, 2, 6]]
    seen: list[tuple[list[int], Tensor]] = []

    def watching(context: Context) -> Tensor:
        for row, length in enumerate(context.length_R.tolist()):
            seen.append((context.ids_RT[row, :length].tolist(), context.features_RTF[row, : length - 1].clone()))
        return oracle(TARGET, prompts, 2)(context)

    speculate(TARGET, prompts, 20, 4, watching)
    assert len(seen) == 14
    for ids, features in seen:
        tensor = torch.tensor([ids])
        whole, _ = TARGET.features(tensor, torch.zeros_like(tensor))
        torch.testing.assert_close(features, whole[0, : len(ids) - 1], atol=1e-4, rtol=1e-4)


@settings(max_examples=10, deadline=None)
@given(
    ids=st.lists(st.integers(1, VOCAB - 2), min_size=8, max_size=12),
    rejected=st.lists(st.integers(1, VOCAB - 2), min_size=3, max_size=3),
    split=st.integers(1, 5),
)
def test_what_a_rejected_draft_left_in_the_cache_is_never_seen(ids: list[int], rejected: list[int], split: int) -> None:
    """Logits after: prefix, a draft that is thrown away, the real text; against one pass over the real text."""
    cache = KeyValueCache(slots=len(ids) + 4)
    with torch.no_grad():
        for start, tokens in ((0, ids[:split]), (split, rejected), (split, ids[split:])):
            positions, mask = cache.at(torch.tensor([start]), len(tokens))
            _, logits = TARGET.forward(torch.tensor([tokens]), positions, mask, cache)
        whole = TARGET.model(input_ids=torch.tensor([ids])).logits
    torch.testing.assert_close(logits[0], whole[0, split:], atol=1e-4, rtol=1e-4)


def test_nothing_to_decode_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one prompt"):
        greedy(TARGET, [], 4)
    with pytest.raises(ValueError, match="at least one token"):
        greedy(TARGET, [[1], []], 4)
