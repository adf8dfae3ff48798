"""Where inductor cannot work, the run says so before it is slow."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest
import torch

from experiments.dflash.compiling import choose_backend
from harness.errors import UsageError

CPU = torch.device("cpu")


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler and headers that this test may take away."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "g++"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (tmp_path / "Python.h").touch()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path) if name == "include" else "")
    return program


@pytest.mark.usefixtures("compiler")
def test_auto_is_inductor_where_it_can_work() -> None:
    assert choose_backend("auto", CPU) == ("inductor", "")
    assert choose_backend("inductor", CPU) == ("inductor", "")
    assert choose_backend("none", CPU) == ("none", "")


def test_without_a_compiler_auto_runs_uncompiled_and_says_so(compiler: Path) -> None:
    compiler.unlink()
    backend, why = choose_backend("auto", CPU)
    assert backend == "none"
    assert "runs uncompiled" in why
    assert "apt-get install g++" in why
    with pytest.raises(UsageError, match=r"compile=inductor needs a C\+\+ compiler.*compile=none"):
        choose_backend("inductor", CPU)
    assert choose_backend("aot_eager", CPU) == ("aot_eager", "")


@pytest.mark.usefixtures("compiler")
def test_without_headers_auto_runs_uncompiled_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "Python.h").unlink()
    assert "apt-get install python3-dev" in choose_backend("auto", CPU)[1]


def test_a_compiler_of_another_name_is_looked_for_by_it(compiler: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler.rename(compiler.with_name("clang++"))
    monkeypatch.setenv("CXX", "clang++")
    assert choose_backend("auto", CPU)[0] == "inductor"


def test_on_cuda_attention_is_never_left_uncompiled_unasked(compiler: Path) -> None:
    compiler.unlink()
    assert choose_backend("auto", torch.device("cuda", 0)) == ("inductor", "")
