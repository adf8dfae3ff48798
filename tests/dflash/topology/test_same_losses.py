"""One seed and data give the same losses whatever the topology: to the bit with one drafter, else within rounding."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
import torch

from experiments.dflash.config import DFlashConfig
from experiments.dflash.data import Batch
from experiments.dflash.layout import Share, TopologyConfig
from experiments.dflash.step import Features, TargetSide
from experiments.dflash.topology.crew import crew
from experiments.dflash.train import settled
from harness.run.events import Recorder
from tests.dflash.tiny_target import make_dataset, random_target
from tests.dflash.topology.crews import CONFIG, with_threads

ROOT = Path(__file__).resolve().parents[3]


def losses(folder: Path, config: DFlashConfig) -> dict[str, list[tuple[float, float]]]:
    """Of each step of a whole training, loss and gradient norm by device; the weights are kept in ``folder``."""
    folder.mkdir()
    recorder = Recorder(folder, 0.0)
    team = crew(settled(config)[0], recorder)
    team.board(random_target(), make_dataset(6))
    assert team.train() == ""
    torch.save(team.drafter.state_dict(), folder / "weights.pt")
    return losses_in(folder)


def losses_in(folder: Path) -> dict[str, list[tuple[float, float]]]:
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


def test_threads_that_share_their_only_device_give_the_bits_of_inline(tmp_path: Path) -> None:
    config = replace(CONFIG, topology=TopologyConfig("threads", targets="cpu:0", drafters="cpu:0"))
    assert list(losses(tmp_path / "shared", config).values()) == list(losses(tmp_path / "inline", CONFIG).values())


def test_the_order_of_arrival_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look, pause = TargetSide.look, random.Random(0)

    def late(side: TargetSide, batch: Batch, share: Share) -> Features:
        time.sleep(pause.random() * 0.02)
        return look(side, batch, share)

    in_time = losses(tmp_path / "in-time", with_threads(5, 3))
    monkeypatch.setattr(TargetSide, "look", late)
    for repeat in range(3):
        assert losses(tmp_path / str(repeat), with_threads(5, 3)) == in_time


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


COMPILED = """
import sys
from dataclasses import replace
from pathlib import Path
from tests.dflash.topology.crews import CONFIG, with_threads
from tests.dflash.topology.test_same_losses import losses
folder, backend, targets, drafters = sys.argv[1:]
config = replace(CONFIG, compile=backend, train=replace(CONFIG.train, feature_noise=0.1))
losses(Path(folder), with_threads(int(targets), int(drafters), config) if int(targets) else config)
"""


def compiled(folder: Path, backend: str, targets: int, drafters: int) -> dict[str, list[tuple[float, float]]]:
    """``losses`` of a compiled training in a process of its own: a segfault there is a failed test here."""
    command = [sys.executable, "-c", COMPILED, str(folder), backend, str(targets), str(drafters)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TORCHINDUCTOR_CACHE_DIR": str(folder.parent / "cache")}
    done = subprocess.run(command, check=False, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return losses_in(folder)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_under_the_guard_too(tmp_path: Path, backend: str) -> None:
    (alone,) = compiled(tmp_path / "inline", backend, 0, 0).values()
    for targets in (1, 3):
        (same,) = compiled(tmp_path / f"{targets}-1", backend, targets, 1).values()
        assert same == alone
        assert torch.equal(weights(tmp_path / f"{targets}-1"), weights(tmp_path / "inline"))
    several = [compiled(tmp_path / f"{targets}-3", backend, targets, 3) for targets in (1, 5)]
    assert [losses for run in several for losses in run.values()] == [next(iter(several[0].values()))] * 6
    torch.testing.assert_close(torch.tensor(several[0]["cpu:1"]), torch.tensor(alone), rtol=1e-4, atol=1e-5)
    lines = (tmp_path / "5-3" / "events.jsonl").read_text("utf-8").splitlines()
    compiles = [event for event in map(json.loads, lines) if event["kind"] == "compile"]
    assert {event["step"] for event in compiles} == {1}  # fixed shapes: never again
    assert sum("forward" in event["name"] for event in compiles) == 3  # a function for each thread
