"""How the first user's environment was lost, replayed: locked, contaminated, cleaned up the wrong way, and mended."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from harness.findings import Finding
from harness.pin.doctor.mending import journal
from tests.pin.doctor.locked import Locked, build, download, only_from
from tests.pin.doctor.placed import torch_files
from tests.pin.doctor.wheels import install, make_wheel, pip

HEALTHY = "No broken requirements found."

CUDA_13 = {
    "nvidia-cudnn-cu13": "9.19.0.56",
    "nvidia-cusparselt-cu13": "0.8.0",
    "nvidia-nccl-cu13": "2.28.9",
    "nvidia-nvshmem-cu13": "3.4.5",
}
"""What torch 2.11.0 of PyPI requires, of the families that install into one folder for every CUDA."""

CUDA_12 = {
    "nvidia-cudnn-cu12": "9.10.2.21",
    "nvidia-cusparselt-cu12": "0.7.1",
    "nvidia-nccl-cu12": "2.27.5",
    "nvidia-nvshmem-cu12": "3.3.20",
}
"""What torch 2.9.1 requires of the same families."""

LIBRARIES = {
    "cudnn": ("libcudnn.so.9", "libcudnn_ops.so.9", "libcudnn_graph.so.9"),
    "cusparselt": ("libcusparseLt.so.0",),
    "nccl": ("libnccl.so.2",),
    "nvshmem": ("libnvshmem_host.so.3", "nvshmem_transport_ibrc.so.3"),
}


def nvidia_wheels(folder: Path, pins: Mapping[str, str]) -> list[Path]:
    """A wheel for each of ``pins`` with the libraries of its family, all with an equal header and different code."""
    made = []
    for name, version in pins.items():
        family = name.split("-")[1]
        files = {f"nvidia/{family}/lib/{library}": f"{library} of {name}".encode() for library in LIBRARIES[family]}
        files |= {f"nvidia/{family}/include/{family}.h": b"#pragma once\n", "nvidia/__init__.py": b""}
        made.append(make_wheel(folder, name, version, files))
    return made


def torch_wheel(folder: Path, build: str, requires: Sequence[str]) -> Path:
    files = {**torch_files(build), "torch/__init__.py": b"", "torch/lib/libtorch_cuda.so": f"torch {build}".encode()}
    return make_wheel(folder, "torch", build.partition("+")[0], files, requires)


def pinned(pins: Mapping[str, str]) -> list[str]:
    return [f"{name}=={version}" for name, version in pins.items()]


def locked_wheels(folder: Path) -> list[Path]:
    torch = torch_wheel(folder, "2.11.0", [*pinned(CUDA_13), "triton==3.6.0", "nvidia-cublas==13.1.0.3"])
    return [
        torch,
        make_wheel(folder, "triton", "3.6.0", {"triton/__init__.py": b"", "triton/_C/libtriton.so": b"triton 3.6.0"}),
        make_wheel(folder, "nvidia-cublas", "13.1.0.3", {"nvidia/cu13/lib/libcublas.so.13": b"cublas"}),
        *nvidia_wheels(folder, CUDA_13),
    ]


def contaminants(folder: Path) -> list[Path]:
    """What ``pip install sglang`` brought: an older torch for CUDA 12.8, its libraries and its triton."""
    return [
        make_wheel(folder, "sglang", "0.5.5", {"sglang/__init__.py": b""}, ["torch==2.9.1", "flashinfer-python"]),
        make_wheel(folder, "flashinfer-python", "0.5.2", {"flashinfer/__init__.py": b""}, ["torch"]),
        torch_wheel(folder, "2.9.1+cu128", [*pinned(CUDA_12), "triton==3.5.1"]),
        make_wheel(folder, "triton", "3.5.1", {"triton/__init__.py": b"", "triton/_C/libtriton.so": b"triton 3.5.1"}),
        *nvidia_wheels(folder, CUDA_12),
    ]


def kinds(findings: Sequence[Finding]) -> set[tuple[str, str]]:
    return {(finding.kind, finding.subject) for finding in findings}


def clean_up_the_wrong_way(env: Locked, wheels: Sequence[Path]) -> None:
    """As a person does: uninstall what should not be there, and install the right torch and triton again."""
    pip(env.python, "uninstall", "--yes", "--quiet", "sglang", "flashinfer-python", *CUDA_12)
    install(env.python, *(wheel for wheel in wheels if wheel.name.startswith(("torch-", "triton-"))))


def test_the_story_of_an_environment_that_every_tool_called_healthy(
    tmp_path: Path, tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in only_from(tmp_path / "env" / "index", tmp_path / "cache").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(journal, "_sync_file_system", lambda _: None)
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.mkdir()
    bad.mkdir()
    wheels = locked_wheels(good)
    env = build(tmp_path / "env", tools / "bin" / "uv", wheels)
    fresh = env.bytes()
    assert env.pip_check() == HEALTHY
    assert env.findings() == []

    # Contaminated: pip is content, since everybody's requirements are met.
    install(env.python, *contaminants(bad))
    assert env.pip_check() == HEALTHY
    found = kinds(env.findings())
    assert found >= {("owner.overwritten", name) for name in CUDA_13}
    assert found >= {("lock.extra", name) for name in ("sglang", "flashinfer-python", *CUDA_12)}
    assert found >= {("cuda.two-majors", name) for name in CUDA_12}
    assert found >= {("lock.version", "torch"), ("lock.version", "triton")}

    # Cleaned up the wrong way: the names and versions are the lock's again, and the libraries are gone.
    clean_up_the_wrong_way(env, wheels)
    assert env.pip_check() == HEALTHY
    assert not (env.site / "nvidia/cudnn/lib/libcudnn.so.9").exists()
    for name in CUDA_13:
        assert list(env.site.glob(f"{name.replace('-', '_')}-*.dist-info")), f"pip still lists {name}"
    found_now = env.findings()
    assert kinds(found_now) >= {("owner.lost", name) for name in CUDA_13}
    assert all(finding.fix == "harness doctor x --fix" for finding in found_now if finding.kind == "owner.lost")
    named = " ".join(finding.summary for finding in found_now)
    for library in ("libcudnn", "libcusparseLt", "libnccl", "libnvshmem"):
        assert library in named

    # Mended: what was lost is back, nothing else was installed again, and the bytes are those of a fresh install.
    plan = env.mend()
    assert {(step.action, step.name) for step in plan.steps} == {("reinstall", name) for name in CUDA_13}
    assert env.findings() == []
    assert without_installers_notes(env.bytes()) == without_installers_notes(fresh)


def without_installers_notes(files: Mapping[str, str]) -> dict[str, str]:
    """The files but for what pip and uv note differently beside them."""
    notes = ("INSTALLER", "REQUESTED", "RECORD", "direct_url.json", "uv_cache.json")
    return {path: content for path, content in files.items() if not path.endswith(notes)}


def test_contamination_is_mended_at_once_where_the_extras_may_go(
    tmp_path: Path, tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in only_from(tmp_path / "env" / "index", tmp_path / "cache").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(journal, "_sync_file_system", lambda _: None)
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.mkdir()
    bad.mkdir()
    env = build(tmp_path / "env", tools / "bin" / "uv", locked_wheels(good))
    fresh = env.bytes()
    install(env.python, *contaminants(bad))
    env.mend("sglang", "flashinfer-python", *CUDA_12)
    assert env.findings() == []
    assert env.bytes() == fresh


@pytest.fixture
def roomy(tmp_path: Path) -> Iterator[Path]:
    """A folder that is emptied at the end: pytest keeps those of the last three times."""
    yield tmp_path
    shutil.rmtree(tmp_path)


@pytest.mark.slow
def test_the_story_with_the_real_libraries(roomy: Path, tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The four families that torch lost, 2 GB of them, and a torch that is small and requires them."""
    good, bad = roomy / "good", roomy / "bad"
    good.mkdir()
    bad.mkdir()
    real, other = download(good, *pinned(CUDA_13)), download(bad, *pinned(CUDA_12))
    for name, value in only_from(roomy / "env" / "index", roomy / "cache").items():
        monkeypatch.setenv(name, value)
    blas, other_blas = (  # what cuDNN asks for, and what nobody here needs in its full size
        make_wheel(good, "nvidia-cublas", "13.1.0.3", {"nvidia/cu13/lib/cublas.txt": b""}),
        make_wheel(bad, "nvidia-cublas-cu12", "12.8.4.1", {"nvidia/cublas/lib/cublas.txt": b""}),
    )
    wheels = [torch_wheel(good, "2.11.0", pinned(CUDA_13)), blas, *real]
    env = build(roomy / "env", tools / "bin" / "uv", wheels)
    fresh = env.bytes()
    assert env.pip_check() == HEALTHY
    assert not [f for f in env.findings() if f.severity in ("broken", "dangerous") and not f.kind.startswith("link.")]

    install(env.python, torch_wheel(bad, "2.9.1+cu128", pinned(CUDA_12)), other_blas, *other)
    assert env.pip_check() == HEALTHY
    assert kinds(env.findings()) >= {("owner.overwritten", name) for name in CUDA_13}

    pip(env.python, "uninstall", "--yes", "--quiet", *CUDA_12, "nvidia-cublas-cu12")
    install(env.python, wheels[0])
    assert env.pip_check() == HEALTHY
    assert kinds(env.findings()) >= {("owner.lost", name) for name in CUDA_13}

    env.mend()
    assert not [f for f in env.findings() if f.severity in ("broken", "dangerous") and not f.kind.startswith("link.")]
    assert without_installers_notes(env.bytes()) == without_installers_notes(fresh)
    assert os.access(env.site / "nvidia/nccl/lib/libnccl.so.2", os.R_OK)
