"""Small shared libraries, built by the machine's own compiler, to be linked in the ways that go wrong."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def build_library(path: Path, code: str, *flags: str | Path) -> Path:
    """``path``, a shared library of the C source ``code``; its soname is its file name unless a flag says otherwise."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    path.parent.mkdir(parents=True, exist_ok=True)
    soname = () if any("-soname" in str(flag) for flag in flags) else (f"-Wl,-soname,{path.name}",)
    command = [compiler, "-shared", "-fPIC", "-x", "c", "-", "-x", "none", "-o", path, *soname, *flags]
    subprocess.run([str(part) for part in command], input=code, text=True, check=True, capture_output=True)
    return path


_HOLD = """
import ctypes, sys
for path in sys.argv[1:]:
    ctypes.CDLL(path)
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def holding(*paths: Path, python: Path = Path(sys.executable)) -> Iterator[int]:
    """A process that has loaded ``paths`` and waits."""
    command = [str(python), "-c", _HOLD, *map(str, paths)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        assert child.stdout.readline() == b"ready\n"
        yield child.pid
        child.stdin.close()
