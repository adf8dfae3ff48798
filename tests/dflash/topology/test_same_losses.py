"""One seed and data give the same losses whatever the topology: to the bit with one drafter, else within rounding."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
import torch

from experiments.dflash.config import DFlashConfig
from experiments.dflash.topology.crew import crew
from experiments.dflash.train import settled
from harness.run.events import Recorder
from tests.dflash.tiny_target import random_target
from tests.dflash.topology.crews import CONFIG, make_dataset, with_threads


@pytest.fixture(autouse=True)
def _torch_as_before() -> Iterator[None]:
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(deterministic)


def losses(folder: Path, config: DFlashConfig) -> dict[str, list[tuple[float, float]]]:
    """Loss and gradient norm of each step, by device, and the trained weights' bits."""
    folder.mkdir()
    recorder = Recorder(folder, 0.0)
    with crew(settled(config)[0], recorder) as team:
        team.board(random_target(), make_dataset())
        assert team.train() == ""
        torch.save(team.drafter.state_dict(), folder / "weights.pt")
    found: dict[str, list[tuple[float, float]]] = {}
    for event in map(json.loads, (folder / "events.jsonl").read_text("utf-8").splitlines()):
        if event["kind"] == "step" and event["role"] == "drafter":
            found.setdefault(event["device"], []).append((event["metrics"]["loss"], event["metrics"]["grad_norm"]))
    return found


def weights(folder: Path) -> torch.Tensor:
    state = torch.load(folder / "weights.pt")
    return torch.cat([state[name].flatten() for name in sorted(state)])


@pytest.mark.parametrize("labels", ["target", "ground_truth"])
@pytest.mark.parametrize("kind", ["decay", "dpace"])
def test_with_one_drafter_any_number_of_target_threads_gives_the_bits_of_inline(
    tmp_path: Path, kind: Literal["decay", "dpace"], labels: Literal["target", "ground_truth"]
) -> None:
    config = replace(CONFIG, train=replace(CONFIG.train, loss=kind, labels=labels, feature_noise=0.1))
    (alone,) = losses(tmp_path / "inline", config).values()
    assert len(set(alone)) == 5
    for targets in (1, 2, 3, 5):
        folder = tmp_path / f"threads-{targets}"
        (same,) = losses(folder, with_threads(targets, 1, config)).values()
        assert same == alone
        assert torch.equal(weights(folder), weights(tmp_path / "inline"))


@pytest.mark.parametrize("drafters", [2, 3])
def test_several_drafters_come_near_and_to_the_same_bits_for_any_number_of_targets_and_any_queue(
    tmp_path: Path, drafters: int
) -> None:
    config = replace(CONFIG, train=replace(CONFIG.train, feature_noise=0.1))
    (alone,) = losses(tmp_path / "inline", config).values()
    seen = []
    for targets, queue in ((1, 2), (2, 1), (5, 3), (5, 1)):
        folder = tmp_path / f"{targets}-{queue}"
        by_device = losses(folder, with_threads(targets, drafters, config, queue))
        assert len(by_device) == drafters
        assert len(set(map(tuple, by_device.values()))) == 1  # all drafters report one loss
        seen.append((next(iter(by_device.values())), weights(folder).tolist()))
    assert seen[0] == seen[1] == seen[2] == seen[3]
    near = torch.tensor(seen[0][0])
    torch.testing.assert_close(near, torch.tensor(alone), rtol=1e-4, atol=1e-5)
