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
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import torch
from torch._dynamo.callback import CallbackArgs, CallbackTrigger, callback_handler
from torch._dynamo.exc import FailOnRecompileLimitHit
from torch._dynamo.utils import counters, guard_failures

from experiments.dflash.config import Backend
from harness.errors import HarnessError, UsageError

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


def compile_forward(drafter: torch.nn.Module, backend: str) -> Forward:
    """The drafter's training forward, compiled as one graph of fixed shapes unless ``backend`` is "none".

    The module itself stays as it is, since decoding calls it with a new length each time. The loss stays outside, and
    eager: its number of chunks follows the number of live slots, so compiled it would compile again and again.

    Raises HarnessError in the step in which torch gives up compiling: beyond its limit it would run uncompiled.
    """
    if backend == "none":
        return drafter.forward
    compiled = torch.compile(_with_own_code(drafter.forward), backend=backend, fullgraph=True, dynamic=False)

    def forward(*inputs: object) -> torch.Tensor:
        try:
            hidden: torch.Tensor = compiled(*inputs)
        except FailOnRecompileLimitHit as error:  # only fullgraph=True makes torch raise it
            limit = torch._dynamo.config.recompile_limit
            raise HarnessError(
                f"the drafter was compiled {limit} times and torch compiles it no more: {_last_reason()}; "
                "its inputs must have one shape, type and layout in every step"
            ) from error
        return hidden

    return forward


def _with_own_code(method: Forward) -> Forward:
    """``method`` as a function whose code object nobody else has.

    Dynamo keeps what it compiled at the code object. Drafters in threads would share one: each would count as a
    recompile of the others, against one limit, and be looked through in every call of every other.
    """

    def forward(*inputs: object) -> torch.Tensor:
        return method(*inputs)

    return types.FunctionType(forward.__code__.replace(), globals(), "forward", None, forward.__closure__)


def graphs_expected(backend: str, attention: str) -> int:
    """How many graphs a drafter of fixed shapes compiles, all of them in its first step.

    Its forward and its backward, where it is compiled; for flex_attention the making of the mask, and, where the
    drafter is not compiled, the attention's own forward and backward.
    """
    if attention == "flex":
        return 3
    return 0 if backend == "none" else 2


@dataclass
class _Here:
    """What one thread is at. ``frames``: the functions that were compiled for it, by Dynamo's number."""

    timer: StepTimer
    step: int
    seconds: float = 0.0
    frames: set[str] = field(default_factory=set)


class CompileWatch:
    """Records every compilation while it is entered: its seconds, its reason where it was not the first, and the cache
    hits, misses and bypasses within. Warns of the first that should not have been.

    Several threads may train at once; each says what it is at, and a compilation belongs to the thread it runs on.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._threads: dict[int, _Here] = {}
        self._forwards: dict[str, _Here] = {}  # whose forward it was, by the id that its backward shares
        self._again: set[str] = set()  # ids of forwards that were not the first
        self._warned = False
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
        backward = args.callback_trigger is CallbackTrigger.LAZY_BACKWARD
        here = self._owner(args.compile_id, backward)
        step = here.step if here else 0
        if here is not None:
            here.seconds += seconds
            here.timer.add_phase("compile", seconds)
        now = cache_counters()
        hits, misses, bypasses = (after - before for after, before in zip(now, self._seen, strict=True))
        self._seen = now
        reason = self._reason(args.compile_id, backward, here)
        name = f"graph {args.compile_id} {'backward' if backward else 'forward'}"
        self._recorder.compile(name, seconds, step, hits, misses, bypasses, reason)
        if reason and not self._warned:
            self._warned = True
            self._recorder.note(
                f"step {step}: the drafter compiled again, because {reason}: "
                "shapes are fixed, so this should not happen",
                level="warning",
            )

    def _owner(self, compile_id: str, backward: bool) -> _Here | None:
        """On CUDA a backward compiles on autograd's thread, not the trainer's: its forward's id says whose it is."""
        here = self._threads.get(threading.get_ident())
        if backward:
            return self._forwards.get(compile_id, here)
        if here is not None:
            self._forwards[compile_id] = here
        return here

    def _reason(self, compile_id: str, backward: bool, here: _Here | None) -> str:
        """Why this was compiled although it had been before; "" for the first time.

        A function that all threads share, such as the making of the mask, is compiled for each: a first time each.
        """
        if backward:
            return "its forward was compiled again" if compile_id in self._again else ""
        frame, _, attempt = compile_id.rpartition("/")
        if here is None:  # before the first step, for CUDA graphs
            return ""
        first = frame not in here.frames
        here.frames.add(frame)
        if attempt == "0" or first:
            return ""
        self._again.add(compile_id)
        return _last_reason(frame)


def _last_reason(frame: str = "") -> str:
    """The guard that failed, in torch's words, when function number ``frame`` was last compiled anew."""
    newest = ""
    for reasons in guard_failures.values():
        ours = [reason for reason in reasons if reason.startswith(f"{frame}/" if frame else "")]
        newest = ours[-1] if ours else newest
    return newest.partition(": ")[2].partition("\n")[0].strip() or "torch gave no reason"


def cache_counters() -> tuple[int, int, int]:
    """Hits, misses and bypasses of inductor's graph cache so far in this process."""
    inductor = counters["inductor"]
    return (
        int(inductor["fxgraph_cache_hit"]),
        int(inductor["fxgraph_cache_miss"]),
        int(inductor["fxgraph_cache_bypass"]),
    )
