"""CUDA's libraries by family, as the locks have them, and a family that is there for two CUDAs."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.pin.doctor.case import Case
from harness.pin.doctor.cuda.families import FAMILIES, family_of, member_of
from harness.pin.doctor.installed.installation import Distribution, Installation, Layout
from tests.pin.doctor.cuda_cases import case_of, found
from tests.pin.doctor.examined import examined, listed, locked
from tests.pin.doctor.wheels import install, make_venv, make_wheel, pip

ENVS = Path(__file__).resolve().parents[4] / "envs"

EVERYTHING = sorted(member.name for family in FAMILIES.values() for member in family.members.values())


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
