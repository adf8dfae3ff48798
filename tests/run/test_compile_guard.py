"""The guard on real torch, in processes of their own: as a program around another, and between compiles and calls."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from harness.run.compile_hooks import CompileLock, Dynamic
from harness.run.gate import Gate

ROOT = Path(__file__).resolve().parents[2]
WATCHDOG_S = 240  # a deadlock; importing torch takes seconds, the rest none


def python(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-X", "faulthandler", *arguments]
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=WATCHDOG_S, check=False
    )


# --- as a program ----------------------------------------------------------------------------------------


def test_a_script_is_run_as_python_alone_runs_it(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("WORD = 'found'\n")
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, beside\n"
        "def fail():\n    raise SystemExit(7) if sys.argv[1] == 'exit' else ValueError('broke')\n"
        "print(__name__, sys.argv[1:], beside.WORD, sys.modules['__main__'].fail is fail)\n"
        "fail()\n"
    )
    done = python("-m", "harness.run.compile_guard", str(script), "exit", "a b")
    assert (done.returncode, done.stdout) == (7, "__main__ ['exit', 'a b'] found True\n")
    guarded = python("-m", "harness.run.compile_guard", str(script), "raise")
    alone = python(str(script), "raise")
    assert guarded.returncode == alone.returncode == 1
    assert guarded.stdout == alone.stdout
    assert guarded.stderr == alone.stderr  # no frame of ours in the traceback


def test_a_script_knows_where_it_is_as_python_alone_tells_it(tmp_path: Path) -> None:
    """Absolute, so that it still does once it has changed its folder."""
    (tmp_path / "below").mkdir()
    (tmp_path / "where.py").write_text("import os, sys\nos.chdir('/')\nprint(__file__, sys.argv[0])\n")
    (tmp_path / "below" / "link.py").symlink_to(tmp_path / "where.py")
    for typed in ("../where.py", "./link.py", "link.py", str(tmp_path / "where.py")):
        alone = python(typed, cwd=tmp_path / "below")
        guarded = python("-m", "harness.run.compile_guard", typed, cwd=tmp_path / "below")
        assert guarded.stdout == alone.stdout
        assert guarded.stdout.startswith("/")


def test_help_is_no_fault() -> None:
    done = python("-m", "harness.run.compile_guard", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "usage: python -m harness.run.compile_guard [-m MODULE | SCRIPT] ARGS...\n"


def test_a_python_without_torch_is_one_line() -> None:
    hidden = (
        "import sys, runpy; sys.modules['torch'] = None; sys.argv = ['x']\n"
        "runpy.run_module('harness.run.compile_guard', run_name='__main__')"
    )
    done = python("-c", hidden)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2
    assert line.startswith("compile guard: ")
    assert line.endswith(" has no torch, so there is nothing to guard")


def test_what_cannot_be_run_is_one_line(tmp_path: Path) -> None:
    for arguments in ([], ["-m"], [str(tmp_path / "nowhere.py")]):
        done = python("-m", "harness.run.compile_guard", *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        (line,) = done.stderr.splitlines()
        assert line.endswith("usage: python -m harness.run.compile_guard [-m MODULE | SCRIPT] ARGS...")


INSTALLED = """
import warnings, torch
from harness.errors import EnvironmentFault
from harness.run import compile_guard

assert compile_guard.shown("2.11.0+cu130") and not compile_guard.shown("2.12.0")
whole = torch.fx.Tracer.trace
del torch.fx.Tracer.trace
before = torch.autograd.graph._engine_run_backward
try:
    compile_guard.install()
except EnvironmentFault as error:
    assert "has no Tracer.trace" in str(error), error
else:
    raise AssertionError("installed without a place that it holds on to")
assert torch.autograd.graph._engine_run_backward is before  # nothing is patched
torch.fx.Tracer.trace = whole
torch.__version__ = "9.9.9"
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    guard = compile_guard.install()
    assert compile_guard.install() is guard
assert [str(one.message)[:58] for one in said] == ["the compile guard has not been shown on torch 9.9.9, only "], said
"""


def test_it_is_installed_once_and_whole_or_not_at_all() -> None:
    done = python("-c", INSTALLED)
    assert done.returncode == 0, done.stderr


# --- what a call asks of the compiler ---------------------------------------------------------------------


class Process:
    """Stands for torch's settings up to 2.11: one value, which a call sets and puts back."""

    def __init__(self) -> None:
        self.dynamic: bool | None = None

    def make(self, enable: bool) -> Callable[[], Callable[[], None]]:
        def enter() -> Callable[[], None]:
            before, self.dynamic = self.dynamic, enable
            return lambda: setattr(self, "dynamic", before)

        return enter


