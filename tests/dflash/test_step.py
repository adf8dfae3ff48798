"""Whole steps on a small random target: repeatable to the bit, guarded, compiled once, and worth taking."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from experiments.dflash.config import DFlashConfig, ModelConfig, TrainConfig
from experiments.dflash.data import Dataset
from experiments.dflash.loops import GIVE_UP
from experiments.dflash.loss import Loss, block_loss
from experiments.dflash.optim import guarded_step
from experiments.dflash.step import fresh_drafter, row_generator
from experiments.dflash.topology.inline import InlineCrew
from experiments.dflash.train import save_drafter, settled
from harness.run.events import Recorder
from tests.dflash.tiny_target import make_dataset, random_target

CPU = torch.device("cpu")
ROWS = 2  # a step
CONFIG = DFlashConfig(
    model=ModelConfig(layers=2, block_size=4, target_layer_ids="0"),
    train=TrainConfig(steps=6, batch=2, anchors=3, chunk_blocks=2),
    compile="none",
    device="cpu",
    threads=1,
)


def recorded(tmp_path: Path) -> Recorder:
    tmp_path.mkdir(exist_ok=True)
    return Recorder(tmp_path, 0.0)


def events(tmp_path: Path, kind: str) -> list[dict[str, Any]]:
    lines = (tmp_path / "events.jsonl").read_text("utf-8").splitlines()
    return [event for event in map(json.loads, lines) if event["kind"] == kind]


def trained(config: DFlashConfig, recorder: Recorder, dataset: Dataset | None = None) -> tuple[InlineCrew, str]:
    """A whole training of a random target's drafter on one device, and why it was given up."""
    crew = InlineCrew(settled(config)[0], recorder)
    crew.board(random_target(), dataset or make_dataset(ROWS))
    return crew, crew.train()


def run(tmp_path: Path, config: DFlashConfig = CONFIG, dataset: Dataset | None = None) -> tuple[InlineCrew, str]:
    return trained(config, recorded(tmp_path), dataset)


def losses(tmp_path: Path) -> list[float]:
    return [event["metrics"]["loss"] for event in events(tmp_path, "step")]


@pytest.mark.parametrize("labels", ["target", "ground_truth"])
@pytest.mark.parametrize("kind", ["decay", "dpace"])
def test_one_seed_gives_the_same_losses_and_weights_to_the_bit(
    tmp_path: Path, kind: Literal["decay", "dpace"], labels: Literal["target", "ground_truth"]
) -> None:
    config = replace(CONFIG, train=replace(CONFIG.train, loss=kind, labels=labels, feature_noise=0.1))
    one, _ = run(tmp_path / "one", config)
    torch.manual_seed(5)  # the global state must not matter
    two, _ = run(tmp_path / "two", config)
    run(tmp_path / "other", replace(config, train=replace(config.train, seed=1)))
    assert losses(tmp_path / "one") == losses(tmp_path / "two")
    assert losses(tmp_path / "one") != losses(tmp_path / "other")
    for name, weight in one.drafter.state_dict().items():
        assert torch.equal(weight, two.drafter.state_dict()[name])


def test_training_learns_and_leaves_the_target_alone(tmp_path: Path) -> None:
    config = replace(CONFIG, train=replace(CONFIG.train, steps=80, lr=1e-2))
    before = {name: weight.clone() for name, weight in random_target().model.state_dict().items()}
    trainer, given_up = run(tmp_path, config)
    assert given_up == ""
    first, last = losses(tmp_path)[:8], losses(tmp_path)[-8:]
    assert sum(last) < 0.7 * sum(first)
    for name, weight in trainer.target.model.state_dict().items():
        assert torch.equal(weight, before[name])


def test_a_step_records_its_tokens_its_padding_and_phases_that_sum_to_it(tmp_path: Path) -> None:
    run(tmp_path)
    steps = events(tmp_path, "step")
    assert [event["step"] for event in steps] == [1, 2, 3, 4, 5, 6]
    for event in steps:
        assert (event["tokens"], event["padding"]) == (20, 4)
        assert {"data", "target", "forward", "backward", "optimizer", "other"} == set(event["phases"])
        assert sum(event["phases"].values()) == pytest.approx(event["seconds"], abs=1e-6)
        assert event["metrics"]["blocks"] == 6


def break_loss_of(monkeypatch: pytest.MonkeyPatch, calls: set[int]) -> None:
    """Let the loss of the n-th steps come out as NaN."""
    count = 0

    def broken(*arguments: Any) -> Loss:
        nonlocal count
        count += 1
        loss = block_loss(*arguments)
        return replace(loss, total=loss.total * torch.nan) if count in calls else loss

    monkeypatch.setattr("experiments.dflash.step.block_loss", broken)


