"""What only a GPU runs: ``nox -s gpu``. The checks are tests/dflash/on_device.py's, which the CPU has run too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from experiments.dflash.attention import Attention
from experiments.dflash.config import Backend
from experiments.dflash.layout import TopologyConfig
from experiments.dflash.topology.travel import CudaRuntime
from tests.dflash import on_device
from tests.dflash.on_device import CONFIG, NoPeers

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def _a_gpu() -> None:
    if not torch.cuda.is_available():
        pytest.fail(f"torch {torch.__version__} sees no GPU here")


def test_flex_with_a_block_mask_made_on_the_gpu_equals_dense_sdpa() -> None:
    on_device.check_flex_equals_dense("cuda:0", backward=True)


@pytest.mark.parametrize("backend", ["none", "inductor"])
@pytest.mark.parametrize("attention", ["sdpa", "flex"])
def test_inline_learns_what_the_cpu_does(tmp_path: Path, backend: Backend, attention: Attention) -> None:
    config = replace(CONFIG, compile=backend, attention=attention)
    on_device.check_losses_against_the_cpu("cuda:0", tmp_path, config)


def test_phases_by_events_sum_to_the_step(tmp_path: Path) -> None:
    on_device.check_phases_sum_to_the_step("cuda:0", tmp_path)


def test_a_recompile_is_an_event(tmp_path: Path) -> None:
    on_device.check_recompile_is_an_event("cuda:0", "inductor", tmp_path)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_two_threads_compile_on_one_gpu_and_backwards_on_autograds_own(backend: str) -> None:
    assert on_device.check_two_threads_compile("cuda:0", backend)


@pytest.mark.parametrize("runtime", [CudaRuntime(), NoPeers()], ids=["direct", "pinned"])
def test_features_travel_between_streams_of_one_gpu(runtime: CudaRuntime) -> None:
    gpu = torch.device("cuda", 0)
    on_device.check_travel(gpu, gpu, runtime)


@pytest.mark.parametrize("runtime", [CudaRuntime(), NoPeers()], ids=["as it can", "pinned"])
def test_features_travel_between_gpus(runtime: CudaRuntime) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU here, and this needs two")
    on_device.check_travel(torch.device("cuda", 0), torch.device("cuda", 1), runtime)


# Last: a capture that fails spoils what comes after it in the process.


@pytest.mark.parametrize("backend", ["none", "inductor"])
@pytest.mark.parametrize("attention", ["sdpa", "flex"])
def test_cuda_graphs_learn_what_the_cpu_does(tmp_path: Path, backend: Backend, attention: Attention) -> None:
    config = replace(CONFIG, compile=backend, attention=attention, cuda_graphs=True)
    on_device.check_losses_against_the_cpu("cuda:0", tmp_path, config)


@pytest.mark.parametrize("graphs", [False, True])
def test_threads_on_streams_of_one_gpu_learn_what_the_cpu_does(tmp_path: Path, graphs: bool) -> None:
    config = replace(CONFIG, topology=TopologyConfig("threads", "cuda:0", "cuda:0"), cuda_graphs=graphs)
    on_device.check_losses_against_the_cpu("cuda:0", tmp_path, config)
