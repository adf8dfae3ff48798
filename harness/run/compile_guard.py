"""Makes compiling from several threads of one process safe: nobody calls compiled code while anybody compiles.

    guard = install()                                            # in the trainer, before its threads start
    python -m harness.run.compile_guard their_train.py ARGS...   # or around one that knows nothing of it

Needs torch and the standard library alone. torch keeps what belongs to one compile in variables of the whole process,
and reads some of them on every call of a compiled function: docs/compile-threads.md says which, and what that does.

What reads: a call of what ``torch.compile`` returned, and of a compiled backward. What writes: all that happens under
torch's own compile lock (Dynamo, on a first call and in mid-training), AOTAutograd's lazily compiled backward,
a symbolic trace (make_fx and export among them), and ``flex_attention`` and its like where they are called eagerly:
they compile inside.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple

import torch

from harness.errors import EnvironmentFault
from harness.run.gate import Gate, Hall, Seat, Stats

SHOWN = ("2.10.0", "2.11.0", "2.13.0", "2.14.1")
"""The versions of torch on which the guard has been shown to hold: docs/compile-threads.md."""

_LENT = "harness.compile_guard.hall"
"""Under this name autograd's threads inherit, from who called backward, the hall of the compile that they work for."""


def shown(version: str) -> bool:
    """Whether the guard has been shown on this version of torch; "2.11.0+cu130" counts as 2.11.0."""
    return version.partition("+")[0] in SHOWN


@dataclass(frozen=True)
class Guard:
    """The guard of this process."""

    gate: Gate
    torch_version: str

    def stats(self) -> Stats:
        """How often was compiled, and how long threads waited for it."""
        return self.gate.stats()


_installed: list[Guard] = []
_installing = threading.Lock()


def install() -> Guard:
    """Guard this process, once; later calls return the same guard. Functions compiled before it are not guarded.

    To be called from a thread that outlives those that compile, as the main thread does: see ``_keep_fake_device``.
    Warns where the guard has not been shown on this torch. Raises EnvironmentFault, with nothing patched, where this
    torch has not got the places that it holds on to.
    """
    with _installing:
        if not _installed:
            if not shown(torch.__version__):
                warnings.warn(
                    f"the compile guard has not been shown on torch {torch.__version__}, only on {', '.join(SHOWN)}",
                    RuntimeWarning,
                    stacklevel=2,
                )
            gate = Gate(_lent)
            _patch(gate)
            _keep_fake_device()
            _installed.append(Guard(gate, torch.__version__))
        return _installed[0]


class _Place(NamedTuple):
    """One place of torch that the guard holds on to."""

    owner: Any
    name: str
    guarded: Callable[[Any], Any]
    everywhere: bool = False
    """Also in those modules of torch that have imported it by its name."""


def _places(gate: Gate) -> list[_Place]:
    import torch._functorch._aot_autograd.runtime_wrappers as runtime_wrappers
    import torch._higher_order_ops.utils as hops
    from torch._dynamo import convert_frame, eval_frame
    from torch.autograd import function, graph

    alone, alone_within = functools.partial(_alone, gate), functools.partial(_alone_within, gate)
    return [
        _Place(convert_frame, "compile_lock", lambda _: _CompileLock(gate), everywhere=True),
        _Place(convert_frame, "_fullgraph_capture_frame", alone),  # export and ahead-of-time compiling
        # The outermost of the contexts around the lazily compiled backward; it is used for nothing else there.
        _Place(runtime_wrappers, "tracing", alone_within),
        _Place(hops, "_set_compilation_env", alone_within, everywhere=True),  # flex_attention and its like, eagerly
        _Place(torch.fx.Tracer, "trace", alone),
        _Place(eval_frame._TorchDynamoContext, "__call__", functools.partial(_guarded_decorator, gate)),
        _Place(function.FunctionMeta, "__init__", functools.partial(_guarded_backward, gate)),
        _Place(graph, "_engine_run_backward", functools.partial(_lending, gate), everywhere=True),
    ]


def _patch(gate: Gate) -> None:
    from torch._dynamo import convert_frame, trace_rules

    places = _places(gate)
    missing = [f"{place.owner.__name__}.{place.name}" for place in places if not hasattr(place.owner, place.name)]
    if missing:
        raise EnvironmentFault(
            f"the compile guard does not fit torch {torch.__version__}, which has no {', '.join(missing)}; "
            f"it fits {', '.join(SHOWN)}"
        )
    for module in ("harness.run.gate", "harness.run.compile_guard"):
        trace_rules.add(module)  # Dynamo must not compile the guard itself
    with convert_frame.compile_lock:  # a compile that runs now ends first
        for place in places:
            old = getattr(place.owner, place.name)
            new = place.guarded(old)
            setattr(place.owner, place.name, new)
            if place.everywhere:
                _replace_imported(old, new, place.name)
    os.register_at_fork(after_in_child=gate.forget_others)


