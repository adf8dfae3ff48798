"""One library in two folders that the loader may look in is found, and what it cannot confuse is not."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness.pin.doctor.case import Case
from tests.pin.doctor.cuda_cases import found
from tests.pin.doctor.examined import listed
from tests.pin.doctor.placed import place, reading


def with_files(case_folder: Path, *paths: str) -> Path:
    for path in paths:
        (case_folder / path).parent.mkdir(parents=True, exist_ok=True)
        (case_folder / path).write_bytes(b"\x7fELF")
    return case_folder


CUDNN = "nvidia/cudnn/lib/libcudnn.so.9"


def test_parts_of_one_cudnn_in_two_folders_of_the_environment(tmp_path: Path) -> None:
    site = tmp_path / "site-packages"
    place(site, "nvidia-cudnn-cu12", "9.10.2.21", {CUDNN: b"", "nvidia/cudnn/lib/libcudnn_ops.so.9": b""})
    place(site, "vendored", "1.0", {"vendored/lib/libcudnn_engines_tensor_ir.so.9": b""})
    case = Case(reading(site))
    [finding] = found(case, "two-directories")
    assert (finding.severity, finding.subject, finding.fix) == ("dangerous", "vendored", case.uninstall("vendored"))
    assert listed(finding, "libraries") == ("libcudnn_engines_tensor_ir.so.9",)


@pytest.mark.parametrize(
    "beside",
    [
        "vendored.libs/libcudnn-1a2b3c4d.so.9.1.0",  # renamed by auditwheel: nothing finds it by name
        "triton/backends/nvidia/lib/cupti/libcupti.so.12",
        "nvidia/cu13/lib/libcublas.so.13",
        "old/libcudnn_ops_infer.so.8",  # another version of the set: no soname in common
        "nvidia/cudnn/lib/libcudnn_cnn.so.9",
    ],
)
def test_what_the_loader_cannot_confuse(beside: str, tmp_path: Path) -> None:
    site = with_files(tmp_path / "site-packages", CUDNN, "nvidia/cuda_cupti/lib/libcupti.so.12", beside)
    assert found(Case(reading(site)), "two-directories") == []


def test_a_toolkit_on_the_library_path(tmp_path: Path) -> None:
    site = with_files(tmp_path / "site-packages", CUDNN, "nvidia/cusparse/lib/libcusparse.so.12", "a/__init__.py")
    toolkit = with_files(tmp_path / "cuda-12.1", "libcusparse.so.12", "libcublas.so.12", "libcurand.so.10")
    (tmp_path / "empty").mkdir()
    path = f"{tmp_path}/empty:{toolkit}:{tmp_path}/nowhere"
    [finding] = found(Case(reading(site), variables={"LD_LIBRARY_PATH": path}), "two-directories")
    assert finding.subject == "python"
    assert listed(finding, "libraries") == ("libcusparse.so.12",)
    assert "cuSPARSE" in finding.summary
    left = subprocess.run(
        ["sh", "-c", f'{finding.fix}; printf %s "$LD_LIBRARY_PATH"'],
        env={"LD_LIBRARY_PATH": path, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert left == f"{tmp_path}/empty:{tmp_path}/nowhere"
    assert found(Case(reading(site), variables={"LD_LIBRARY_PATH": left}), "two-directories") == []


def test_the_environments_own_folder_on_the_library_path_is_no_second_one(tmp_path: Path) -> None:
    site = with_files(tmp_path / "site-packages", CUDNN)
    (tmp_path / "link").symlink_to(site / "nvidia/cudnn/lib")
    path = f"{site}/nvidia/cudnn/lib:{tmp_path}/link"
    assert found(Case(reading(site), variables={"LD_LIBRARY_PATH": path}), "two-directories") == []
