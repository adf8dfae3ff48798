"""The CUDA families: whose library a distribution brings, for which CUDA, and into which folder."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal

from harness.pin.doctor.installed.installation import Distribution


@dataclass(frozen=True)
class Member:
    """One wheel of a family: the one for one CUDA major."""

    family: str  # "cudnn"
    major: int  # of CUDA: 12
    name: str  # normalised: "nvidia-cudnn-cu12"
    folder: str  # under site-packages: "nvidia/cudnn"
    libraries: frozenset[str] = frozenset()  # sonames; empty where they are of no concern to the loader's search

    def shares_folder(self, other: Member) -> bool:
        """Both install into the same paths, so that each overwrites the other's files."""
        return self.name != other.name and self.folder == other.folder and self.family == other.family


@dataclass(frozen=True)
class Family:
    """One library, in its builds for several CUDAs."""

    name: str
    title: str  # as a person says it: "cuDNN"
    members: Mapping[int, Member]  # by CUDA major
    search: Literal["", "soname", "set"] = ""  # how the loader finds its libraries; families.toml says what each means


@dataclass(frozen=True)
class Drivers:
    """The oldest NVIDIA driver on Linux for each CUDA, as NVIDIA's release notes have it."""

    minimum: Mapping[int, str]  # by major: runs every CUDA of that major
    toolkit: Mapping[str, str]  # by "major.minor": what that toolkit was released with


def _family(data: Mapping[str, Any]) -> Family:
    members = {
        int(major): Member(data["name"], int(major), **{**wheel, "libraries": frozenset(wheel.get("libraries", ()))})
        for major, wheel in data["cuda"].items()
    }
    return Family(data["name"], data["title"], members, data.get("search", ""))


def _load() -> tuple[dict[str, Family], Drivers]:
    table = tomllib.loads((files("harness.pin.doctor.cuda") / "families.toml").read_text("utf-8"))
    drivers = Drivers({int(k): v for k, v in table["driver"]["minimum"].items()}, table["driver"]["toolkit"])
    return {family["name"]: _family(family) for family in table["family"]}, drivers


FAMILIES, DRIVERS = _load()
_MEMBERS = {member.name: member for family in FAMILIES.values() for member in family.members.values()}


def family_of(name: str) -> Member | None:
    """The family and CUDA major of the distribution ``name`` (normalised); None where it is of none."""
    return _MEMBERS.get(name)


def member_of(distribution: Distribution) -> Member | None:
    """The same of an installed one; None for NVIDIA's empty placeholders, whose versions are 0.0.x."""
    return None if distribution.version.startswith("0.0.") else _MEMBERS.get(distribution.name)
