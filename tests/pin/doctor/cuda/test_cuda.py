"""CUDA as installed: families by table, torch's requirements, folders of the loader, FlashInfer's parts, the driver."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.findings import Finding
from harness.pin.doctor.case import Case
from harness.pin.doctor.cuda import check as cuda
from harness.pin.doctor.cuda.driver import judge
from harness.pin.doctor.cuda.families import DRIVERS, FAMILIES, family_of, member_of
from harness.pin.doctor.cuda.torch_needs import torch_needs
from harness.pin.doctor.installed.installation import Distribution, Installation, Layout
from tests.pin.doctor.examined import examined, listed, locked
from tests.pin.doctor.placed import place, reading
from tests.pin.doctor.wheels import install, make_venv, make_wheel, pip

ENVS = Path(__file__).resolve().parents[4] / "envs"
EVERYTHING = sorted(member.name for family in FAMILIES.values() for member in family.members.values())


def case_of(folder: Path, *installed: tuple[str, str], requires: Sequence[str] = (), **fields: Any) -> Case:
    """A case of ``installed`` (name, version); ``requires`` is torch's."""
    site = folder / "site-packages"
    site.mkdir(parents=True)
    for name, version in installed:
        nccl = {"nvidia/nccl/lib/libnccl.so.2": version.encode()} if name.startswith("nvidia-nccl-") else {}
        place(site, name, version, nccl, requires=requires if name == "torch" else ())
    return Case(reading(site), command="harness doctor x", **fields)


def found(case: Case, kind: str) -> list[Finding]:
    return [finding for finding in cuda.check(case) if finding.kind == f"cuda.{kind}"]


def severe(case: Case) -> list[str]:
    return [finding.summary for finding in cuda.check(case) if finding.severity != "note"]


def names_in_lock(name: str) -> set[str]:
    """NVIDIA's libraries that a lock of this repository pins: compiled by a resolver from torch's own metadata."""
    pinned = set(re.findall(r"^(nvidia-[a-z0-9-]+)==", (ENVS / f"{name}.txt").read_text(), re.MULTILINE))
    assert len(pinned) > 10
    return pinned


@pytest.mark.parametrize(("lock", "major"), [("cu128", 12), ("cu130", 13), ("cu130-race", 13)])
def test_each_library_that_torch_requires_is_of_torchs_cuda(lock: str, major: int) -> None:
    for name in names_in_lock(lock):
        member = family_of(name)
        assert member is not None, name
        assert member.major == major, name


def test_the_families_of_both_cudas_of_torch_are_the_same() -> None:
    families = [
        {member.family for name in names_in_lock(lock) if (member := family_of(name))} for lock in ("cu128", "cu130")
    ]
    assert families[0] == families[1]


def test_of_torchs_families_four_overwrite_each_other_between_cuda_12_and_13() -> None:
    """As measured with the real wheels: 22, 2, 3 and 59 of their files have one path."""
    torchs = {member.family for name in names_in_lock("cu128") if (member := family_of(name))}
    shared = {name for name in torchs if FAMILIES[name].members[12].shares_folder(FAMILIES[name].members[13])}
    assert shared == {"cudnn", "nccl", "cusparselt", "nvshmem"}


def test_the_table_is_of_one_mind() -> None:
    assert len(set(EVERYTHING)) == len(EVERYTHING), "a name is in two families"
    for family in FAMILIES.values():
        for major, member in family.members.items():
            assert (member.family, member.major) == (family.name, major)
            assert member.folder
            assert not member.folder.startswith("/")
            assert bool(member.libraries) or not family.search
    assert family_of("nvidia-cusparse") is FAMILIES["cusparse"].members[13]
    assert family_of("nvidia-cublas-cu13") is None  # an empty placeholder
    assert family_of("numpy") is None


@pytest.mark.parametrize("version", ["0.0.1", "0.0.1.dev5", "0.0.0a0"])
def test_nvidias_placeholders_bring_nothing(version: str) -> None:
    assert member_of(Distribution("nvidia-nvtx", version, "", "")) is None
    assert member_of(Distribution("nvidia-cusparselt-cu12", "0.7.1", "", "")) is not None


def test_two_majors_by_the_real_pip(tmp_path: Path) -> None:
    python = make_venv(tmp_path / "venv")
    path = "nvidia/cudnn/lib/libcudnn.so.9"
    for name, version in (("nvidia-cudnn-cu12", "9.10.2.21"), ("nvidia-cudnn-cu13", "9.19.0.56")):
        install(python, make_wheel(tmp_path, name, version, {path: version.encode()}))
    assert "No broken requirements found" in pip(python, "check").stdout
    case = examined(python, locked({"nvidia-cudnn-cu12": "9.10.2.21"}), bytes_read=False)
    [finding] = found(case, "two-majors")
    assert (finding.severity, finding.subject) == ("dangerous", "nvidia-cudnn-cu13")
    assert finding.fix == "harness doctor x --fix --remove nvidia-cudnn-cu13"
    assert listed(finding, "distributions") == ("nvidia-cudnn-cu12", "nvidia-cudnn-cu13")


@pytest.mark.parametrize(
    ("torch", "driver", "stray"),
    [
        ("2.10.0+cu128", None, "nvidia-nccl-cu13"),
        ("2.11.0", None, "nvidia-nccl-cu12"),
        ("2.13.0+cpu", "12.8", "nvidia-nccl-cu13"),
        ("2.13.0+cpu", None, "nvidia-nccl-cu12"),
    ],
)
def test_without_a_lock_the_one_that_is_not_torchs_goes_and_the_other_is_put_back(
    torch: str, driver: str | None, stray: str, tmp_path: Path
) -> None:
    pair = {"nvidia-nccl-cu12": "2.27.5", "nvidia-nccl-cu13": "2.28.9"}
    case = case_of(tmp_path, ("torch", torch), *pair.items(), driver_cuda=driver)
    [finding] = found(case, "two-majors")
    [stays] = set(pair) - {stray}
    assert finding.subject == stray
    uninstall, reinstall = finding.fix.split(" && ")
    assert uninstall.endswith(f"{case.installation.layout.python} uninstall -y {stray}")
    assert reinstall == case.reinstall(stays)
    assert f"{stays}=={pair[stays]}" in finding.fix


def test_two_majors_that_the_lock_wants_and_that_share_nothing_are_a_note(tmp_path: Path) -> None:
    pair = {"nvidia-cublas-cu12": "12.8.4.1", "nvidia-cublas": "13.1.0.3"}
    case = case_of(tmp_path, *pair.items())
    [finding] = found(case, "two-majors")
    assert finding.severity == "dangerous"
    lock = locked(pair)
    [finding] = found(replace(case, lock=lock, pins={pin.name: pin for pin in lock.pins}), "two-majors")
    assert (finding.severity, finding.fix) == ("note", "")


@given(st.sets(st.sampled_from(EVERYTHING), max_size=12))
def test_there_are_two_majors_exactly_where_a_family_is_there_twice(installed: set[str]) -> None:
    layout = Layout(Path("/v/bin/python"), "3.11.7", "/v", "/usr", ("/v/s",), "/v/s", "/v/s", "/usr/lib", ("/v/s",))
    distributions = tuple(Distribution(name, "1.0", f"/v/s/{name}", "/v/s") for name in sorted(installed))
    families = [member.family for name in installed if (member := family_of(name))]
    case = Case(Installation(layout, distributions, {}))
    expected = {family for family in families if families.count(family) > 1}
    findings = found(case, "two-majors")
    assert {finding.evidence["family"] for finding in findings} == expected
    assert all(finding.fix and finding.severity == "dangerous" for finding in findings)


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
