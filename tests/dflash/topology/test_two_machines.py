"""Two agents on this machine as two machines: the run's own, and a torchrun that knows only where the first one is."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from experiments.dflash.config import DataConfig, DFlashConfig, EvalConfig, TargetConfig, TrainConfig
from experiments.dflash.layout import TopologyConfig
from harness.config import flatten
from harness.run import watchdog

ROOT = Path(__file__).resolve().parents[3]
SMALL = DFlashConfig(
    target=TargetConfig(steps=3, hidden=32, head_dim=8, ffn=64, sequence=48),
    data=DataConfig(sequences=32, length=48, prompt=16),
    train=TrainConfig(steps=6, batch=4, anchors=4),
    eval=EvalConfig(prompts=2, prompt_tokens=16, new_tokens=8),
    compile="none",
)


def begin(folder: Path, command: list[str], run: Path | None = None) -> subprocess.Popen[bytes]:
    """``command`` with its output in ``folder``; part of the run in ``run``, or of none."""
    own = {"HARNESS_STATE": str(folder / "state"), "PYTHONPATH": str(ROOT)}
    if run is not None:
        own |= {"HARNESS_RUN": str(run), "HARNESS_T0": repr(time.monotonic())}
    with (folder / "output.log").open("ab") as output:
        return subprocess.Popen(command, cwd=ROOT, env={**os.environ, **own}, stdout=output, stderr=output)


def losses(run: Path) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for event in map(json.loads, (run / "events.jsonl").read_text("utf-8").splitlines()):
        if event["kind"] == "step" and event["role"] == "drafter":
            found.setdefault(event["device"], []).append(event["metrics"]["loss"])
    return found


def asked(folder: Path, topology: TopologyConfig) -> Path:
    """A run folder that asks for ``topology``."""
    folder.mkdir()
    (folder / "spec.json").write_text(json.dumps({"config": flatten(replace(SMALL, topology=topology))}))
    return folder


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("localhost", 0))
        port: int = listening.getsockname()[1]
    return port


TRAIN = [sys.executable, "-m", "experiments.dflash.train"]


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("HARNESS_DATA"), reason="the tiny target is made from the data environment")
def test_two_machines_come_to_the_losses_of_one(tmp_path: Path) -> None:
    port = free_port()
    two = TopologyConfig("processes", "cpu:0", "cpu:1", nodes=2, rendezvous=f"localhost:{port}")
    run = asked(tmp_path / "two", two)
    first = begin(tmp_path, TRAIN, run)
    nodes = ["--nnodes", "2", "--node-rank", "1", "--nproc-per-node", "2"]
    where = ["--master-addr", "localhost", "--master-port", str(port)]
    torchrun = [sys.executable, "-m", "torch.distributed.run", *nodes, *where, *TRAIN[1:]]
    second = begin(tmp_path, torchrun)
    codes = first.wait(400), second.wait(400)
    assert codes == (0, 0), (tmp_path / "output.log").read_text()
    found = losses(run)
    assert found.keys() == {"cpu:1", "cpu:1@2"}
    assert found["cpu:1"] == found["cpu:1@2"]
    assert (run / "artifacts" / "drafter.safetensors").exists()
    assert watchdog.members(watchdog.NO_SESSION, str(run)) == []

    alone = asked(tmp_path / "one", TopologyConfig())
    assert begin(tmp_path, TRAIN, alone).wait(400) == 0
    (expected,) = losses(alone).values()
    torch.testing.assert_close(torch.tensor(found["cpu:1"]), torch.tensor(expected), rtol=1e-4, atol=1e-5)
