"""Ranks of a training of a small random target's drafter, forked from a process that has loaded everything once."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # its own stub does not re-export it

from experiments.dflash.config import DFlashConfig
from experiments.dflash.data import Dataset
from experiments.dflash.layout import TopologyConfig, seats_of_a_machine
from experiments.dflash.topology.crew import crew
from experiments.dflash.topology.processes import ProcessCrew
from experiments.dflash.topology.worker import work
from experiments.dflash.train import settled
from harness.config import flatten
from harness.run.events import Recorder
from tests.dflash.tiny_target import make_dataset, random_target

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([__name__])


six_rows = partial(make_dataset, 6)


def with_processes(targets: int, drafters: int, config: DFlashConfig, queue: int = 2) -> DFlashConfig:
    """``config`` on simulated devices: cpu:0.. for the targets, and those after them for the drafters."""
    names = [f"cpu:{number}" for number in range(targets + drafters)]
    topology = TopologyConfig("processes", ",".join(names[:targets]), ",".join(names[targets:]), queue)
    return replace(config, topology=topology)


@dataclass(frozen=True)
class Ended:
    """What is left of a training: each rank's exit code and word, the recorded events, rank 0's weights."""

    codes: list[int | None]
    words: list[dict[str, Any]]
    events: list[dict[str, Any]]
    weights: dict[str, torch.Tensor] | None

    def losses(self) -> dict[str, list[tuple[float, float]]]:
        """Loss and gradient norm of each step, by device."""
        found: dict[str, list[tuple[float, float]]] = {}
        for event in self.events:
            if event["kind"] == "step" and event["role"] == "drafter":
                found.setdefault(event["device"], []).append((event["metrics"]["loss"], event["metrics"]["grad_norm"]))
        return found


Change = Callable[[ProcessCrew], None]


def trained(
    folder: Path,
    config: DFlashConfig,
    dataset: Callable[[], Dataset] = six_rows,
    change: Change | None = None,
    recorded: int | None = None,
) -> Ended:
    """All ranks of ``config``, to their end. ``change`` is done to each crew that has boarded.

    ``recorded``: as many ranks as stand on the machine where the run is; None for all of them.
    """
    folder.mkdir()
    (folder / "spec.json").write_text(json.dumps({"config": flatten(config)}))
    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    count = seats_of_a_machine(config.topology) * config.topology.nodes
    here = count if recorded is None else recorded
    arguments = [(rank, count, here, store.port, folder, dataset, change) for rank in range(count)]
    ranks = [FORKS.Process(target=_rank, args=each, daemon=True) for each in arguments]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(300)
        rank.kill()
    errors = [folder / f"error-{rank}.json" for rank in range(count)]
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text("utf-8").splitlines()]
    weights = folder / "weights.pt"
    return Ended(
        [rank.exitcode for rank in ranks],
        [json.loads(path.read_text()) if path.exists() else {} for path in errors],
        events,
        torch.load(weights) if weights.exists() else None,
    )


def _rank(
    rank: int, ranks: int, here: int, port: int, folder: Path, dataset: Callable[[], Dataset], change: Change | None
) -> None:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(here)}
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    os.environ |= {"TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_ERROR_FILE": str(folder / f"error-{rank}.json")}
    sys.stderr = (folder / f"stderr-{rank}.log").open("w")

    def run(config: DFlashConfig, recorder: Recorder) -> str:
        team = crew(settled(config)[0], recorder)
        assert isinstance(team, ProcessCrew)
        team.board(team.make(random_target), team.make(dataset))
        if change:
            change(team)
        given_up = team.train()
        if team.leads:
            torch.save(team.drafter.state_dict(), folder / "weights.pt")
        return given_up

    work(run, Recorder(folder if rank < here else None, 0.0))
