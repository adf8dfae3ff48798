"""The drafter: what depends on what, training against decoding, and the names that servers load."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from experiments.dflash.attention import build_mask
from experiments.dflash.config import DFlashConfig, ModelConfig, default_layer_ids
from experiments.dflash.model import DFlashDrafter, DrafterShape, drafter_shape, rotate

SHAPE = DrafterShape(
    hidden=16,
    features=32,
    layers=2,
    heads=4,
    kv_heads=2,
    head_dim=8,
    ffn=24,
    block_size=4,
    rope_theta=10_000.0,
    norm_eps=1e-6,
)
ANCHOR = torch.tensor([[2, 5, 9], [1, 8, 0]])  # the last slot of the second row is empty
DOCUMENT = torch.zeros(2, 12, dtype=torch.int64)


def make_drafter(shape: DrafterShape = SHAPE) -> DFlashDrafter:
    drafter = DFlashDrafter(shape)
    drafter.initialise(0.3, seed=0)
    return drafter


def make_inputs(seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, 12, 32, generator=generator), torch.randn(2, 3, 4, 16, generator=generator)


def run(drafter: DFlashDrafter, features: Tensor, blocks: Tensor, document: Tensor = DOCUMENT) -> Tensor:
    mask = build_mask("sdpa", ANCHOR, document.gather(1, ANCHOR), document, 4)
    position = torch.arange(12).expand(2, 12)
    return drafter.forward(features, position, blocks, ANCHOR, mask)


def test_a_block_depends_on_itself_and_on_nothing_of_the_other_blocks() -> None:
    features, blocks = make_inputs()
    blocks.requires_grad_()
    hidden = run(make_drafter(), features, blocks)
    for slot in range(3):
        (gradient,) = torch.autograd.grad(hidden[:, slot].sum(), blocks, retain_graph=True)
        others = [other for other in range(3) if other != slot]
        assert gradient[:, others].abs().max() == 0
        assert (gradient[:, slot].abs().sum(dim=-1) > 0).all()  # every position of the block, also later ones


def test_a_block_depends_on_the_features_before_its_anchor_and_on_no_later_one() -> None:
    features, blocks = make_inputs()
    features.requires_grad_()
    hidden = run(make_drafter(), features, blocks)
    for row in range(2):
        for slot in range(3):
            (gradient,) = torch.autograd.grad(hidden[row, slot].sum(), features, retain_graph=True)
            used = gradient[row].abs().sum(dim=-1) > 0
            assert used.tolist() == [position < ANCHOR[row, slot] for position in range(12)]
            assert gradient[1 - row].abs().max() == 0


def test_decoding_a_block_gives_what_training_gave_for_its_anchor() -> None:
    drafter = make_drafter()
    features, blocks = make_inputs()
    trained = run(drafter, features, blocks)
    for row in range(2):
        for slot in range(3):
            anchor = int(ANCHOR[row, slot])
            if anchor == 0:
                continue
            known = features[row : row + 1, :anchor]  # all that decoding has
            drafted = drafter.draft(known, anchor, blocks[row : row + 1, slot])
            torch.testing.assert_close(drafted[0], trained[row, slot], atol=1e-5, rtol=1e-5)


def test_rows_of_unequal_length_may_be_drafted_together() -> None:
    drafter = make_drafter()
    features, blocks = make_inputs()
    anchors = torch.tensor([5, 8])
    together = drafter.draft(features, anchors, blocks[:, 1])
    for row in range(2):
        alone = drafter.draft(features[row : row + 1, : anchors[row]], int(anchors[row]), blocks[row : row + 1, 1])
        torch.testing.assert_close(together[row], alone[0], atol=1e-5, rtol=1e-5)


def test_a_packed_document_is_drafted_as_if_it_stood_alone() -> None:
    drafter = make_drafter()
    features, blocks = make_inputs()
    document = torch.tensor([[0] * 7 + [1] * 5])
    anchor = torch.tensor([[9]])
    position = torch.tensor([[*range(7), *range(5)]])
    mask = build_mask("sdpa", anchor, document.gather(1, anchor), document, 4)
    packed = drafter(features[:1], position, blocks[:1, :1], position.gather(1, anchor), mask)
    alone = drafter.draft(features[:1, 7:], 2, blocks[:1, 0])
    torch.testing.assert_close(packed[:, 0], alone, atol=1e-5, rtol=1e-5)


def test_parameter_names_are_those_that_servers_load() -> None:
    parts = [
        *(f"self_attn.{name}.weight" for name in ("q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm")),
        *(f"mlp.{name}.weight" for name in ("gate_proj", "up_proj", "down_proj")),
        "input_layernorm.weight",
        "post_attention_layernorm.weight",
    ]
    expected = {"fc.weight", "hidden_norm.weight", "norm.weight", *(f"layers.{i}.{p}" for i in range(2) for p in parts)}
    assert set(make_drafter().state_dict()) == expected


def test_rotation_turns_each_pair_by_position_times_its_frequency() -> None:
    drafter = make_drafter()
    cos, sin = drafter._rotation(torch.tensor([[0, 3]]))
    x = torch.zeros(1, 1, 2, 8)
    x[..., 1] = 1.0  # the second of four pairs is (1, 5)
    angle = 3 * 10_000 ** (-2 / 8)
    turned = rotate(x, cos, sin)
    torch.testing.assert_close(turned[0, 0, 0], x[0, 0, 0])
    expected = torch.zeros(8)
    expected[1], expected[5] = math.cos(angle), math.sin(angle)
    torch.testing.assert_close(turned[0, 0, 1], expected)


def test_initial_weights_follow_the_seed_alone() -> None:
    one, same, other = DFlashDrafter(SHAPE), DFlashDrafter(SHAPE), DFlashDrafter(SHAPE)
    one.initialise(0.02, seed=1)
    torch.manual_seed(99)
    same.initialise(0.02, seed=1)
    other.initialise(0.02, seed=2)
    assert torch.equal(one.fc.weight, same.fc.weight)
    assert not torch.equal(one.fc.weight, other.fc.weight)
    assert one.fc.weight.std().item() == pytest.approx(0.02, rel=0.1)


def test_the_shape_follows_the_target_unless_the_config_says_otherwise() -> None:
    target = SimpleNamespace(
        hidden_size=576,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        head_dim=None,
        intermediate_size=1536,
        rope_parameters={"rope_theta": 100_000},
        rms_norm_eps=1e-5,
    )
    config = DFlashConfig(model=ModelConfig(layers=3, target_layer_ids="", ffn=64))
    shape = drafter_shape(config, target)
    assert shape == DrafterShape(576, 3 * 576, 3, 9, 3, 64, 64, 8, 100_000.0, 1e-5)


def test_default_layer_ids_are_dflashs() -> None:
    assert default_layer_ids(36, 5) == (1, 9, 17, 25, 33)  # Qwen3-8B, as published
    assert default_layer_ids(36, 1) == (18,)
