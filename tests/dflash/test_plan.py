"""The memory plan against figures worked out by hand, against real modules, and against what autograd really keeps."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from experiments.dflash import plan as module
from experiments.dflash.attention import build_mask
from experiments.dflash.config import DataConfig, DFlashConfig, TrainConfig
from experiments.dflash.model import DFlashDrafter
from experiments.dflash.plan import dense_scores, drafter_activations, main, plan, shapes
from experiments.recipes import RECIPES
from harness.config import unflatten
from harness.records import RunSpec


def planned(recipe: str, **changes: object) -> tuple[dict[str, dict[str, object]], list[str]]:
    spec = RECIPES[recipe]()
    config = replace(unflatten(DFlashConfig, spec.config), **changes)  # type: ignore[arg-type]
    found = plan(config, spec)
    return {device["device"]: device for device in found["devices"]}, found["notes"]


def test_the_27b_target_by_hand() -> None:
    """Each kind of layer from the shapes of its matrices; 64 layers, 48 of them linear; and the two vocabularies."""
    hidden, ffn, vocab = 5120, 17408, 248320
    mlp = 3 * hidden * ffn
    attention = hidden * (2 * 24 * 256) + 2 * hidden * (4 * 256) + 24 * 256 * hidden + 2 * 256  # the query has a gate
    key, value = 16 * 128, 48 * 128
    convolved = 2 * key + value
    linear = hidden * (convolved + value + 2 * 48) + 4 * convolved + 2 * 48 + 128 + value * hidden
    layers = 64 * (mlp + 2 * hidden) + 16 * attention + 48 * linear
    devices, notes = planned("qwen3_6_27b_8gpu")
    target = devices["cuda:0"]
    assert target["parameters"] == layers + 2 * vocab * hidden + hidden == 26_895_998_464
    assert target["weights_bytes"] == 2 * 26_895_998_464  # 53.8 GB in bf16: one replica fits a card of 96
    assert target["capacity_bytes"] == 96 * 2**30
    assert any("26.896 B parameters, 53.79 GB as bf16" in note for note in notes)


def test_the_box_has_five_targets_and_three_drafters_and_they_fit() -> None:
    devices, notes = planned("qwen3_6_27b_8gpu")
    assert [d["role"] for d in devices.values()] == ["target"] * 5 + ["drafter"] * 3
    for device in devices.values():
        parts = [v for k, v in device.items() if k.endswith("_bytes") and k not in ("total_bytes", "capacity_bytes")]
        assert device["total_bytes"] == sum(parts)  # type: ignore[arg-type]
        assert device["total_bytes"] < device["capacity_bytes"]  # type: ignore[operator]
    assert not [note for note in notes if note.startswith("WARNING")]
    drafter = devices["cuda:5"]
    assert drafter["optimizer_bytes"] == 8 * drafter["parameters"]  # type: ignore[operator]
    assert drafter["gradients_bytes"] == 4 * drafter["parameters"]  # type: ignore[operator]


def test_what_does_not_fit_and_dense_attention_are_warned_of() -> None:
    _, notes = planned("qwen3_6_27b_8gpu", attention="sdpa", train=TrainConfig(batch=16, anchors=1024))
    assert any(note.startswith("WARNING: dense attention takes up to") for note in notes)
    assert any(note.startswith("WARNING: cuda:5 needs") and "lower train.batch" in note for note in notes)


def test_dense_scores_by_hand() -> None:
    config = DFlashConfig(data=DataConfig(length=100), train=TrainConfig(batch=3, anchors=10))
    assert dense_scores(shapes(config)) == 4 * 3 * 4 * 80 * 180  # bytes, rows, heads, queries, keys


def test_the_targets_as_their_own_classes_count_them() -> None:
    devices, _ = planned("smollm2")
    drafter = shapes(unflatten(DFlashConfig, RECIPES["smollm2"]().config)).drafter_parameters
    assert devices["cpu"]["parameters"] == 134_515_008 + drafter
    tiny = shapes(DFlashConfig())
    layer = 3 * 128 * 384 + 128 * (128 + 2 * 64) + 128 * 128 + 2 * 32 + 2 * 128
    assert tiny.target_parameters == 4 * layer + 2 * 256 * 128 + 128


@pytest.mark.parametrize("layers", [1, 3])
def test_activations_are_what_autograd_keeps(layers: int) -> None:
    """Within a fifth, of the tensors that a real forward pass saves for its backward pass (the mask left out)."""
    config = DFlashConfig(data=DataConfig(length=64, prompt=16), train=TrainConfig(batch=2, anchors=8))
    config = replace(config, model=replace(config.model, layers=layers))
    s = shapes(config)
    drafter = DFlashDrafter(s.drafter)
    weights = {p.untyped_storage().data_ptr() for p in drafter.parameters()}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if tensor.dtype == torch.float32 and storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    document = torch.zeros(2, 64, dtype=torch.long)
    anchors = torch.arange(8).expand(2, 8) * 7 + 1
    mask = build_mask("sdpa", anchors, torch.zeros_like(anchors), document, 8)
    position = torch.arange(64).expand(2, 64)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = drafter(torch.randn(2, 64, s.drafter.features), position, torch.randn(2, 8, 8, 128), anchors, mask)
    features = 2 * 64 * s.drafter.features * 4
    assert out.requires_grad
    assert sum(kept.values()) - features == pytest.approx(drafter_activations(s), rel=0.2)


def test_the_command_reads_a_spec_and_says_what_is_wrong_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(RECIPES["tiny"]().to_json()))
    assert main([str(path)]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [d["role"] for d in printed["devices"]] == ["target+drafter"]
    assert printed["devices"][0]["capacity_bytes"] > 2**30
    path.write_text(json.dumps(RunSpec("tiny", "cpu", (), {"nonsense": 1}).to_json()))
    assert main([str(path)]) == 2
    assert capsys.readouterr().err.startswith("error: the settings of DFlashConfig do not fit")
    assert module.capacity("cuda:63", "a card nobody knows") is None
