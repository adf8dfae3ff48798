"""Compiling the drafter, and watching what that costs.

The watch reads torch's private counters and callbacks. It is the one place that does; they are there in torch 2.10
to 2.14.
"""

from __future__ import annotations

import os
import shutil
import sysconfig
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import torch
from torch._dynamo.callback import CallbackArgs, CallbackTrigger, callback_handler
from torch._dynamo.utils import counters

from experiments.dflash.config import Backend
from experiments.dflash.model import DFlashDrafter
from harness.errors import UsageError

if TYPE_CHECKING:
    from harness.run.events import Recorder, StepTimer

Forward = Callable[..., torch.Tensor]


def choose_backend(wanted: Backend, device: torch.device) -> tuple[Backend, str]:
    """The backend to compile with, and, where "auto" cannot have inductor, why not: a slower run must say that it is.

    Raises UsageError where inductor is asked for by name on a machine that lacks what it needs.
    """
    lacking = missing_for_inductor() if device.type == "cpu" and wanted in ("auto", "inductor") else ""
    if not lacking:
        return ("inductor" if wanted == "auto" else wanted), ""
    if wanted == "inductor":
        raise UsageError(f"compile=inductor needs {lacking}; install it, or set compile=none")
    return "none", f"the drafter runs uncompiled: inductor needs {lacking}"


def missing_for_inductor() -> str:
    """What inductor needs to compile for the CPU and this machine lacks; "" where nothing is missing."""
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        return f"a C++ compiler, and there is no {compiler} (Debian: apt-get install g++)"
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        return "Python's headers, and there is no Python.h (Debian: apt-get install python3-dev)"
    return ""


def compile_forward(drafter: DFlashDrafter, backend: str) -> Forward:
    """The drafter's training forward, compiled as one graph of fixed shapes unless ``backend`` is "none".

    The module itself stays as it is, since decoding calls it with a new length each time. The loss stays outside: its
    number of chunks follows the number of live slots.
    """
    if backend == "none":
        return drafter.forward
    return torch.compile(drafter.forward, backend=backend, fullgraph=True, dynamic=False)


@dataclass
class _Here:
    """What one thread is at."""

    timer: StepTimer
    step: int
    seconds: float = 0.0


class CompileWatch:
    """Records every compilation while it is entered: its seconds, and the cache hits, misses and bypasses within.

    Several threads may train at once; each says what it is at, and a compilation belongs to the thread it runs on.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._threads: dict[int, _Here] = {}
        self._begun = 0.0
        self._seen = (0, 0, 0)

    def during(self, step: int, timer: StepTimer) -> None:
        """From now on this thread's compilations belong to ``step``, and are taken out of the phase they happen in."""
        here = self._threads.setdefault(threading.get_ident(), _Here(timer, step))
        here.timer, here.step = timer, step

    def seconds_here(self) -> float:
        """Spent compiling for this thread so far."""
        here = self._threads.get(threading.get_ident())
        return here.seconds if here else 0.0

    def __enter__(self) -> CompileWatch:
        self._seen = cache_counters()
        callback_handler.register_start_callback(self._start)
        callback_handler.register_end_callback(self._end)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        callback_handler.remove_start_callback(self._start)
        callback_handler.remove_end_callback(self._end)

    def _start(self, _args: CallbackArgs) -> None:
        self._begun = time.perf_counter()  # one compiles at a time: torch's own lock, or the compile guard, sees to it

    def _end(self, args: CallbackArgs) -> None:
        seconds = time.perf_counter() - self._begun
        here = self._of_this_thread()
        if here is not None:
            here.seconds += seconds
            here.timer.add_phase("compile", seconds)
        now = cache_counters()
        hits, misses, bypasses = (after - before for after, before in zip(now, self._seen, strict=True))
        self._seen = now
        lazy = args.callback_trigger is CallbackTrigger.LAZY_BACKWARD
        again = not args.compile_id.endswith("/0")  # "frame/attempt"
        self._recorder.compile(
            f"graph {args.compile_id} {'backward' if lazy else 'forward'}",
            seconds,
            here.step if here else 0,
            hits,
            misses,
            bypasses,
            reason="an input changed its shape, type or layout" if again else "",
        )

    def _of_this_thread(self) -> _Here | None:
        """On CUDA a backward compiles on autograd's thread, not the trainer's: with one trainer it is still known."""
        here = self._threads.get(threading.get_ident())
        if here is None and len(self._threads) == 1:
            (here,) = self._threads.values()
        return here


def cache_counters() -> tuple[int, int, int]:
    """Hits, misses and bypasses of inductor's graph cache so far in this process."""
    inductor = counters["inductor"]
    return (
        int(inductor["fxgraph_cache_hit"]),
        int(inductor["fxgraph_cache_miss"]),
        int(inductor["fxgraph_cache_bypass"]),
    )