def _keep_fake_device() -> None:
    """Let torch's stand-in for a missing GPU belong to this thread.

    A CUDA build without a GPU makes one in the thread that traces first. Up to torch 2.11 it is freed when that thread
    ends, and whoever traces next dies of it, also where no two threads ever ran at once (pytorch#178950).
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        pass


def _replace_imported(old: object, new: object, name: str) -> None:
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith("torch.") and vars(module).get(name) is old:
            setattr(module, name, new)


class _CompileLock:
    """Stands where torch has its ``compile_lock``, for the same work, known by the chain of calls.

    torch's is an RLock, which knows threads: whoever took the gate after it would wait for one who waits for it, and an
    autograd thread that compiles for a caller who compiles would wait for that caller.
    """

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._mine = threading.local()

    def acquire(self) -> bool:
        self._stack().append(self._gate.begin_write())
        return True

    def release(self) -> None:
        self._gate.end_write(self._stack().pop())

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()

    def _stack(self) -> list[Seat]:
        if not hasattr(self._mine, "stack"):
            self._mine.stack = []
        stack: list[Seat] = self._mine.stack
        return stack


def _alone(gate: Gate, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def alone(*args: Any, **kwargs: Any) -> Any:
        with gate.writing():
            return function(*args, **kwargs)

    return alone


def _alone_within(gate: Gate, context: Callable[..., AbstractContextManager[Any]]) -> Callable[..., Any]:
    @functools.wraps(context)
    @contextlib.contextmanager
    def alone_within(*args: Any, **kwargs: Any) -> Iterator[Any]:
        with gate.writing(), context(*args, **kwargs) as value:
            yield value

    return alone_within


def _guarded_decorator(gate: Gate, decorate: Callable[..., Any]) -> Callable[..., Any]:
    """``_TorchDynamoContext.__call__``, which makes the function that is called in place of the user's."""

    @functools.wraps(decorate)
    def guarded_decorator(self: Any, fn: Any) -> Any:
        made = decorate(self, fn)
        # A module comes back as an OptimizedModule, whose forward was made by this very method; a class as itself.
        if isinstance(made, torch.nn.Module | type):
            return made
        reader: Any = gate.reads(made)
        reader._torchdynamo_wrapper_id = id(reader)  # how torch tells its wrapper from a copy by functools.wraps
        return reader

    return guarded_decorator


def _guarded_backward(gate: Gate, initialise: Callable[..., None]) -> Callable[..., None]:
    """The metaclass of autograd functions. AOTAutograd makes one for each graph; its ``backward`` is compiled code."""

    @functools.wraps(initialise)
    def guarded_backward(cls: Any, name: str, bases: tuple[type, ...], attributes: dict[str, Any]) -> None:
        if "_aot_id" in attributes and "compiled_bw" in attributes:
            cls.backward = staticmethod(gate.reads(cls.backward))
        initialise(cls, name, bases, attributes)

    return guarded_backward


def _lending(gate: Gate, engine: Callable[..., Any]) -> Callable[..., Any]:
    """The entry of autograd's engine. On CUDA its threads run the backward, and compile it, while the caller waits."""

    @functools.wraps(engine)
    def lending(*args: Any, **kwargs: Any) -> Any:
        if gate.only_waits():
            return engine(*args, **kwargs)
        with gate.lending() as hall, _inherited(hall):
            return engine(*args, **kwargs)

    return lending


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
    before = _lent()
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
    elif (
        hall is None
    ):  # a thread must not end with anything there: it would wait for the GIL (autograd/graph.py of 2.14)
        torch._C._remove_obj_from_tls(_LENT)
    else:
        torch._C._stash_obj_in_tls(_LENT, hall)


def _lent() -> Hall | None:
    hall: Hall | None = torch._C._get_obj_in_tls(_LENT) if torch._C._is_key_in_tls(_LENT) else None
    return hall


if __name__ == "__main__":
    from harness.run.guarded import main  # its own import of this module is the one that counts

    sys.exit(main(sys.argv[1:]))
