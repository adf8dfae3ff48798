"""Compiles and calls from several threads of one process, the way that kills a trainer: ``harness race`` starts it.

Each thread has a compiled function of its own and compiles it itself, as each drafter of a trainer in threads does. All
start together, and every result is held against the same mathematics without a compiler. With "changing" shapes a
thread meets a new length every few rounds, each at another moment, so that one compiles again while the others call.

Each try is a process of its own (``experiments/tries.py``), forked from one that has imported torch and has done
nothing else: importing takes longer than a try. What happens is written as it happens, one JSON object a line, because
a segfault hides what was only collected:

    {"event": "started", "torch": "2.11.0+cu130", "note": ""}
    {"event": "tracing error", "thread": 1, "round": 0, "text": "RuntimeError: Detected that ..."}
    {"event": "error" | "wrong result", "thread": 2, "round": 7, "text": "..."}
    {"event": "done"}

The exit code says nothing: whoever reads the lines judges. Imports torch, and ``harness.run.compile_guard`` when asked.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import itertools
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

import torch
import torch._dynamo  # before the threads: a guard may patch it
import torch.fx._symbolic_trace as symbolic_trace
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention.flex_attention import flex_attention

from experiments.tries import make_tries, say

SEEDS_ERROR = "FX to symbolically trace a dynamo-optimized function"
"""In the RuntimeError of ``torch/_dynamo/eval_frame.py`` that a call raises while another thread traces."""

HEADS, WIDTH, HIDDEN = 2, 16, 32
LENGTHS = (32, 48)  # positions, or rows of the MLP's input
STAY = 40  # rounds with one length
ROUNDS = 240
BREATH_S = 0.005  # between the calls of one who waits for the others

IMPORTED_BY_COMPILING = {
    "aot_eager": ("torch._dynamo.backends.debugging", "torch._functorch.aot_autograd"),
    "inductor": ("torch._inductor.compile_fx", "torch._inductor.codegen.cpp"),
}
"""What a first compile imports: here once, before the tries, and not by all threads of each."""

Function = Callable[..., Any]
Call = Callable[["Sample"], "tuple[Tensor, ...]"]


@dataclass(frozen=True)
class Sample:
    """Inputs of one length, and what has to come out: the output, and the gradients of its sum with backward."""

    inputs: tuple[Tensor, ...]
    expected: tuple[Tensor, ...]


# --- the work ---------------------------------------------------------------------------------------------------


def causal(score: Tensor, _batch: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """A drafter's kind of attention: what comes later is not seen."""
    return torch.where(query >= key, score, -float("inf"))


def attention(query_BHSD: Tensor, key_BHSD: Tensor, value_BHSD: Tensor) -> Tensor:
    """What ``flex_attention`` with ``causal`` computes, in plain operations."""
    score_BHSS = query_BHSD @ key_BHSD.transpose(-1, -2) / query_BHSD.shape[-1] ** 0.5
    size = score_BHSS.shape[-1]
    later_SS = torch.ones(size, size, dtype=torch.bool, device=score_BHSS.device).triu(1)
    out_BHSD: Tensor = score_BHSS.masked_fill(later_SS, -float("inf")).softmax(-1) @ value_BHSD
    return out_BHSD


def causal_flex_attention(query_BHSD: Tensor, key_BHSD: Tensor, value_BHSD: Tensor) -> Tensor:
    """What is raced."""
    out_BHSD: Tensor = flex_attention(query_BHSD, key_BHSD, value_BHSD, score_mod=causal)
    return out_BHSD


def with_own_code(function: Any) -> Function:
    """``function`` with a code object of its own: Dynamo keeps there what it has compiled, so that each thread compiles
    for itself, as threads do that have a GPU each."""
    return FunctionType(function.__code__.replace(), globals(), function.__name__)


