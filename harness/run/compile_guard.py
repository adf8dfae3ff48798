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

import functools
import os
import sys
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

try:
    import torch
except ModuleNotFoundError as missing:
    if __name__ != "__main__" or missing.name != "torch":
        raise
    sys.stderr.write(f"compile guard: {sys.executable} has no torch, so there is nothing to guard\n")
    sys.exit(2)

from harness.errors import EnvironmentFault
from harness.run.compile_hooks import (
    CompileLock,
    Dynamic,
    alone_within,
    guarded_backward,
    guarded_decorator,
    lending,
    lent,
)
from harness.run.gate import Gate, Stats

SHOWN = ("2.10.0", "2.11.0", "2.13.0", "2.14.1")
"""The versions of torch on which the guard has been shown to hold: docs/compile-threads.md."""


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
            gate = Gate(lent)
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

    within = functools.partial(alone_within, gate)
    dynamic = Dynamic(getattr(eval_frame, "make_set_enable_dynamic", None))
    lock = CompileLock(gate, dynamic)
    return [
        _Place(convert_frame, "compile_lock", lambda _: lock, everywhere=True),
        _Place(convert_frame, "_fullgraph_capture_frame", lock.around),  # export and ahead-of-time compiling
        _Place(eval_frame, "make_set_enable_dynamic", lambda _: dynamic),
        # The outermost of the contexts around the lazily compiled backward; it is used for nothing else there.
        _Place(runtime_wrappers, "tracing", within),
        _Place(hops, "_set_compilation_env", within, everywhere=True),  # flex_attention and its like, eagerly
        _Place(torch.fx.Tracer, "trace", lock.around),
        _Place(eval_frame._TorchDynamoContext, "__call__", functools.partial(guarded_decorator, gate)),
        _Place(function.FunctionMeta, "__init__", functools.partial(guarded_backward, gate)),
        _Place(graph, "_engine_run_backward", functools.partial(lending, gate), everywhere=True),
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
    for module in ("harness.run.halls", "harness.run.gate", "harness.run.compile_hooks", "harness.run.compile_guard"):
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


if __name__ == "__main__":
    from harness.run.guarded import main  # its own import of this module is the one that counts

    sys.exit(main(sys.argv[1:]))
