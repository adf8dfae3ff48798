"""An environment with a torch and its NCCL for each test to break."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.pin.doctor.linked import nccl, nccl_user
from tests.pin.doctor.wheels import install, make_venv, make_wheel


@pytest.fixture
def built(tmp_path: Path) -> Path:
    return tmp_path / "built"


@pytest.fixture(scope="session")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("healthy")
    python = make_venv(folder / "venv")
    torch = make_wheel(folder, "torch", "2.10.0", nccl_user(folder / "built"), requires=["nvidia-nccl-cu12"])
    install(python, torch, make_wheel(folder, "nvidia-nccl-cu12", "2.27.5", nccl(folder / "built" / "nccl")))
    return folder


@pytest.fixture
def trained(healthy: Path, tmp_path: Path) -> Path:
    """An environment with a torch and its NCCL, to break; what they were built from lies in ``built``."""
    for name in ("venv", "built"):
        shutil.copytree(healthy / name, tmp_path / name, symlinks=True)
    return tmp_path / "venv" / "bin" / "python"
