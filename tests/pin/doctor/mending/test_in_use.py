"""An environment that any process runs in or has a library of is not mended, and the process is named."""

from __future__ import annotations

import subprocess
import sys

import pytest

from harness.errors import EnvironmentFault
from harness.pin.doctor.mending.in_use import what_runs
from tests.pin.doctor.breakages import NCCL, edit, unharmed
from tests.pin.doctor.locked import Locked
from tests.pin.doctor.trees import snapshot


@pytest.mark.parametrize("called", ["{bin}/python", "python"])
def test_a_run_in_the_environment_is_not_pulled_from_under(locked: Locked, called: str) -> None:
    edit(locked.site / "small.py")
    before = snapshot(locked.prefix)
    folder = locked.prefix / "bin"
    code = "print('up', flush=True); import time; time.sleep(60)"
    environ = {"PATH": f"{folder}:/usr/bin:/bin"}
    arguments = [called.format(bin=folder), "-c", code]
    with subprocess.Popen(arguments, executable=folder / "python", stdout=subprocess.PIPE, env=environ) as run:
        assert run.stdout is not None
        run.stdout.readline()
        with pytest.raises(EnvironmentFault, match=rf"in use by process {run.pid} \(python -c print"):
            locked.mend()
        run.kill()
    unharmed(locked, before)
    locked.mend()


LONG = "/work/models/experiments/2026/a-very-long-name-of-a-folder/train_the_draft.py"


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["/tmp/a/cpu-1/bin/python3.11", "train.py", "--lr", "1"], "python3.11 train.py"),
        (["/tmp/a/bin/python", "-m", "vllm.serve", "--port", "1"], "python -m vllm.serve"),
        (["python", "-I", "-X", "dev", "-W", "error", "-u", "-m", "jupyter"], "python -m jupyter"),
        (["python", "-c", "import a\nprint(1)"], "python -c import a print(1)"),
        (["python", LONG], "python /work/models/exp…-of-a-folder/train_the_draft.py"),
        (["/tmp/a/bin/python"], "python"),
        (["python", "-"], "python -"),
        (["vllm: worker 1 of 4"], "vllm: worker 1 of 4"),
        ([], "a process of the system"),
    ],
)
def test_a_process_is_named_by_what_it_runs(words: list[str], shown: str) -> None:
    assert what_runs(words) == shown


def test_a_library_that_any_process_has_mapped_is_use(locked: Locked) -> None:
    edit(locked.site / "small.py")
    code = f"""
import mmap
file = open({str(locked.site / NCCL)!r}, "rb")
mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
print("up", flush=True)
__import__("time").sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        run.stdout.readline()
        with pytest.raises(EnvironmentFault, match=f"{run.pid}"):
            locked.mend()
        run.kill()
