"""Small shared libraries, built by the machine's own compiler, to be linked in the ways that go wrong."""

from __future__ import annotations

import shutil
import subprocess
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