def mlp(input_RD: Tensor, up_DH: Tensor, down_HD: Tensor) -> Tensor:
    """Two layers: their backward is compiled lazily, when it is first called."""
    out_RD: Tensor = torch.nn.functional.gelu(input_RD @ up_DH) @ down_HD
    return out_RD


def with_gradients(function: Function, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    leaves = [tensor.detach().requires_grad_() for tensor in inputs]
    out = function(*leaves)
    return (out.detach(), *torch.autograd.grad(out.sum(), leaves))


def work(name: str, backend: str, device: str) -> tuple[list[Sample], Callable[[], Call]]:
    """A sample of each length, and what makes the compiled call of one thread."""
    dice = torch.Generator().manual_seed(0)
    plain: Function = mlp if name == "mlp-backward" else attention
    backward = name.endswith("backward")

    def sample(length: int) -> Sample:
        shapes = (
            ((length, WIDTH), (WIDTH, HIDDEN), (HIDDEN, WIDTH))
            if name == "mlp-backward"
            else ((1, HEADS, length, WIDTH),) * 3
        )
        inputs = tuple(torch.randn(shape, generator=dice).to(device) for shape in shapes)
        return Sample(inputs, with_gradients(plain, inputs) if backward else (plain(*inputs),))

    def new_call() -> Call:
        raced: Function = mlp if name == "mlp-backward" else causal_flex_attention
        function: Function = torch.compile(with_own_code(raced), backend=backend, dynamic=False)
        if backward:
            return lambda given: with_gradients(function, given.inputs)
        return lambda given: (function(*given.inputs),)

    return [sample(length) for length in LENGTHS], new_call


def difference(got: Sequence[Tensor], expected: Sequence[Tensor]) -> str:
    """What is wrong with a result; empty where nothing is."""
    for number, (left, right) in enumerate(zip(got, expected, strict=True)):
        if left.shape != right.shape:
            return f"tensor {number} has shape {tuple(left.shape)}, not {tuple(right.shape)}"
        if not torch.allclose(left, right, rtol=1e-3, atol=1e-4):
            return f"tensor {number} is off by {(left - right).abs().max().item():.3g}"
    return ""


# --- the guards -------------------------------------------------------------------------------------------------


def tracing_flag_per_thread() -> str:
    """Make the flag that ``Tracer.trace`` sets one of each thread, as torch 2.14 does. Returns a remark."""
    if hasattr(symbolic_trace, "_is_fx_tracing_tls"):
        return "the tracing flag is one of each thread in this torch: nothing was changed"
    mine = threading.local()
    trace = symbolic_trace.Tracer.trace

    class PerThread(ModuleType):  # other modules read and set the flag as an attribute
        @property
        def _is_fx_tracing_flag(self) -> bool:
            return getattr(mine, "flag", False)

        @_is_fx_tracing_flag.setter
        def _is_fx_tracing_flag(self, value: bool) -> None:
            mine.flag = value

    def traced(*arguments: Any, **keywords: Any) -> Any:
        before = symbolic_trace._is_fx_tracing_flag
        mine.flag = True
        try:
            return trace(*arguments, **keywords)
        finally:
            mine.flag = before

    symbolic_trace.__class__ = PerThread  # what trace itself sets, a global of its module, nobody reads any more
    symbolic_trace.Tracer.trace = traced  # type: ignore[method-assign]
    symbolic_trace.is_fx_tracing = lambda: symbolic_trace._is_fx_tracing_flag
    symbolic_trace.is_fx_symbolic_tracing = lambda: (
        symbolic_trace._is_fx_tracing_flag and not torch.compiler.is_compiling()
    )
    return ""


def never_tracing() -> str:
    """The seeds' patch: the check that raises the error is told that nobody traces."""
    symbolic_trace.is_fx_symbolic_tracing = lambda: False
    return ""


def install(guard: str) -> str:
    """Put the guard's patches in place, before anything is compiled. Returns a remark, or "" where there is none."""
    if guard in ("flag", "both"):
        return tracing_flag_per_thread()
    if guard == "shim":
        return never_tracing()
    if guard == "compile_guard":
        from harness.run import compile_guard

        compile_guard.install()
    return ""


def keep_fake_device() -> None:
    """Let the stand-in for a missing GPU belong to the main thread, which outlives the others.

    A CUDA build without a GPU has one, of the thread that first traces. Up to torch 2.11 it is freed when that thread
    ends, and whoever traces next dies of it, also where no two threads ever ran at once (pytorch#178950, mended
    later). That is no race, and does not happen where a GPU is.
    """
    with FakeTensorMode():
        pass


# --- the race ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Race:
    """What all threads of a try share."""

    samples: Sequence[Sample]
    changing: bool
    start: threading.Barrier
    first_call: contextlib.AbstractContextManager[Any]  # held in each thread's first call
    busy: set[int]  # threads that have not made all their rounds

    def sample(self, thread: int, number: int) -> Sample:
        """The sample of a round. All begin with the same; each thread changes at another moment, where shapes do."""
        if not self.changing:
            return self.samples[0]
        lag = thread * STAY // 3
        return self.samples[max(0, number - lag) // STAY % len(self.samples)]

    def run(self, thread: int, call: Call) -> None:
        """One thread's rounds. The tracing error ends a round, any other ends the thread."""
        self.start.wait()
        try:
            self._rounds(thread, call)
        finally:
            self.busy.discard(thread)

    def _numbers(self, thread: int) -> Iterator[int]:
        """Rounds until everybody has made theirs: who is early calls on while the others compile."""
        for number in itertools.count():
            if number >= ROUNDS:
                self.busy.discard(thread)
                time.sleep(BREATH_S)
                if not self.busy:
                    return
            yield number

    def _rounds(self, thread: int, call: Call) -> None:
        told = False
        for number in self._numbers(thread):
            sample = self.sample(thread, number)
            try:
                with self.first_call if number == 0 else contextlib.nullcontext():
                    got = call(sample)
            except Exception as error:  # whatever a torn compiler raises: it is what is looked for
                text = f"{type(error).__name__}: {error}"
                if SEEDS_ERROR not in text:
                    say("error", thread=thread, round=number, text=text, stack=traceback.format_exc().splitlines())
                    return
                say("tracing error", thread=thread, round=number, text="" if told else text)
                told = True
                continue
            if wrong := difference(got, sample.expected):
                say("wrong result", thread=thread, round=number, text=wrong)


def race(options: argparse.Namespace) -> None:
    """One try: see the module's first lines."""
    torch.set_num_threads(1)
    keep_fake_device()
    say("started", torch=torch.__version__, note=install(options.guard))
    samples, new_call = work(options.work, options.backend, options.device)
    calls = [new_call() for _ in range(options.threads)]
    if options.guard == "warm-up":
        for call in calls:
            call(samples[0])
    first = threading.Lock() if options.guard in ("first-call", "both") else contextlib.nullcontext()
    race = Race(
        samples, options.shapes == "changing", threading.Barrier(options.threads), first, set(range(options.threads))
    )
    threads = [threading.Thread(target=race.run, args=(number, call)) for number, call in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    say("done")


def main(argv: Sequence[str]) -> None:
    """All tries, one after the other."""
    parser = argparse.ArgumentParser(prog="python -m experiments.race")
    parser.add_argument("--work", choices=("flex", "flex-backward", "mlp-backward"), default="flex")
    parser.add_argument("--backend", default="aot_eager")
    parser.add_argument("--guard", default="none")
    parser.add_argument("--shapes", choices=("static", "changing"), default="static")
    parser.add_argument("--threads", type=int, default=3)
    parser.add_argument("--tries", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds after which a try hangs")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args(argv)
    for module in IMPORTED_BY_COMPILING[options.backend]:
        importlib.import_module(module)
    make_tries(options.tries, options.timeout, lambda: race(options))


if __name__ == "__main__":
    main(sys.argv[1:])