def test_a_nan_moves_no_weight_is_counted_and_its_batch_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_loss_of(monkeypatch, {3})
    weights: dict[int, Tensor] = {}

    def spy(optimizer: torch.optim.AdamW, *rest: Any) -> tuple[Tensor, Tensor]:
        result = guarded_step(optimizer, *rest)
        weights[len(weights) + 1] = torch.cat([p.detach().flatten() for p in optimizer.param_groups[0]["params"]])
        return result

    monkeypatch.setattr("experiments.dflash.step.guarded_step", spy)
    _, given_up = run(tmp_path)
    assert given_up == ""
    assert torch.equal(weights[3], weights[2])
    assert not torch.equal(weights[4], weights[3])
    steps = events(tmp_path, "step")
    assert [event["metrics"]["skipped"] for event in steps] == [0, 0, 1, 1, 1, 1]
    assert steps[2]["tokens"] == 0  # no optimizer step consumed them
    (note,) = events(tmp_path, "note")
    assert "step 3 was skipped" in note["text"]
    assert note["level"] == "warning"
    kept = load_file(tmp_path / "artifacts" / "nonfinite-step-000003-drafter-0.safetensors")
    assert torch.equal(kept["ids"], make_dataset(ROWS).batch(2).ids_BS)
    assert kept["anchor"].shape == (2, 3)


def test_a_run_that_only_skips_is_given_up_and_keeps_few_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_loss_of(monkeypatch, set(range(1000)))
    _, given_up = run(tmp_path, replace(CONFIG, train=replace(CONFIG.train, steps=100)))
    assert given_up == f"{GIVE_UP} steps in a row were skipped, the last because the loss or a gradient is not finite"
    assert len(events(tmp_path, "step")) == GIVE_UP
    assert len(list((tmp_path / "artifacts").iterdir())) == 3


def test_a_batch_without_an_anchor_is_skipped_and_counted(tmp_path: Path) -> None:
    trainer, _ = run(tmp_path, dataset=make_dataset(ROWS, learn=False))
    steps = events(tmp_path, "step")
    assert [event["metrics"]["starved"] for event in steps] == [2] * 6
    assert steps[-1]["metrics"]["skipped"] == 6
    fresh = fresh_drafter(CONFIG, random_target(), CPU).state_dict()
    assert all(torch.equal(weight, fresh[name]) for name, weight in trainer.drafter.state_dict().items())
    assert not (tmp_path / "artifacts").exists()


def test_a_compiled_training_compiles_in_its_first_step_alone_and_learns_the_same(tmp_path: Path) -> None:
    torch.compiler.reset()
    run(tmp_path / "plain")
    run(tmp_path / "compiled", replace(CONFIG, compile="aot_eager"))
    torch.testing.assert_close(losses(tmp_path / "compiled"), losses(tmp_path / "plain"), atol=1e-5, rtol=1e-5)
    compiled = events(tmp_path / "compiled", "compile")
    assert compiled[0]["name"].endswith("/0 forward")
    assert [event["step"] for event in compiled] == [1] * len(compiled)  # fixed shapes: never again
    assert all(event["reason"] == "" for event in compiled)
    first, *later = events(tmp_path / "compiled", "step")
    assert first["phases"]["compile"] == pytest.approx(sum(event["seconds"] for event in compiled), rel=1e-3)
    assert all("compile" not in event["phases"] for event in later)
    assert not events(tmp_path / "plain", "compile")


def test_generators_differ_by_seed_step_and_row() -> None:
    named = itertools.product(range(3), range(1, 4), range(3))
    assert len({float(torch.rand((), generator=row_generator(*names, CPU))) for names in named}) == 27


def test_the_saved_drafter_holds_its_weights_and_shape(tmp_path: Path) -> None:
    drafter = fresh_drafter(CONFIG, random_target(), CPU)
    save_drafter(drafter, recorded(tmp_path), 6)
    saved = load_file(tmp_path / "artifacts" / "drafter.safetensors")
    assert {name: tensor.shape for name, tensor in saved.items()} == {
        name: tensor.shape for name, tensor in drafter.state_dict().items()
    }
    assert torch.equal(saved["fc.weight"], drafter.fc.weight)
    (event,) = events(tmp_path, "checkpoint")
    assert (event["path"], event["step"]) == ("artifacts/drafter.safetensors", 6)
