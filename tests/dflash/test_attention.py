"""The mask against its definition, element by element; attention against a softmax written out per query."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, create_mask, flex_attention

from experiments.dflash.attention import (
    DenseWatch,
    attend,
    block_mask_mod,
    build_mask,
    choose_attention,
    slower_attention,
)
from harness.errors import HarnessError, UsageError


@st.composite
def layouts(draw: st.DrawFn) -> tuple[Tensor, Tensor, int]:
    """Documents of each row (padding at the end), anchors (0 in empty slots), and a block size."""
    rows, size, slots = draw(st.integers(1, 2)), draw(st.integers(1, 14)), draw(st.integers(1, 4))
    document = torch.full((rows, size), -1)
    anchor = torch.zeros(rows, slots, dtype=torch.int64)
    for row in range(rows):
        at = number = 0
        while at < size and (at == 0 or draw(st.booleans())):
            length = draw(st.integers(1, size - at))
            document[row, at : at + length] = number
            at, number = at + length, number + 1
        chosen = draw(st.lists(st.integers(0, at - 1), max_size=slots, unique=True))
        anchor[row, : len(chosen)] = torch.tensor(sorted(chosen), dtype=torch.int64)
    return document, anchor, draw(st.integers(1, 4))


def dense_by_definition(document: Tensor, anchor: Tensor, block_size: int) -> Tensor:
    """Loops over everything, and knows nothing of how the code under test does it."""
    rows, size = document.shape
    slots = anchor.shape[1]
    seen = torch.zeros(rows, slots * block_size, size + slots * block_size, dtype=torch.bool)
    for row in range(rows):
        for slot in range(slots):
            place = int(anchor[row, slot])
            for query in range(slot * block_size, (slot + 1) * block_size):
                for position in range(place):
                    seen[row, query, position] = bool(document[row, position] == document[row, place])
                for inside in range(block_size):
                    seen[row, query, size + slot * block_size + inside] = True
    return seen


@given(layouts())
@settings(max_examples=200, deadline=None)
def test_mask_equals_its_definition_element_by_element(layout: tuple[Tensor, Tensor, int]) -> None:
    document, anchor, block_size = layout
    mask = build_mask("sdpa", anchor, document.gather(1, anchor), document, block_size)
    assert isinstance(mask, Tensor)
    assert torch.equal(mask[:, 0], dense_by_definition(document, anchor, block_size))
    assert mask.any(dim=-1).all()  # no row is empty: softmax over nothing is NaN


@given(layouts())
@settings(max_examples=60, deadline=None)
def test_mask_under_flex_attentions_own_vmap_is_the_same(layout: tuple[Tensor, Tensor, int]) -> None:
    document, anchor, block_size = layout
    rows, size = document.shape
    queries = anchor.shape[1] * block_size
    sees = block_mask_mod(anchor, document.gather(1, anchor), document, block_size)
    vmapped = create_mask(sees, rows, 1, queries, size + queries, device="cpu")
    assert torch.equal(vmapped[:, 0], dense_by_definition(document, anchor, block_size))


def test_flex_attention_under_the_block_mask_equals_sdpa() -> None:
    document = torch.tensor([[0] * 70 + [1] * 80 + [-1] * 50, [0] * 200])
    anchor = torch.tensor([[5, 69, 75, 140, 0], [1, 60, 130, 180, 199]])
    documents = document.gather(1, anchor)
    size, queries = 200, 5 * 8
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(2, 4, queries, 16, generator=generator)
    key, value = torch.randn(2, 2, 2, size + queries, 16, generator=generator).unbind()
    sees = block_mask_mod(anchor, documents, document, 8)
    blocks = create_block_mask(sees, 2, None, queries, size + queries, device="cpu", BLOCK_SIZE=32)
    assert blocks.full_kv_num_blocks is not None
    tiles = blocks.kv_num_blocks + blocks.full_kv_num_blocks
    assert int(tiles.sum()) < tiles.numel() * 8  # some of the 8 tiles a row are skipped, or this shows nothing of it
    with pytest.warns(UserWarning, match="flex_attention called without torch.compile"):
        flexed = flex_attention(query, key, value, block_mask=blocks, enable_gqa=True)
    dense = attend(query, key, value, build_mask("sdpa", anchor, documents, document, 8))
    assert isinstance(flexed, Tensor)
    torch.testing.assert_close(flexed, dense, atol=1e-5, rtol=0)


def naive_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """One query at a time, only the keys it sees, softmax by its formula."""
    rows, heads, queries, size = query.shape
    group = heads // key.shape[1]
    out = torch.zeros_like(query)
    for row in range(rows):
        for head in range(heads):
            for q in range(queries):
                seen = mask[row, q].nonzero()[:, 0]
                scores = key[row, head // group, seen] @ query[row, head, q] / size**0.5
                odds = (scores - scores.max()).exp()
                out[row, head, q] = (odds / odds.sum()) @ value[row, head // group, seen]
    return out


@given(layouts(), st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_sdpa_equals_the_naive_reference_forward_and_backward(layout: tuple[Tensor, Tensor, int], seed: int) -> None:
    document, anchor, block_size = layout
    rows, size = document.shape
    queries = anchor.shape[1] * block_size
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(rows, 4, queries, 8, generator=generator, requires_grad=True)
    key = torch.randn(rows, 2, size + queries, 8, generator=generator, requires_grad=True)
    value = torch.randn(rows, 2, size + queries, 8, generator=generator, requires_grad=True)
    weight = torch.randn(rows, 4, queries, 8, generator=generator)
    mask = build_mask("sdpa", anchor, document.gather(1, anchor), document, block_size)
    ours = attend(query, key, value, mask)
    reference = naive_attention(query, key, value, dense_by_definition(document, anchor, block_size))
    torch.testing.assert_close(ours, reference, atol=1e-5, rtol=0)
    gradients = torch.autograd.grad((ours * weight).sum(), (query, key, value))
    expected = torch.autograd.grad((reference * weight).sum(), (query, key, value))
    torch.testing.assert_close(gradients, expected, atol=1e-5, rtol=0)


def test_attention_is_chosen_by_device() -> None:
    cpu, cuda = torch.device("cpu"), torch.device("cuda", 0)
    assert choose_attention("auto", "inductor", cpu) == "sdpa"
    assert choose_attention("auto", "inductor", cuda) == "flex"
    assert choose_attention("auto", "aot_eager", cuda) == "sdpa"
    assert choose_attention("sdpa", "inductor", cuda) == "sdpa"
    with pytest.raises(UsageError, match="attention=sdpa"):
        choose_attention("flex", "inductor", cpu)
    with pytest.raises(UsageError, match="compile=inductor"):
        choose_attention("flex", "aot_eager", cuda)
    assert choose_attention("flex", "aot_eager", cuda, fallback="allow") == "flex"


def test_auto_says_where_a_gpu_does_not_have_flex_attention() -> None:
    cpu, cuda = torch.device("cpu"), torch.device("cuda", 0)
    assert "aot_eager" in slower_attention("auto", "aot_eager", cuda)
    assert slower_attention("auto", "inductor", cuda) == slower_attention("auto", "aot_eager", cpu) == ""


def flexed(backend: str | None) -> Tensor:
    """flex_attention over a few tokens, compiled by ``backend`` or not at all."""
    function = flex_attention if backend is None else torch.compile(flex_attention, backend=backend, fullgraph=True)
    ones = torch.ones(1, 1, 16, 16)
    out = function(ones, ones, ones)
    assert isinstance(out, Tensor)
    return out


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("backend", [None, "eager", "aot_eager"])
def test_flex_attention_as_dense_math_is_an_error_unless_allowed(backend: str | None) -> None:
    torch.compiler.reset()
    told: list[str] = []
    with DenseWatch("error", told.append), pytest.raises(HarnessError, match=r"dense math.*attention_fallback=allow"):
        flexed(backend)
    with DenseWatch("allow", told.append):
        assert flexed(backend).shape == flexed(backend).shape == (1, 1, 16, 16)
    assert len(told) == 1  # a word, and not one a step
    assert torch.equal(flexed(backend), torch.ones(1, 1, 16, 16))  # nothing stands in the way afterwards


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own, when inductor is loaded
def test_flex_attention_as_inductors_kernel_is_let_through() -> None:
    torch.compiler.reset()
    with DenseWatch("error", lambda _: pytest.fail("a kernel is no dense math")):
        torch.testing.assert_close(flexed("inductor"), torch.ones(1, 1, 16, 16))
