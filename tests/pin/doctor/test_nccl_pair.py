"""The two NCCL wheels that own one library, with the real files: what pip calls healthy at each stage, and the cure."""

from __future__ import annotations

import hashlib
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.findings import Finding
from tests.pin.doctor.locked import Locked, build, download, only_from
from tests.pin.doctor.wheels import install, pip

LIBRARY = "nvidia/nccl/lib/libnccl.so.2"
HEALTHY = "No broken requirements found."


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    folder = tmp_path_factory.mktemp("nccl")
    cu12, cu13 = download(folder, "nvidia-nccl-cu12==2.27.5", "nvidia-nccl-cu13==2.28.9")
    yield cu12, cu13
    shutil.rmtree(folder)  # 0.5 GB; pytest keeps the folders of the last three times


@pytest.fixture
def env(tmp_path: Path, tools: Path, wheels: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[Locked]:
    """An environment whose lock has nvidia-nccl-cu12."""
    for name, value in only_from(tmp_path / "env" / "index", tmp_path / "cache").items():
        monkeypatch.setenv(name, value)
    yield build(tmp_path / "env", tools / "bin" / "uv", wheels[:1])
    shutil.rmtree(tmp_path)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def in_wheel(wheel: Path) -> str:
    """The digest of the library as it is in the wheel, which no installer has touched."""
    with zipfile.ZipFile(wheel) as archive:
        return sha256(archive.read(LIBRARY))


def ours(findings: list[Finding]) -> list[tuple[str, str, str]]:
    return [(finding.kind, finding.severity, finding.subject) for finding in findings if finding.kind.startswith("own")]


@pytest.mark.slow
def test_cu12_then_cu13_then_cu13_uninstalled_and_mended(env: Locked, wheels: tuple[Path, Path]) -> None:
    cu12, cu13 = map(in_wheel, wheels)
    library = env.site / LIBRARY
    fresh = env.bytes()
    assert sha256(library.read_bytes()) == cu12 != cu13
    assert env.pip_check() == HEALTHY
    assert env.findings() == []

    install(env.python, wheels[1])
    assert sha256(library.read_bytes()) == cu13
    assert env.pip_check() == HEALTHY
    assert ours(env.findings()) == [("owner.overwritten", "broken", "nvidia-nccl-cu12")]

    pip(env.python, "uninstall", "--yes", "--quiet", "nvidia-nccl-cu13")
    assert not library.exists()
    assert env.pip_check() == HEALTHY
    listed = pip(env.python, "list", "--format=freeze").stdout
    assert "nvidia-nccl-cu12==2.27.5" in listed
    assert ours(env.findings()) == [("owner.lost", "broken", "nvidia-nccl-cu12")]

    plan = env.mend()
    assert [(step.action, step.name) for step in plan.steps] == [("reinstall", "nvidia-nccl-cu12")]
    assert sha256(library.read_bytes()) == cu12
    assert env.findings() == []
    assert env.bytes() == fresh


@pytest.mark.slow
def test_an_overwritten_library_is_given_back_while_the_other_stays(env: Locked, wheels: tuple[Path, Path]) -> None:
    cu12 = in_wheel(wheels[0])
    install(env.python, wheels[1])
    before = (env.site / LIBRARY).stat().st_ino
    with (env.site / LIBRARY).open("rb") as mapped:
        env.mend()
        assert sha256(mapped.read()) == in_wheel(wheels[1])  # who had the other open keeps it whole
    assert (env.site / LIBRARY).stat().st_ino != before
    assert sha256((env.site / LIBRARY).read_bytes()) == cu12
    assert list(env.site.glob("nvidia_nccl_cu13-*"))

    env.mend("nvidia-nccl-cu13")
    assert env.findings() == []
    assert sha256((env.site / LIBRARY).read_bytes()) == cu12
