"""Trainings of a small random target's drafter in any topology, for tests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from experiments.dflash.config import DFlashConfig, ModelConfig, TrainConfig
from experiments.dflash.layout import TopologyConfig
from experiments.dflash.topology.threads import ThreadCrew
from experiments.dflash.train import settled
from harness.run.events import Recorder
from tests.dflash.tiny_target import make_dataset, random_target

CONFIG = DFlashConfig(
    model=ModelConfig(layers=1, block_size=4, target_layer_ids="0"),
    train=TrainConfig(steps=5, batch=6, anchors=3, chunk_blocks=2),
    compile="none",
    threads=1,
)


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
    crew.board(random_target(), make_dataset(rows_a_step=6))
    return crew
