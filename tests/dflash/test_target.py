"""The frozen target: which hidden states it hands out, documents that do not see each other, and its pre-training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from experiments.dflash import pretrain
from experiments.dflash.config import DFlashConfig, ModelConfig, TargetConfig
from experiments.dflash.corpus import Corpus, Document
from experiments.dflash.target import causal_document_mask, document_positions
from experiments.dflash.targets import load_target
from harness.errors import UsageError
from harness.run.events import Recorder
from tests.dflash.tiny_target import random_target

SMALL = TargetConfig(layers=3, hidden=16, heads=2, kv_heads=1, head_dim=8, ffn=24, steps=8, batch=2, sequence=24)
CONFIG = DFlashConfig(target=SMALL, model=ModelConfig(target_layer_ids="0,1"))
CORPUS = Corpus((Document("a", "def f(x):\n    return x\n" * 40),), (Document("b", "class A:\n    pass\n" * 20),))
SILENT = Recorder(None, 0.0)


def test_features_are_the_layers_outputs_side_by_side() -> None:
    target = random_target()
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    features, logits = target.features(ids, torch.zeros_like(ids))
    outputs: list[torch.Tensor] = []
    hook = target.model.model.layers[0].register_forward_hook(lambda _, __, output: outputs.append(output))
    with torch.no_grad():
        plain = target.model(input_ids=ids).logits
    hook.remove()
    torch.testing.assert_close(features, outputs[0])
    torch.testing.assert_close(logits, plain)
    assert not any(p.requires_grad for p in target.model.parameters())
    assert not target.model.training


def test_the_last_layer_is_refused_since_its_hidden_state_is_normed() -> None:
    with pytest.raises(ValueError, match="between 0 and 0"):
        replace(random_target(), layer_ids=(1,))


def test_packed_documents_are_what_each_is_alone() -> None:
    target = random_target()
    one, two = [3, 1, 4, 1], [5, 9, 2]
    packed, logits = target.features(torch.tensor([[*one, *two, 0, 0]]), torch.tensor([[0] * 4 + [1] * 3 + [-1] * 2]))
    for ids, span in ((one, slice(0, 4)), (two, slice(4, 7))):
        alone, own = target.features(torch.tensor([ids]), torch.zeros(1, len(ids), dtype=torch.long))
        torch.testing.assert_close(packed[:, span], alone)
        torch.testing.assert_close(logits[:, span], own)
    assert packed.isfinite().all()


def test_positions_and_mask_of_packed_rows_by_hand() -> None:
    document = torch.tensor([[0, 0, 1, 1, 1, -1]])
    assert document_positions(document).tolist() == [[0, 1, 0, 1, 2, 0]]
    assert causal_document_mask(document)[0].int().tolist() == [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [0, 0, 1, 0, 0, 0],
        [0, 0, 1, 1, 0, 0],
        [0, 0, 1, 1, 1, 0],
        [0, 0, 0, 0, 0, 1],
    ]


@pytest.fixture
def cached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("HARNESS_STATE", str(tmp_path))
    monkeypatch.setattr(pretrain, "code", lambda: CORPUS)
    return tmp_path / "models"


def test_the_tiny_target_is_trained_once_and_loaded_as_it_was(cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load_target(CONFIG, SILENT)
    monkeypatch.setattr(pretrain, "pretrain", lambda *_: pytest.fail("trained again"))
    again = load_target(CONFIG, SILENT)
    assert first.digest == again.digest
    assert first.layer_ids == (0, 1)
    for (name, a), (_, b) in zip(first.model.state_dict().items(), again.model.state_dict().items(), strict=True):
        assert torch.equal(a, b), name
    assert len([p for p in cached.iterdir() if not p.name.startswith(".")]) == 1


@pytest.mark.usefixtures("cached")
def test_another_setting_is_another_target_and_a_drafter_s_setting_is_not() -> None:
    first = load_target(CONFIG, SILENT)
    assert load_target(replace(CONFIG, target=replace(SMALL, lr=1e-3)), SILENT).digest != first.digest
    assert load_target(replace(CONFIG, model=ModelConfig(target_layer_ids="1")), SILENT).digest == first.digest


def test_pre_training_learns_reports_and_repeats() -> None:
    def losses(steps: int) -> list[float]:
        heard: list[float] = []
        pretrain.pretrain(replace(SMALL, steps=steps), CORPUS, lambda _, loss: heard.append(loss))
        return heard

    state = torch.get_rng_state()
    first = losses(60)
    assert torch.equal(torch.get_rng_state(), state)
    assert first == losses(60)
    assert len(first) == 60
    assert sum(first[-5:]) / 5 < first[0] - 1.5  # nats a byte


def test_an_interrupted_pre_training_leaves_nothing(cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(pretrain, "pretrain", interrupt)
        with pytest.raises(KeyboardInterrupt):
            load_target(CONFIG, SILENT)
    assert all(p.name.startswith(".") for p in cached.iterdir())
    assert load_target(CONFIG, SILENT).parameters > 0


def test_reserved_bytes_are_in_no_utf8_text() -> None:
    assert pretrain.MASK in pretrain.RESERVED
    everything = "".join(map(chr, [*range(1, 0xD800, 97), *range(0xE000, 0x110000, 997), 0x10FFFF])).encode()
    assert not set(everything) & set(pretrain.RESERVED)


def test_a_target_that_needs_a_machine_is_refused_in_a_line() -> None:
    config = DFlashConfig(target=TargetConfig(kind="qwen3.6-27b"), model=ModelConfig(target_layer_ids=""))
    with pytest.raises(UsageError, match=r"qwen3\.6-27b can only be planned here"):
        load_target(config, SILENT)
