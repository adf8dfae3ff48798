"""Checks of what a GPU runs, for any device: tests/gpu calls them with a GPU, test_on_device.py with the CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from experiments.dflash.attention import Attention, attend, build_mask
from experiments.dflash.compiling import CompileWatch, compile_forward
from experiments.dflash.config import DFlashConfig, ModelConfig, TrainConfig
from experiments.dflash.step import Features
from experiments.dflash.topology.crew import crew
from experiments.dflash.topology.travel import Courier, CudaRuntime
from experiments.dflash.train import settled
from harness.run.events import Recorder
from tests.dflash.tiny_target import make_dataset, random_target

ROOT = Path(__file__).resolve().parents[2]

CONFIG = DFlashConfig(
    model=ModelConfig(layers=1, block_size=4, target_layer_ids="0", heads=2, kv_heads=1, head_dim=16),
    train=TrainConfig(steps=6, batch=2, anchors=3, chunk_blocks=2),
    compile="none",
)
"""head_dim: flex_attention's kernel wants at least 16."""


def trained(device: str, folder: Path, config: DFlashConfig = CONFIG) -> list[dict[str, Any]]:
    """The events of a whole training, on ``device`` if it is inline."""
    folder.mkdir()
    config = replace(config, device=device) if config.topology.kind == "inline" else config
    team = crew(settled(config)[0], Recorder(folder, 0.0))
    team.board(random_target(), make_dataset(2))
    assert team.train() == ""
    return read(folder)


def read(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "events.jsonl").read_text("utf-8").splitlines()]


def check_losses_against_the_cpu(device: str, folder: Path, config: DFlashConfig = CONFIG) -> None:
    """A training as ``config`` has it learns what the CPU's does, uncompiled and with SDPA, within rounding."""
    here, there = (
        [event["metrics"]["loss"] for event in events if event["kind"] == "step" and event["role"] == "drafter"]
        for events in (trained(device, folder / "here", config), trained("cpu", folder / "cpu"))
    )
    assert len(set(there)) == 6
    assert here == pytest.approx(there, rel=1e-3)


def check_phases_sum_to_the_step(device: str, folder: Path) -> None:
    """The phases, on whatever clock, are the step: the device's clock and the host's differ by little."""
    steps = [event for event in trained(device, folder / "run") if event["kind"] == "step"]
    assert len(steps) == 6
    for event in steps:
        assert {"data", "target", "forward", "backward", "optimizer"} <= set(event["phases"])
        assert all(event["phases"][name] > 0 for name in ("target", "forward", "backward", "optimizer"))
        assert sum(event["phases"].values()) == pytest.approx(event["seconds"], rel=0.02, abs=1e-3)


def check_flex_equals_dense(device: str, backward: bool) -> None:
    """Two rows of several documents, under the block mask made on ``device`` and under the dense one.

    ``backward``: also the gradients; flex_attention has none on the CPU.
    """
    document = torch.tensor([[0] * 70 + [1] * 80 + [-1] * 50, [0] * 200], device=device)
    anchor = torch.tensor([[5, 69, 75, 140, 0], [1, 60, 130, 180, 199]], device=device)
    documents, queries, keys = document.gather(1, anchor), 5 * 8, 200 + 5 * 8
    dice = torch.Generator().manual_seed(0)
    sizes = [(2, 4, queries, 32), (2, 2, keys, 32), (2, 2, keys, 32)]
    inputs = [torch.randn(size, generator=dice).to(device).requires_grad_(backward) for size in sizes]
    query, key, value = inputs
    kinds: tuple[Attention, ...] = ("flex", "sdpa")
    masks = [build_mask(kind, anchor, documents, document, 8) for kind in kinds]
    outs = [attend(query, key, value, mask) for mask in masks]
    torch.testing.assert_close(*outs, atol=2e-3, rtol=2e-3)
    if backward:
        weight = torch.randn(outs[0].shape, generator=dice).to(device)
        found = [torch.autograd.grad((out * weight).sum(), inputs) for out in outs]
        for flex, dense in zip(*found, strict=True):
            torch.testing.assert_close(flex, dense, atol=5e-3, rtol=5e-3)


class NoPeers(CudaRuntime):
    """torch.cuda where no GPU reaches another's memory: features go through pinned host buffers."""

    def peers(self, one: torch.device, other: torch.device) -> bool:  # noqa: ARG002
        return False


def check_travel(source: torch.device, device: torch.device, runtime: CudaRuntime) -> None:
    """Shares arrive whole and in order while the source is busy and both sides reuse their memory."""
    courier = Courier(source, device, 2, runtime)
    busy = torch.randn(512, 512, device=source)
    reader = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
    for number in range(20):
        for _ in range(20):
            busy = torch.tanh(busy @ busy)  # the share below is made well after it has been queued
        zero = busy.sum().to(torch.float32) * 0
        made = Features(zero + torch.full((2, 256, 64), float(number), device=source), torch.full((2, 256), number))
        made = Features(made.features_BSF, made.label_BS.to(source))
        parcel = courier.send(made)
        del made
        torch.full((2, 256, 64), -9.0, device=source)  # takes the memory, if it was given back too early
        with torch.cuda.stream(reader):  # the drafter's thread has a stream of its own
            got = parcel.open()
            read = got.features_BSF.cpu(), got.label_BS.cpu()
        assert got.features_BSF.device == device
        assert torch.equal(read[0], torch.full((2, 256, 64), float(number)))
        assert torch.equal(read[1], torch.full((2, 256), number))


class Small(nn.Module):
    """As much of a drafter as compiling needs."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.linear(x)) * 2


def check_recompile_is_an_event(device: str, backend: str, folder: Path) -> None:
    """Another shape compiles again, forward and backward: events with a reason, and one warning."""
    torch.compiler.reset()
    recorder = Recorder(folder, 0.0)
    forward = compile_forward(Small().to(device), backend)
    with CompileWatch(recorder) as watch:
        for number, rows in enumerate((2, 2, 3), 1):
            with recorder.step(number) as timer:
                watch.during(number, timer)
                torch.autograd.backward(forward(torch.ones(rows, 8, device=device)).sum())
    events = read(folder)
    compiled = [(event["step"], bool(event["reason"])) for event in events if event["kind"] == "compile"]
    assert compiled == [(1, False), (1, False), (3, True), (3, True)]
    (note,) = [event for event in events if event["kind"] == "note"]
    assert note["level"] == "warning"
    phases = [event["phases"] for event in events if event["kind"] == "step"]
    assert ["compile" in found for found in phases] == [True, False, True]  # a backward's too, whoever's thread it is


def check_two_threads_compile(device: str, backend: str, seconds: float = 240) -> bool:
    """Two threads compile on one device under the guard. A hang is an error, after ``seconds``.

    Returns whether backwards were compiled on threads of autograd's own.
    """
    argv = [sys.executable, "-c", f"from tests.dflash.two_compile import main; main({device!r}, {backend!r})"]
    path = os.pathsep.join([str(ROOT), *sys.path[1:]])  # in this order: torch stays the environment's own
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, done.stderr
    return bool(json.loads(done.stdout.splitlines()[-1])["elsewhere"])