def overlapped(make: Callable[[bool], Callable[[], Callable[[], None]]], seen: Callable[[], object]) -> list[object]:
    """What the first of two calls sees, and what is left, where the second begins in it and ends after it."""
    begun = threading.Barrier(2, timeout=WATCHDOG_S)
    first_ended = threading.Event()
    found: list[object] = []

    def second() -> None:
        end = make(True)()
        begun.wait()
        assert first_ended.wait(WATCHDOG_S)
        end()

    end = make(False)()
    thread = threading.Thread(target=second, daemon=True)
    thread.start()
    begun.wait()
    found.append(seen())
    end()
    first_ended.set()
    thread.join(WATCHDOG_S)
    assert not thread.is_alive()
    return found


def test_a_thread_compiles_as_it_asked_and_leaves_nothing_behind() -> None:
    alone = Process()
    assert overlapped(alone.make, lambda: alone.dynamic) == [True]  # not what it asked for
    assert alone.dynamic is False  # and nobody is left who would put it back

    guarded = Process()
    dynamic = Dynamic(guarded.make)
    lock = CompileLock(Gate(), dynamic)
    assert overlapped(dynamic, lock.around(lambda: guarded.dynamic)) == [False]
    assert guarded.dynamic is None
    with lock:
        assert guarded.dynamic is None  # nobody asks any more


# --- between compiles and calls --------------------------------------------------------------------------

APART = """
import threading, time, torch
from torch._functorch.aot_autograd import aot_module_simplified
from harness.run.compile_guard import install

guard = install()
lock, inside = threading.Lock(), {"compiling": 0, "calling": 0}
overlaps, compiled = [], []

def enter(what, other):
    with lock:
        inside[what] += 1
        if inside[other] or inside["compiling"] > 1:
            overlaps.append((what, dict(inside)))

def leave(what):
    with lock:
        inside[what] -= 1

def compiler(graph, _inputs):
    enter("compiling", "calling")
    time.sleep(0.02)  # long enough to be met by whoever could
    compiled.append(threading.current_thread().name)
    leave("compiling")
    def call(*arguments):
        enter("calling", "compiling")
        time.sleep(0.001)
        out = graph.forward(*arguments)
        leave("calling")
        return out
    return call

def boxed(graph, inputs):
    from functorch.compile import make_boxed_func
    return make_boxed_func(compiler(graph, inputs))

def backend(graph, inputs):
    return aot_module_simplified(graph, inputs, fw_compiler=boxed, bw_compiler=boxed)

def work(number):
    exec(f"def function_{number}(x): return (x.sin() * x).sum()", globals())
    function = torch.compile(globals()[f"function_{number}"], backend=backend, dynamic=False)
    for length in [3, 3, 4, 3, 5, 4, 6, 3]:  # first calls, and compiles in mid-training
        for _ in range(4):
            x = torch.ones(length + 4 * number, requires_grad=True)
            function(x).backward()  # compiled lazily, when it is first called

threads = [threading.Thread(target=work, args=(number,), name=str(number)) for number in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not overlaps, overlaps[:3]
assert len(compiled) == 3 * 4 * 2, len(compiled)  # each thread: four lengths, forward and backward
assert guard.stats().readers_waited_s > 0
assert not guard.gate.busy
print("apart")
"""


def test_no_compile_overlaps_a_call_of_another_thread() -> None:
    done = python("-W", "ignore", "-c", APART)
    assert done.stdout == "apart\n", done.stderr[-3000:]


ELSEWHERE = """
import threading, torch
from harness.run.compile_guard import install

guard = install()
DEEP = 70  # more than 60 backwards in each other, and the engine goes on in a thread of its pool
seen = []

class Nested(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, depth):
        ctx.depth = depth
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        with torch.enable_grad():
            leaf = torch.ones(2, requires_grad=True)
            if ctx.depth:
                Nested.apply(leaf, ctx.depth - 1).sum().backward()
            else:
                seen.append(threading.get_ident())
                torch.compile(lambda x: (x.sin() * x).sum(), backend="aot_eager")(leaf).backward()
        return gradient, None

def backward_deep_inside():
    Nested.apply(torch.ones(2, requires_grad=True), DEEP).sum().backward()

def stranger():
    function = torch.compile(lambda x: x.cos() + 1, backend="aot_eager", dynamic=False)
    for length in range(2, 7):
        function(torch.ones(length))

others = [threading.Thread(target=stranger) for _ in range(2)]
for other in others:
    other.start()
guard.gate.reads(backward_deep_inside)()     # the caller holds a read, and waits for one who compiles
with guard.gate.writing():                   # the caller compiles, and waits for one who compiles
    backward_deep_inside()
for other in others:
    other.join()
assert len(seen) == 2 and threading.get_ident() not in seen, seen
assert not guard.gate.busy
print("no deadlock")
"""


def test_a_compile_on_autograds_own_thread_whose_caller_waits_for_it() -> None:
    """What CUDA does with every backward; on the CPU the engine leaves its caller's thread where it nests deeply."""
    done = python("-W", "ignore", "-c", ELSEWHERE)
    assert done.stdout == "no deadlock\n", done.stderr[-3000:]
