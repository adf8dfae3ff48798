"""The part of a step that CUDA graphs replay. No GPU is needed: what a capture keeps and what it freezes is the same as
in a trace of the operators, so a trace made from one step and replayed on another stands in for the graph."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from experiments.dflash.config import DFlashConfig
from experiments.dflash.forward import BlockForward, refuse_cuda_graphs
from experiments.dflash.layout import TopologyConfig
from experiments.dflash.step import fresh_drafter
from experiments.dflash.topology.inline import InlineCrew
from experiments.dflash.topology.threads import ThreadCrew
from experiments.dflash.topology.together import Workers
from experiments.dflash.train import settled
from harness.errors import UsageError
from harness.run.events import Recorder
from tests.dflash.on_device import CONFIG, read
from tests.dflash.tiny_target import make_dataset, random_target

CPU = torch.device("cpu")
Example = tuple[Tensor, ...]
Traces = tuple[Callable[..., Any], Callable[..., Any]]


class Replayed(torch.autograd.Function):
    """A module's forward and backward as traces, of which nothing but its operators on tensors is left."""

    @staticmethod
    def forward(ctx: Any, traces: Traces, count: int, *tensors: Tensor) -> Tensor:
        ctx.backward_trace, ctx.count = traces[1], count
        ctx.save_for_backward(*tensors)
        hidden: Tensor = traces[0](*tensors)
        return hidden

    @staticmethod
    def backward(ctx: Any, *gradient: Tensor) -> Any:
        tensors = ctx.saved_tensors
        with torch.enable_grad():
            found = ctx.backward_trace(gradient[0], *tensors)
        return None, None, *[None] * ctx.count, *found


def traced(module: nn.Module, example: Example) -> Callable[..., Tensor]:
    """A replay of ``module``'s trace on ``example``, in place of torch.cuda.make_graphed_callables."""
    weights = tuple(module.parameters())
    names = [name for name, _ in module.named_parameters()]
    count = len(example)

    def run(*tensors: Tensor) -> Tensor:
        inputs, given = tensors[:count], dict(zip(names, tensors[count:], strict=True))
        hidden: Tensor = torch.func.functional_call(module, given, inputs)
        return hidden

    def run_backward(gradient: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(run(*tensors), tensors[count:], gradient)

    learned = [weight.detach().requires_grad_() for weight in weights]
    gradient = torch.ones_like(run(*example, *learned))
    traces = make_fx(run)(*example, *learned), make_fx(run_backward)(gradient, *example, *learned)

    def replay(*inputs: Tensor) -> Tensor:
        assert [given.shape for given in inputs] == [one.shape for one in example]
        copied = [given.to(one.dtype) for given, one in zip(inputs, example, strict=True)]  # as into a graph's inputs
        hidden: Tensor = Replayed.apply(traces, count, *copied, *weights)  # type: ignore[no-untyped-call]
        return hidden

    return replay


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> list[Example]:
    """The examples of all captures, which are traces here; a device of the CPU passes for one that has graphs."""
    made: list[Example] = []

    def capture(module: nn.Module, example: Example) -> Callable[..., Tensor]:
        assert not torch.is_autocast_enabled("cpu")  # torch refuses a capture under autocast with its cache
        made.append(example)
        return traced(module, example)

    monkeypatch.setattr(torch.cuda, "make_graphed_callables", capture)
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    monkeypatch.setattr("experiments.dflash.step.refuse_cuda_graphs", lambda *_: None)
    return made


def losses(folder: Path) -> list[float]:
    return [e["metrics"]["loss"] for e in read(folder) if e["kind"] == "step" and e["role"] == "drafter"]


def trained(crew: InlineCrew | ThreadCrew, folder: Path) -> list[float]:
    crew.board(random_target(), make_dataset(2))
    assert crew.train() == ""
    return losses(folder)


@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight:UserWarning")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_steps_replayed_from_a_capture_before_the_first_learn_the_same(
    tmp_path: Path, captures: list[Example], precision: Any
) -> None:
    config = replace(CONFIG, precision=precision)
    found = {}
    for graphs in (False, True):
        folder = tmp_path / str(graphs)
        folder.mkdir()
        made = settled(replace(config, cuda_graphs=graphs))[0]
        found[graphs] = trained(InlineCrew(made, Recorder(folder, 0.0)), folder)
    assert len(captures) == 1
    assert len(set(found[False])) == 6
    assert found[True] == found[False]


def test_each_drafter_of_a_process_has_its_own_graphs_before_any_thread_starts(
    tmp_path: Path, captures: list[Example], monkeypatch: pytest.MonkeyPatch
) -> None:
    captured_when_threads_start = []
    run = Workers.run

    def noted(workers: Workers) -> None:
        captured_when_threads_start.append(len(captures))
        run(workers)

    monkeypatch.setattr(Workers, "run", noted)
    topology = TopologyConfig("threads", targets="cpu:0", drafters="cpu:1,cpu:2")
    found = {}
    for graphs in (False, True):
        folder = tmp_path / str(graphs)
        folder.mkdir()
        config = replace(CONFIG, topology=topology)
        object.__setattr__(config, "cuda_graphs", graphs)  # past the check that the CPU has none
        found[graphs] = trained(ThreadCrew(settled(config)[0] if not graphs else config, Recorder(folder, 0.0)), folder)
    assert captured_when_threads_start == [0, 2]
    assert found[True] == found[False]
    (one, other) = captures
    assert [t.shape for t in one] == [t.shape for t in other]
    assert one[0].shape[0] == 1  # a drafter's share of two rows


def test_a_trace_that_asks_what_a_tensor_holds_is_caught() -> None:
    """The stand-in itself: a forward that decides by a value cannot be traced, as it could not be captured."""

    class Peeks(BlockForward):
        def forward(self, features_BSF: Tensor, document_BS: Tensor, anchor_BN: Tensor, block_BNKH: Tensor) -> Tensor:
            if float(features_BSF.sum()) > 0:
                features_BSF = features_BSF * 2
            return super().forward(features_BSF, document_BS, anchor_BN, block_BNKH)

    drafter = fresh_drafter(CONFIG, random_target(), CPU)
    example = (torch.zeros(2, 12, 16), torch.zeros(2, 12).long(), torch.zeros(2, 3).long(), torch.zeros(2, 3, 4, 16))
    with pytest.raises(RuntimeError, match=r"data-dependent|tensor\.item"):
        traced(Peeks(drafter, "none", "sdpa"), example)


def test_without_a_gpu_graphs_are_refused_by_a_line() -> None:
    with pytest.raises(ValueError, match="cuda_graphs=true needs a GPU"):
        DFlashConfig(cuda_graphs=True, device="cpu")
    with pytest.raises(ValueError, match="cuda_graphs=true needs a GPU"):
        DFlashConfig(cuda_graphs=True, topology=TopologyConfig("threads", targets="cpu:0", drafters="cpu:1"))
    with pytest.raises(UsageError, match="the device is cpu"):
        refuse_cuda_graphs(DFlashConfig(cuda_graphs=True), CPU)
    refuse_cuda_graphs(DFlashConfig(cuda_graphs=True), torch.device("cuda", 0))
