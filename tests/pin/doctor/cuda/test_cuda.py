"""FlashInfer's parts are of one version; fresh environments and metadata of noise have nothing above a note."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.pin.doctor.cuda import check as cuda
from tests.pin.doctor.cuda_cases import case_of, found, severe
from tests.pin.doctor.examined import examined, locked
from tests.pin.doctor.wheels import install, make_venv, make_wheel


@pytest.mark.parametrize(
    ("versions", "count"),
    [
        (("0.6.13", "0.6.13", "0.6.13+cu130"), 0),
        (("0.6.14", "0.6.13", "0.6.14+cu130"), 1),
        (("0.6.13", "0.6.13", "0.6.13+cu129"), 1),
        (("0.6.14", "0.6.13", "0.6.13+cu129"), 2),
    ],
)
def test_flashinfers_parts(versions: tuple[str, str, str], count: int, tmp_path: Path) -> None:
    parts = zip(("flashinfer-python", "flashinfer-cubin", "flashinfer-jit-cache"), versions, strict=True)
    case = case_of(tmp_path, ("torch", "2.11.0"), *parts)
    findings = found(case, "flashinfer")
    assert [finding.severity for finding in findings] == ["dangerous"] * count
    assert all(finding.subject.startswith("flashinfer-") and finding.fix for finding in findings)


def test_fresh_environments_have_nothing_above_a_note(tmp_path: Path) -> None:
    python = make_venv(tmp_path / "venv")
    assert list(cuda.check(examined(python, bytes_read=False))) == []
    wheels = [make_wheel(tmp_path, "triton", "3.8.0"), make_wheel(tmp_path, "nvidia-nccl-cu13", "2.30.7")]
    install(python, *wheels)
    lock = locked({"triton": "3.8.0", "nvidia-nccl-cu13": "2.30.7"}, *wheels)
    assert list(cuda.check(examined(python, lock, bytes_read=False))) == []


def test_metadata_of_noise_gives_no_traceback(tmp_path: Path) -> None:
    case = case_of(
        tmp_path, ("torch", "2.14.1"), ("nvidia-nccl-cu13", "x.y"), requires=("((", "nvidia-nccl-cu13=2", "é ; ü")
    )
    assert severe(case) == []
    version = tmp_path / "site-packages/torch/version.py"
    version.write_bytes(b"\xff\xfe\x00cuda = '13")
    assert list(cuda.check(case)) == []
    version.unlink()
    assert list(cuda.check(case)) == []


def test_a_torch_that_names_no_version_of_cuda_is_not_judged(tmp_path: Path) -> None:
    case = case_of(tmp_path, ("torch", "2.14.1"))
    (tmp_path / "site-packages/torch/version.py").write_text("__version__ = '2.14.1'\ncuda = 'thirteen'\n")
    assert list(cuda.check(case)) == []
