"""Trainings of a small random target's drafter in any topology, for tests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from experiments.dflash.config import DFlashConfig, ModelConfig, TrainConfig
from experiments.dflash.data import Dataset
from experiments.dflash.layout import TopologyConfig
from experiments.dflash.topology.threads import ThreadCrew
from experiments.dflash.train import settled
from harness.run.events import Recorder
from tests.dflash.tiny_target import VOCAB, random_target

CONFIG = DFlashConfig(
    model=ModelConfig(layers=1, block_size=4, target_layer_ids="0"),
    train=TrainConfig(steps=5, batch=6, anchors=3, chunk_blocks=2),
    compile="none",
    threads=1,
)


def make_dataset(rows_a_step: int = 6) -> Dataset:
    """Eight rows of twelve: two documents each, two places of padding at the end."""
    ids = torch.randint(1, VOCAB - 1, (8, 12), generator=torch.Generator().manual_seed(0))
    document = torch.tensor([[0] * 6 + [1] * 4 + [-1] * 2]).repeat(8, 1)
    return Dataset(ids, document >= 0, document, rows_a_step, seed=0, digest="d")


def with_threads(targets: int, drafters: int, config: DFlashConfig = CONFIG, queue: int = 2) -> DFlashConfig:
    """``config`` on simulated devices: cpu:0.. for the targets, and those after them for the drafters."""
    names = [f"cpu:{number}" for number in range(targets + drafters)]
    topology = TopologyConfig("threads", ",".join(names[:targets]), ",".join(names[targets:]), queue)
    return replace(config, topology=topology)


def boarded(config: DFlashConfig, folder: Path) -> ThreadCrew:
    """A thread crew that is ready to train, recording in ``folder``."""
    folder.mkdir(exist_ok=True)
    recorder = Recorder(folder, 0.0)
    crew = ThreadCrew(settled(config)[0], recorder)
    crew.board(random_target(), make_dataset())
    return crew
