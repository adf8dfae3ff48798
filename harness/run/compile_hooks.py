"""What the compile guard puts in the places of torch: who reads, who writes, and who waits for others.

``compile_guard`` says which place gets what.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

import torch

from harness.run.gate import Gate
from harness.run.halls import Hall, Seat

_LENT = "harness.compile_guard.hall"
"""Under this name autograd's threads inherit, from who called backward, the hall of the compile that they work for."""


class CompileLock:
    """Stands where torch has its ``compile_lock``, for the same work, known by the chain of calls.

    torch's is an RLock, which knows threads: whoever took the gate after it would wait for one who waits for it, and an
    autograd thread that compiles for a caller who compiles would wait for that caller.
    """

    def __init__(self, gate: Gate, dynamic: Dynamic) -> None:
        self._gate = gate
        self._dynamic = dynamic
        self._mine = threading.local()

    def acquire(self) -> bool:
        seat = self._gate.begin_write()
        self._stack().append((seat, self._dynamic.set_here()))
        return True

    def release(self) -> None:
        seat, put_back = self._stack().pop()
        try:
            put_back()
        finally:
            self._gate.end_write(seat)

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function``, which compiles and knows nothing of the lock."""

        @functools.wraps(function)
        def alone(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return alone

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()

    def _stack(self) -> list[tuple[Seat, Callable[[], object]]]:
        if not hasattr(self._mine, "stack"):
            self._mine.stack = []
        stack: list[tuple[Seat, Callable[[], object]]] = self._mine.stack
        return stack


class Dynamic:
    """``torch.compile(dynamic=...)``: noted for the thread that calls, set for the process while that thread compiles.

    torch sets it for the process at each *call*, and puts it back afterwards. Up to 2.11 calls that overlap put back
    each other's: one thread compiles as another asked, and the last one out leaves for good what nobody asked for.
    """

    def __init__(self, make: Any) -> None:
        self._make = make  # of what is asked, a function that sets it and gives one that puts it back
        self._mine = threading.local()

    def __call__(self, enable: bool) -> Callable[[], Callable[[], None]]:
        """Stands where torch has ``make_set_enable_dynamic``."""

        def note() -> Callable[[], None]:
            before = getattr(self._mine, "enable", None)
            self._mine.enable = enable
            return functools.partial(setattr, self._mine, "enable", before)

        return note

    def set_here(self) -> Callable[[], object]:
        """Set what this thread's call asks for, alone as the caller is; the function puts it back."""
        enable = getattr(self._mine, "enable", None)
        if enable is None:
            return lambda: None
        put_back: Callable[[], object] = self._make(enable)()
        return put_back


def alone_within(gate: Gate, context: Callable[..., AbstractContextManager[Any]]) -> Callable[..., Any]:
    @functools.wraps(context)
    @contextlib.contextmanager
    def within(*args: Any, **kwargs: Any) -> Iterator[Any]:
        with gate.writing(), context(*args, **kwargs) as value:
            yield value

    return within


def guarded_decorator(gate: Gate, decorate: Callable[..., Any]) -> Callable[..., Any]:
    """``_TorchDynamoContext.__call__``, which makes the function that is called in place of the user's."""

    @functools.wraps(decorate)
    def decorator(self: Any, fn: Any) -> Any:
        made = decorate(self, fn)
        # A module comes back as an OptimizedModule, whose forward was made by this very method; a class as itself.
        if isinstance(made, torch.nn.Module | type):
            return made
        reader: Any = gate.reads(made)
        reader._torchdynamo_wrapper_id = id(reader)  # how torch tells its wrapper from a copy by functools.wraps
        return reader

    return decorator


def guarded_backward(gate: Gate, initialise: Callable[..., None]) -> Callable[..., None]:
    """The metaclass of autograd functions. AOTAutograd makes one for each graph; its ``backward`` is compiled code."""

    @functools.wraps(initialise)
    def initialiser(cls: Any, name: str, bases: tuple[type, ...], attributes: dict[str, Any]) -> None:
        if "_aot_id" in attributes and "compiled_bw" in attributes:
            cls.backward = staticmethod(gate.reads(cls.backward))
        initialise(cls, name, bases, attributes)

    return initialiser


def lending(gate: Gate, engine: Callable[..., Any]) -> Callable[..., Any]:
    """The entry of autograd's engine. On CUDA its threads run the backward, and compile it, while the caller waits."""

    @functools.wraps(engine)
    def entry(*args: Any, **kwargs: Any) -> Any:
        if gate.only_waits():
            return engine(*args, **kwargs)
        with gate.lending() as hall, _inherited(hall):
            return engine(*args, **kwargs)

    return entry


@contextlib.contextmanager
def _inherited(hall: Hall | None) -> Iterator[None]:
    """Let autograd's threads find ``hall``, and need none of them that they do not need.

    The thread of a device is one for all callers: it may be waiting, as a reader, for the very writer that would wait
    for it here. So a writer's backward runs on the writer's thread, as AOTAutograd's own does; only one that is
    nested deeply leaves it, to a thread of the engine's that waits for nobody.
    """
    if hall is None:
        yield
        return
    before = lent()
    _stash(hall)
    try:
        with torch.autograd.set_multithreading_enabled(False):
            yield
    finally:
        _stash(before)


def _stash(hall: Hall | None) -> None:
    if not hasattr(torch._C, "_remove_obj_from_tls"):
        # Before 2.13 torch keeps a reference that it did not take, and gives it back: this is the one that it gives.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(hall))
        torch._C._stash_obj_in_tls(_LENT, hall)
    elif hall is None:
        # A thread must not end with anything there: it would wait for the GIL (autograd/graph.py of 2.14).
        torch._C._remove_obj_from_tls(_LENT)
    else:
        torch._C._stash_obj_in_tls(_LENT, hall)


def lent() -> Hall | None:
    hall: Hall | None = torch._C._get_obj_in_tls(_LENT) if torch._C._is_key_in_tls(_LENT) else None
    return hall
