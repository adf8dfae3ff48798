"""The driver against torch's CUDA: too old is broken, old but of the same major is a note."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.pin.doctor.cuda import check as cuda
from harness.pin.doctor.cuda.driver import judge
from harness.pin.doctor.cuda.families import DRIVERS
from tests.pin.doctor.cuda_cases import case_of


@pytest.mark.parametrize(
    ("driver", "runs", "wanted", "severity"),
    [
        ("580.65.06", "13.0", "13.0", None),
        ("580.65.06", None, "13.0", None),
        ("575.57.08", "12.9", "13.0", "broken"),
        ("575.57.08", None, "13.0", "broken"),
        (None, "12.9", "13.0", "broken"),
        ("570.26", "13.0", "13.0", None),  # NVIDIA's compatibility package in front of an old driver
        ("525.60.13", "12.0", "12.8", "note"),
        ("525.60.13", None, "12.8", "note"),
        ("525.60.12", None, "12.8", "broken"),
        ("595.45.04", "13.2", "12.8", None),
        ("595.45.04", None, "12.8", None),
        ("450.80.02", None, "11.8", "note"),
        ("440.33", None, "11.8", "broken"),
        (None, None, "13.0", "note"),
        ("unreadable", None, "13.0", None),
        ("580.65.06", "13.0", "99.1", "broken"),
        ("580.65.06", None, "99.1", None),  # a CUDA that the table does not know, and a driver that does not say
    ],
)
def test_the_driver_against_torchs_cuda(
    driver: str | None, runs: str | None, wanted: str, severity: str | None
) -> None:
    findings = list(judge(driver, runs, "2.14.1", wanted))
    assert [finding.severity for finding in findings] == ([severity] if severity else [])
    assert all((finding.fix == "") == (finding.severity == "note") for finding in findings)


def test_each_toolkits_driver_runs_its_own_major() -> None:
    for toolkit, driver in DRIVERS.toolkit.items():
        assert list(judge(driver, None, "2", toolkit)) == [], toolkit
        assert list(judge(driver, toolkit, "2", toolkit)) == [], toolkit
    order = [tuple(map(int, DRIVERS.toolkit[key].split("."))) for key in DRIVERS.toolkit]
    assert order == sorted(order)


def test_a_torch_without_cuda_asks_for_no_driver(tmp_path: Path) -> None:
    assert list(cuda.check(case_of(tmp_path / "cpu", ("torch", "2.13.0+cpu")))) == []
    assert list(cuda.check(case_of(tmp_path / "none", ("numpy", "2.4")))) == []
