"""Failures that are made here: real children, started and recorded by the runner, read from their folders."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.comparison import Failure
from harness.evidence import Evidence
from harness.explain.failing.failures import recognise
from harness.pin.caches import VARIABLES
from harness.places import Places
from harness.records import BuiltEnvironment, Result, RunSpec
from harness.run.folder import RunFolder
from harness.run.gather import gather
from harness.run.runner import Order, execute
from harness.run.verdict import judge
from tests.explain.failing.logbook import a_run
from tests.watcher import Watcher

ROOT = Path(__file__).resolve().parents[3]
HERE = BuiltEnvironment("", Path(sys.executable), Path(sysconfig.get_path("purelib")))
CPU = sorted((ROOT / ".harness/envs").glob("cpu-*/bin/python"))

Fail = Callable[..., Failure]


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fail:
    """Run a script as a recorded run, and say from its folder how it failed."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)

    def run(script: str) -> Failure:
        (tmp_path / "train.py").write_text(script)
        spec = RunSpec(recipe="", env="", argv=(sys.executable, "train.py"))
        where = Places(root=ROOT, state=tmp_path / "state", runs=tmp_path / "runs")
        made = execute(Order(spec, HERE, tmp_path), where, Watcher())
        failure = recognise(gather(RunFolder(Path(made.folder))))
        assert failure is not None
        return failure

    return run


@pytest.fixture
def fail(tmp_path: Path) -> Fail:
    """Run a script as a plain child, judged as the runner judges its own: a tenth of the time of a recorded run."""

    def run(script: str, *argv: str, python: Path = Path(sys.executable)) -> Failure:
        (tmp_path / "train.py").write_text(script)
        with (tmp_path / "stderr.log").open("wb") as stderr:
            child = subprocess.run(argv or (python, "train.py"), cwd=tmp_path, stdout=subprocess.PIPE, stderr=stderr)
        verdict = judge(child.returncode, [], None, False, tmp_path / "stderr.log", memory_ran_out=False)
        facts = {"context.cwd": str(tmp_path), "context.python": str(python)}
        made = a_run(Result(verdict.status, verdict.exit_code, verdict.signal, verdict.reason), env="")
        said = (tmp_path / "stderr.log").read_text("utf-8", "replace").splitlines()
        failure = recognise(Evidence(made, facts, stderr=tuple(said), stdout=tuple(child.stdout.decode().splitlines())))
        assert failure is not None
        return failure

    return run


def test_threads_that_died_and_the_exception_that_they_led_to(record: Fail) -> None:
    failure = record(
        f"import sys, threading; sys.path.insert(0, {str(ROOT)!r})\n"
        "from harness.run.events import Recorder\n"
        "def work(n):\n"
        "    {}['tokens']\n"
        "record = Recorder.from_environment()\n"
        "record.started(50, {'workload.train.steps': 50})\n"
        "for n in range(1, 8):\n"
        "    with record.step(n): pass\n"
        "threads = [threading.Thread(target=work, args=(n,), name=f'drafter-{n}') for n in range(3)]\n"
        "for t in threads: t.start(); t.join()\n"
        "raise RuntimeError('no drafter is left')\n"
    )
    assert failure.signature == "python-exception"
    assert (
        failure.sentence == "a Python exception ended it in 3 threads: KeyError: 'tokens', in train.py, line 4 (work)"
    )
    assert any(line.startswith('File "') for line in failure.lines)
    assert failure.last.startswith("step 7 of 50, ")


def test_an_exception_names_the_last_line_of_ones_own(fail: Fail) -> None:
    failure = fail("import json\ndef load():\n    return json.loads('{')\nload()\n")
    assert "JSONDecodeError" in failure.sentence
    assert failure.sentence.endswith("in train.py, line 3 (load)")


@pytest.mark.parametrize(
    ("script", "signature"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "segfault"),
        ("import ctypes, faulthandler; faulthandler.enable(); ctypes.string_at(0)", "segfault"),
        ("import os; os.kill(os.getpid(), 9)", "killed-from-outside"),
        ("import os; os.abort()", "aborted"),
        ("import os; os.kill(os.getpid(), 4)", "illegal-instruction"),
        ("with open('/dev/full', 'w') as file:\n    file.write('x' * 100000)\n", "disk-full"),
        ("open('/nowhere/corpus-1.1M.bin')", "file-missing"),
        ("import ctypes; ctypes.CDLL('libcudnn.so.9')", "library-missing"),
        ("bytearray(1 << 62)", "host-oom"),
        ("import asyncio\nasync def main():\n    async with asyncio.TaskGroup() as group:\n"
         "        group.create_task(one())\nasync def one():\n    raise ValueError('in a task')\nasyncio.run(main())\n",
         "python-exception"),
        ("import sys; sys.exit(3)", ""),
        ("import sys; sys.stderr.buffer.write(b'\\xff\\xfe no sense\\n'); sys.exit(3)", ""),
    ],
)  # fmt: skip
def test_what_a_child_does_is_recognised(fail: Fail, script: str, signature: str) -> None:
    assert fail(script).signature == signature


