"""How often is compiled, for whom and why. Inductor for real, in processes of their own: cold it misses, warm it hits,
and the losses are the same bits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.callback import CallbackTrigger, callback_handler

from experiments.dflash.compiling import CompileWatch, compile_forward, graphs_expected
from harness.errors import HarnessError
from harness.run.events import Recorder

ROOT = Path(__file__).resolve().parents[2]
CHILD = """
import sys
from pathlib import Path
from dataclasses import replace
from harness.run.events import Recorder
from tests.dflash.test_step import CONFIG, trained
trained(replace(CONFIG, compile=sys.argv[2]), Recorder(Path(sys.argv[1]), 0.0))
"""


def run(folder: Path, backend: str, cache: Path) -> list[dict[str, Any]]:
    folder.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TORCHINDUCTOR_CACHE_DIR": str(cache)}
    subprocess.run([sys.executable, "-c", CHILD, str(folder), backend], check=True, cwd=ROOT, env=environment)
    return [json.loads(line) for line in (folder / "events.jsonl").read_text("utf-8").splitlines()]


def counts(events: list[dict[str, Any]]) -> tuple[int, int]:
    compiled = [event for event in events if event["kind"] == "compile"]
    return sum(event["hits"] for event in compiled), sum(event["misses"] for event in compiled)


def losses(events: list[dict[str, Any]]) -> list[float]:
    return [event["metrics"]["loss"] for event in events if event["kind"] == "step"]


@pytest.mark.slow
def test_cold_misses_warm_hits_and_both_compute_the_same(tmp_path: Path) -> None:
    cold = run(tmp_path / "cold", "inductor", tmp_path / "cache")
    warm = run(tmp_path / "warm", "inductor", tmp_path / "cache")
    plain = run(tmp_path / "plain", "none", tmp_path / "cache")
    assert counts(cold) == (0, 2)  # the forward graph and the backward graph, and no third
    assert counts(warm) == (2, 0)
    assert counts(plain) == (0, 0)
    assert losses(warm) == losses(cold)
    assert losses(plain) == pytest.approx(losses(cold), abs=1e-4)


class Small(nn.Module):
    """As much of a drafter as compiling needs."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.linear(x)) * 2


@pytest.fixture
def _compiled_anew() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def read(folder: Path, kind: str) -> list[dict[str, Any]]:
    lines = (folder / "events.jsonl").read_text("utf-8").splitlines()
    return [event for event in map(json.loads, lines) if event["kind"] == kind]


def train_on(rows: list[int], watch: CompileWatch, recorder: Recorder) -> None:
    forward = compile_forward(Small(), "aot_eager")
    for number, size in enumerate(rows, 1):
        with recorder.step(number) as timer:
            watch.during(number, timer)
            torch.autograd.backward(forward(torch.ones(size, 4)).sum())


@pytest.mark.usefixtures("_compiled_anew")
def test_compiling_again_is_an_event_with_torchs_reason_and_one_warning(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 0.0)
    with CompileWatch(recorder) as watch:
        train_on([3, 3, 5, 3, 6], watch, recorder)
    compiled = [(event["step"], event["reason"]) for event in read(tmp_path, "compile")]
    odd = "size mismatch at index 0. expected"
    assert [step for step, _ in compiled] == [1, 1, 3, 3, 5, 5]  # forward and backward each time
    assert compiled[0][1] == compiled[1][1] == ""
    assert f"{odd} 3, actual 5" in compiled[2][1]
    assert compiled[4][1].endswith("actual 6")
    assert compiled[3][1] == compiled[5][1] == "its forward was compiled again"
    (note,) = read(tmp_path, "note")
    assert note["level"] == "warning"
    assert note["text"].startswith("step 3: the drafter compiled again, because tensor")
    assert f"{odd} 3, actual 5: shapes are fixed" in note["text"]


@pytest.mark.usefixtures("_compiled_anew")
def test_several_drafters_of_a_process_compile_the_same_number_each_and_none_again(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 0.0)
    drafters = 10  # more than torch's limit of 8 for functions that share their code
    with CompileWatch(recorder) as watch:
        for _ in range(drafters):
            train_on([3, 3], watch, recorder)
    compiled = read(tmp_path, "compile")
    assert len(compiled) == drafters * graphs_expected("aot_eager", "sdpa")
    assert {(event["step"], event["reason"]) for event in compiled} == {(1, "")}
    assert not read(tmp_path, "note")


@pytest.mark.usefixtures("_compiled_anew")
def test_where_torch_would_stop_compiling_the_run_stops(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 0.0)
    limit = torch._dynamo.config.patch(recompile_limit=2)
    with limit, CompileWatch(recorder) as watch, pytest.raises(HarnessError) as stopped:
        train_on([3, 4, 5, 6], watch, recorder)
    assert "compiled 2 times" in str(stopped.value)
    assert "size mismatch at index 0. expected 3, actual 5" in str(stopped.value)
    assert "\n" not in str(stopped.value)
    assert [event["step"] for event in read(tmp_path, "step")] == [1, 2]


def test_a_backward_that_compiles_on_another_thread_belongs_to_its_forward(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 0.0)
    watch = CompileWatch(recorder)
    turns = threading.Barrier(2)

    def trainer(number: int) -> None:
        with recorder.step(number, device=f"cuda:{number}") as timer:
            watch.during(number, timer)
            turns.wait()
            if number == 7:
                with callback_handler.install_callbacks(CallbackTrigger.DYNAMO, "40/0"):
                    pass
                autograd = threading.Thread(target=backward)  # as CUDA's, which no trainer is
                autograd.start()
                autograd.join()
            turns.wait()

    def backward() -> None:
        with callback_handler.install_callbacks(CallbackTrigger.LAZY_BACKWARD, "40/0"):
            pass

    with watch:
        threads = [threading.Thread(target=trainer, args=(number,)) for number in (6, 7)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [event["step"] for event in read(tmp_path, "compile")] == [7, 7]
    compiling = {event["step"]: "compile" in event["phases"] for event in read(tmp_path, "step")}
    assert compiling == {6: False, 7: True}
