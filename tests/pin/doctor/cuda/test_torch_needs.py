"""What torch requires, through the toolkit's extras: another version, one that is gone, one for another CUDA."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.pin.doctor.case import Case
from harness.pin.doctor.cuda import check as cuda
from harness.pin.doctor.cuda.torch_needs import torch_needs
from tests.pin.doctor.cuda_cases import case_of, found, severe
from tests.pin.doctor.examined import locked
from tests.pin.doctor.placed import place, reading

NEEDS = (
    "filelock",
    'nvidia-cudnn-cu13==9.24.0.43; platform_system == "Linux"',
    'nvidia-nccl-cu12==2.27.5; platform_system == "Windows"',
    'nvidia-cufile==1.15.1.6; python_version < "3.11"',
    'triton~=3.8.0; platform_system == "Linux" and python_version < "3.15"',
    'nvidia-nvtx==13.0.85; extra == "profiling"',
    "cuda-toolkit[cublas,cudart]==13.0.3; platform_system == 'Linux'",
)

TOOLKIT = (
    "nvidia-cublas==13.1.1.3.*; (sys_platform == 'linux') and extra == 'cublas'",
    "nvidia-cuda-runtime==13.0.96.*; (sys_platform == 'linux') and extra == 'cudart'",
    "nvidia-curand==10.4.0.35.*; (sys_platform == 'linux') and extra == 'curand'",
)

GOOD = (
    ("torch", "2.14.1"),
    ("triton", "3.8.0"),
    ("nvidia-cudnn-cu13", "9.24.0.43"),
    ("cuda-toolkit", "13.0.3"),
    ("nvidia-cublas", "13.1.1.3"),
    ("nvidia-cuda-runtime", "13.0.96"),
)


def required(folder: Path, changed: Mapping[str, str | None] = {}, **fields: Any) -> Case:
    """An environment as torch wants it, but for ``changed``: a version, or None for what is not there."""
    versions = {**dict(GOOD), **changed}
    site = folder / "site-packages"
    for name, version in versions.items():
        requires = {"torch": NEEDS, "cuda-toolkit": TOOLKIT}.get(name, ())
        if version is not None:
            place(site, name, version, requires=requires)
    return Case(reading(site), command="harness doctor x", **fields)


def test_what_torch_requires_is_followed_through_the_toolkits_extras(tmp_path: Path) -> None:
    case = required(tmp_path)
    assert {need.name: (str(need.specifier), need.by) for need in torch_needs(case.installation)} == {
        "nvidia-cudnn-cu13": ("==9.24.0.43", "torch"),
        "triton": ("~=3.8.0", "torch"),
        "cuda-toolkit": ("==13.0.3", "torch"),
        "nvidia-cublas": ("==13.1.1.3.*", "cuda-toolkit"),
        "nvidia-cuda-runtime": ("==13.0.96.*", "cuda-toolkit"),
    }
    assert severe(case) == []


@pytest.mark.parametrize(
    ("name", "version", "kind", "by"),
    [
        ("nvidia-cudnn-cu13", "9.19.0.56", "torch-mismatch", "torch"),
        ("nvidia-cublas", "13.3.0.5", "torch-mismatch", "cuda-toolkit"),
        ("nvidia-cuda-runtime", "", "torch-mismatch", "cuda-toolkit"),
        ("triton", "3.9.0", "triton", "torch"),
        ("triton", "3.7.2", "triton", "torch"),
    ],
)
def test_another_version_than_torch_requires(name: str, version: str, kind: str, by: str, tmp_path: Path) -> None:
    case = required(tmp_path, {name: "1" if version == "" else version})
    if version == "":  # METADATA without a version
        odd = tuple(replace(d, version="") if d.name == name else d for d in case.installation.distributions)
        case = replace(case, installation=replace(case.installation, distributions=odd))
    [finding] = [f for f in cuda.check(case) if f.severity != "note"]
    assert (finding.kind, finding.severity, finding.subject) == (f"cuda.{kind}", "dangerous", name)
    assert finding.evidence["by"] == by
    assert f"{name}{finding.evidence['required']}" in finding.fix


def test_what_torch_requires_and_the_lock_pins_otherwise_is_a_note(tmp_path: Path) -> None:
    lock = locked({"nvidia-cudnn-cu13": "9.27.0.42"})
    pins = {pin.name: pin for pin in lock.pins}
    case = required(tmp_path, {"nvidia-cudnn-cu13": "9.27.0.42"}, lock=lock, pins=pins)
    assert severe(case) == []
    [finding] = found(case, "torch-mismatch")
    assert "as the lock pins it" in finding.summary


def test_what_torch_requires_and_is_not_there(tmp_path: Path) -> None:
    case = required(tmp_path, {"nvidia-cudnn-cu13": None})
    [finding] = found(case, "torch-mismatch")
    assert "is not installed" in finding.summary
    lock = locked({"nvidia-cudnn-cu13": "9.24.0.43"})
    against = replace(case, lock=lock, pins={pin.name: pin for pin in lock.pins})
    assert found(against, "torch-mismatch") == []  # lock.missing is the one to say it


@pytest.mark.parametrize(
    ("build", "severity"), [("2.10.0+cu128", "dangerous"), ("2.11.0+cu130", None), ("2.13.0+cpu", None)]
)
def test_a_library_for_another_cuda_than_torchs(build: str, severity: str | None, tmp_path: Path) -> None:
    case = case_of(tmp_path, ("torch", build), ("nvidia-cublas", "13.1.0.3"), ("dali-like", "1"))
    findings = found(case, "torch-mismatch")
    assert [finding.severity for finding in findings] == ([severity] if severity else [])
    if severity:
        assert "nvidia-cublas-cu12" in findings[0].summary
        assert findings[0].fix == case.uninstall("nvidia-cublas")


def test_what_brings_its_own_cuda_is_drift_beside_another(tmp_path: Path) -> None:
    [finding] = found(case_of(tmp_path, ("torch", "2.14.1"), ("nvidia-dali-cuda120", "2.4.0")), "torch-mismatch")
    assert finding.severity == "drift"
