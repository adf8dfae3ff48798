"""The GPU benchmark's core, with tiny sizes on the CPU: it measures what the trainer records, and says what fails."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

from benchmarks import gpu
from experiments.dflash.config import TargetConfig
from experiments.dflash.layout import TopologyConfig
from harness.places import places

SMALL = replace(
    gpu.TINY,
    target=TargetConfig(hidden=16, heads=2, kv_heads=1, head_dim=16, ffn=16),
    data=replace(gpu.TINY.data, length=70),
    train=replace(gpu.TINY.train, steps=6, batch=2, anchors=2),
)


@pytest.fixture(autouse=True)
def _nothing_compiled() -> Iterator[None]:
    yield
    torch.compiler.reset()


def test_every_cell_is_measured_and_shown() -> None:
    said = io.StringIO()
    console = Console(file=said, width=120)
    found = gpu.run({"small": SMALL}, "cpu", 0, console)
    assert [one.name for one in found] == ["small, sdpa, uncompiled", "small, sdpa, aot_eager"]
    for one in found:
        assert not one.failed
        assert one.tokens_a_second is not None
        assert one.tokens_a_second * one.step_s == pytest.approx(2 * 70)  # the tokens of a step, whatever its time
    console.print(gpu.table(found))
    assert "2 of 2: small, sdpa, aot_eager" in said.getvalue()
    assert "1.00" in said.getvalue()


def test_a_cell_that_cannot_run_is_a_line_with_its_reason(tmp_path: Path) -> None:
    one = gpu.measure("small", replace(SMALL, device="cuda:63"), tmp_path / "run")
    assert one.tokens_a_second is None
    assert "device=cuda:63 is not here" in one.failed


def test_gpus_decide_the_cells() -> None:
    one, two, eight = ([name for name, _ in gpu.cells(gpu.SIZES, "cuda:0", count)] for count in (1, 2, 8))
    assert len(one) == 2 * (4 + 2)  # and with CUDA graphs, and with two threads on one GPU
    assert two == eight == [*one, "tiny, threads", "tiny, processes", "mid, threads", "mid, processes"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_a_training_in_processes_of_its_own(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    topology = TopologyConfig(kind, "cpu:0", "cpu:1,cpu:2")  # type: ignore[arg-type]
    monkeypatch.setattr(sys, "orig_argv", [sys.executable, "-m", "benchmarks.gpu"])
    one = gpu.measure(kind, replace(SMALL, topology=topology, compile="none"), tmp_path / "run")
    assert not one.failed
    assert one.tokens_a_second is not None
    assert one.tokens_a_second * one.step_s == pytest.approx(2 * 70)


def test_without_a_gpu_nothing_is_measured() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    environment = {name: value for name, value in os.environ.items() if name != "HARNESS_RUN"}
    argv = [sys.executable, "-m", "benchmarks.gpu"]
    done = subprocess.run(argv, cwd=places().root, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "no GPU here: nothing was measured\n")
