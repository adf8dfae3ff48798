"""The checks of tests/gpu, as far as a CPU can run them: their logic is right before a GPU sees it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from experiments.dflash import attention
from experiments.dflash.topology.travel import CudaRuntime
from tests.dflash import on_device
from tests.dflash.on_device import CONFIG, NoPeers

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _nothing_compiled() -> Iterator[None]:
    yield
    torch.compiler.reset()


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_equals_dense_and_another_mask_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "_compiled", lambda function: function)
    on_device.check_flex_equals_dense("cpu", backward=False)
    dense = attention.block_mask_mod
    turn = iter((0, 1))
    monkeypatch.setattr(attention, "block_mask_mod", lambda anchor, *rest: dense(anchor + next(turn), *rest))
    with pytest.raises(AssertionError, match="not close"):
        on_device.check_flex_equals_dense("cpu", backward=False)


def test_inline_learns_what_the_cpu_does_and_another_seed_does_not(tmp_path: Path) -> None:
    config = replace(CONFIG, compile="aot_eager")
    (tmp_path / "same").mkdir()
    on_device.check_losses_against_the_cpu("cpu", tmp_path / "same", config)
    (tmp_path / "other").mkdir()
    with pytest.raises(AssertionError):
        on_device.check_losses_against_the_cpu(
            "cpu", tmp_path / "other", replace(CONFIG, train=replace(CONFIG.train, seed=1))
        )


def test_phases_sum_to_the_step(tmp_path: Path) -> None:
    on_device.check_phases_sum_to_the_step("cpu", tmp_path)


@pytest.mark.parametrize("runtime", [CudaRuntime(), NoPeers()])
def test_travel(runtime: CudaRuntime) -> None:
    on_device.check_travel(CPU, CPU, runtime)


def test_a_recompile_is_an_event(tmp_path: Path) -> None:
    on_device.check_recompile_is_an_event("cpu", "aot_eager", tmp_path)


@pytest.mark.timeout(300)
def test_two_threads_compile_on_one_device() -> None:
    assert not on_device.check_two_threads_compile("cpu", "aot_eager")  # the CPU's backward is its caller's
