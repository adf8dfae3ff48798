"""An environment that pip installed one wheel into, as it was for each test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pin.doctor.wheels import make_venv, make_wheel, pip

SCRIPT = b"#!python\nimport demo\nprint('started')\n"

MODULES = {
    "demo/__init__.py": b"x = 1\n",
    "demo/deep/data.json": b"{}\n",
    "demo/lib/libdemo.so.2": b"\x7fELF library",
    "demo/bin/ptxas": b"\x7fELF program",
}

ENTRY = b"[console_scripts]\ndemo-run = demo.main:app.run\n"


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    entry = {"demo-1.0.dist-info/entry_points.txt": ENTRY, "demo/main.py": b"class app: run = staticmethod(print)\n"}
    return make_wheel(tmp_path_factory.mktemp("wheels"), "demo", "1.0", {**MODULES, **entry}, scripts={"tool": SCRIPT})


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """An environment with ``demo``, as pip installs it: bytecode, scripts and entry points too."""
    python = make_venv(tmp_path_factory.mktemp("installed") / "venv")
    pip(python, "install", "--quiet", "--no-deps", "--no-index", wheel)
    return python


@pytest.fixture
def python(installed: Path, tmp_path: Path) -> Iterator[Path]:
    """The same, put back to what it was after each test."""
    prefix = installed.parent.parent
    shutil.copytree(prefix, tmp_path / "kept", symlinks=True)
    yield installed
    shutil.rmtree(prefix)
    shutil.move(tmp_path / "kept", prefix)