def test_a_crash_names_the_last_line_that_python_was_at(record: Fail) -> None:
    script = "import ctypes, faulthandler\nfaulthandler.enable()\ndef gather():\n    ctypes.string_at(0)\ngather()\n"
    assert "the last Python line was train.py, line 4 (gather)" in record(script).sentence


def test_a_task_of_a_group_is_named_and_not_the_group(fail: Fail) -> None:
    script = (
        "def one():\n    raise ValueError('in a task')\n"
        "try:\n    one()\nexcept ValueError as error:\n    raise ExceptionGroup('tasks', [error, KeyError(1)])\n"
    )
    assert "ValueError: in a task, in train.py, line 2 (one)" in fail(script).sentence


def test_a_shell_that_hides_the_signal(fail: Fail) -> None:
    crash = f"{sys.executable} -c 'import os; os.kill(os.getpid(), 11)'; exit $?"
    assert fail("", "sh", "-c", crash).signature == "segfault"


def test_bars_are_not_what_is_shown_of_a_run_that_says_nothing(fail: Fail) -> None:
    script = (
        "import sys\nprint('reading', file=sys.stderr)\n"
        "for n in range(100): sys.stderr.write(f'\\r {n}%|##  | {n}/100 [00:01<00:09, 9.9it/s]')\n"
        "sys.stderr.write('\\n\\x1b[33mgiving up\\x1b[0m\\n'); sys.exit(2)\n"
    )
    failure = fail(script)
    assert failure.signature == ""
    assert failure.lines == ("reading", "giving up")


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler to make a library with")
def test_a_library_that_lacks_a_symbol(fail: Fail, tmp_path: Path) -> None:
    (tmp_path / "mine.c").write_text("int ncclMemFree(void); int use(void) { return ncclMemFree(); }\n")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", "libtorch_cuda.so", "mine.c"], cwd=tmp_path, check=True)
    failure = fail("import ctypes, os; ctypes.CDLL('./libtorch_cuda.so', mode=os.RTLD_NOW)")
    assert failure.signature == "library-mixed"
    assert "libtorch_cuda.so does not find the symbol ncclMemFree" in failure.sentence
    assert f"harness doctor --python {sys.executable}" in failure.advice


# --- torch's own texts -------------------------------------------------------------------------------------

# Another thread traces while three call: what happens by chance when threads compile, made to happen here.
RACE = """
import threading, torch
from torch.fx import symbolic_trace
tracing, called = threading.Event(), threading.Event()

@torch.compile(backend="eager")
def attend(x):
    return torch.sin(x) + 1

class Slow(torch.nn.Module):
    def forward(self, x):
        tracing.set()
        called.wait()
        return x + 1

attend(torch.ones(3))
tracer = threading.Thread(target=symbolic_trace, args=(Slow(),))
tracer.start()
tracing.wait()
drafters = [threading.Thread(target=attend, args=(torch.ones(3),), name=f"drafter-{n}") for n in range(3)]
for thread in drafters:  # one after the other, so that their tracebacks do not run into each other
    thread.start()
    thread.join()
called.set()
tracer.join()
raise SystemExit("the drafters died")
"""

TRACED = """
import torch
from torch.fx import symbolic_trace

@torch.compile(backend="eager")
def attend(x):
    return torch.sin(x) + 1

class Model(torch.nn.Module):
    def forward(self, x):
        return attend(x)

symbolic_trace(Model())
"""

DENSE = """
import torch
from torch.nn.attention.flex_attention import flex_attention

q = torch.randn(1, 1, 1, 16).expand(1, 64, 1_000_000, 16)
flex_attention(q, q, q)
"""


@pytest.mark.slow
@pytest.mark.skipif(not CPU, reason="the cpu environment is not built here")
@pytest.mark.parametrize(
    ("script", "signature", "says"),
    [
        (RACE, "fx-tracing-race", "in 3 threads"),
        (TRACED, "fx-trace-of-compiled", "from train.py, line 11 (forward)"),
        (DENSE, "dense-attention", "it asked for 256000000000000 bytes"),
        ("import torch\ntorch.empty(10**15)\n", "host-oom", "4000000000000000 bytes were asked for at once"),
        ("import torch\ntorch.ones(1, device='cuda')\n", "torch-without-cuda", "a build without CUDA"),
    ],
)
def test_torchs_own_words_are_recognised(fail: Fail, script: str, signature: str, says: str) -> None:
    """The race needs a torch whose tracing flag belongs to the process: 2.13 and before."""
    failure = fail(script, python=CPU[-1])
    assert failure.signature == signature
    assert says in failure.sentence
