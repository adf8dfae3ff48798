"""CUDA as installed: does every library belong to the CUDA that torch was built for, and does the driver run it?"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.findings import Finding, Severity
from harness.pin.doctor.case import Case, names
from harness.pin.doctor.cuda import driver as cuda_driver
from harness.pin.doctor.cuda import folders as cuda_folders
from harness.pin.doctor.cuda.families import FAMILIES, Member, member_of
from harness.pin.doctor.cuda.families import family_of as family_of
from harness.pin.doctor.cuda.torch_needs import Need, parse, torch_needs
from harness.pin.doctor.installed.installation import Distribution
from harness.pin.fingerprint import torch_facts

_FLASHINFER = ("flashinfer-python", "flashinfer-cubin", "flashinfer-jit-cache")
_TRITON = ("triton", "pytorch-triton")


@dataclass(frozen=True)
class Torch:
    """The torch that is installed."""

    version: str  # "2.14.1+cu130"
    cuda: str  # "13.0"; "" for a build without CUDA, or where it is no version

    @property
    def major(self) -> int | None:
        return _major(self.cuda)


def torch_of(case: Case) -> Torch | None:
    """The torch of ``case``; None without torch, or where its ``version.py`` cannot be read (``files`` says so)."""
    facts: Mapping[str, object] = {}
    for site in case.installation.layout.sites:
        try:
            facts = facts or torch_facts(Path(site))
        except (OSError, UnicodeDecodeError):
            continue
    if "environment.torch.build" not in facts:
        return None
    cuda = str(facts.get("environment.cuda", ""))
    return Torch(str(facts["environment.torch.build"]), cuda if parse(cuda) else "")


def _major(version: str | None) -> int | None:
    parsed = parse(version or "")
    return parsed.major if parsed else None


def check(case: Case) -> Iterator[Finding]:
    """Findings of the kinds ``cuda.*``."""
    torch = torch_of(case)
    installed = _members(case)
    yield from _two_majors(case, torch, installed)
    yield from cuda_folders.check(case)
    yield from _flashinfer(case, torch)
    if torch is not None and torch.major is not None:
        yield from _other_major(case, torch, installed)
        yield from _other_versions(case, torch)
        yield from cuda_driver.judge(case.driver, case.driver_cuda, torch.version, torch.cuda)


def _members(case: Case) -> dict[str, list[tuple[Member, Distribution]]]:
    """What is installed of each family."""
    found: dict[str, list[tuple[Member, Distribution]]] = {}
    for distribution in case.installation.by_name.values():
        if (member := member_of(distribution)) is not None:
            found.setdefault(member.family, []).append((member, distribution))
    return found


_Installed = Mapping[str, list[tuple[Member, Distribution]]]


def _two_majors(case: Case, torch: Torch | None, installed: _Installed) -> Iterator[Finding]:
    for family, pairs in installed.items():
        if len({member.major for member, _ in pairs}) < 2:
            continue
        members = [member for member, _ in pairs]
        shared = any(a.shares_folder(b) for a in members for b in members)
        locked = all(member.name in case.pins for member in members)
        strays = () if locked else _strays(case, torch, members)
        title = FAMILIES[family].title
        both = " and ".join(f"{d.name} {d.version}" for _, d in pairs)
        why = "they overwrite each other's files" if shared else "two of one library for two CUDAs"
        severity: Severity = "note" if locked and not shared else "dangerous"
        yield Finding(
            "cuda.two-majors",
            severity,
            strays[0].name if strays else members[0].name,
            f"{title} is installed for CUDA {' and '.join(str(m.major) for m in members)} ({both}): {why}.",
            {"family": family, "distributions": names(d for _, d in pairs), "shared": shared},
            case.uninstall(*(stray.name for stray in strays)) if strays else "",
        )


def _strays(case: Case, torch: Torch | None, members: list[Member]) -> tuple[Member, ...]:
    """Which of ``members`` do not belong: not in the lock, or for another CUDA than is used here."""
    if any(member.name in case.pins for member in members):
        return tuple(member for member in members if member.name not in case.pins)
    majors = {member.major for member in members}
    in_use = (torch and torch.major, _major(case.driver_cuda))
    keep = next((major for major in in_use if major in majors), max(majors))
    return tuple(member for member in members if member.major != keep)


def separate(case: Case, names: Collection[str]) -> str:
    """The command that takes away those of ``names``, builds of one family, that do not belong here."""
    members = [member for name in names if (member := family_of(name)) is not None]
    installed = [member for pairs in _members(case).values() for member, _ in pairs]
    families = {member.family for member in members}
    there = [member for member in installed if member.family in families]
    strays = _strays(case, torch_of(case), there) if there else ()
    gone = [stray for stray in strays if stray in members] or [m for m in members if m.name not in case.pins]
    return case.uninstall(*(member.name for member in gone)) if gone else ""


def _other_major(case: Case, torch: Torch, installed: _Installed) -> Iterator[Finding]:
    """One build of a family, and it is for another CUDA than torch's. Two builds are told of already."""
    for family, pairs in installed.items():
        if {member.major for member, _ in pairs} & {torch.major} or len(pairs) > 1:
            continue
        [(member, distribution)] = pairs
        right = FAMILIES[family].members.get(torch.major or 0)
        instead = f"; torch's is {right.name}" if right else ""
        locked = member.name in case.pins
        yield Finding(
            "cuda.torch-mismatch",
            "note" if locked else "dangerous" if FAMILIES[family].search else "drift",
            member.name,
            f"{member.name} is {FAMILIES[family].title} for CUDA {member.major}, and torch {torch.version} is built for"
            f" CUDA {torch.cuda}{instead}.",
            {"installed": distribution.version, "torch": torch.version, "cuda": torch.cuda},
            "" if locked else case.uninstall(member.name),
        )


def _other_versions(case: Case, torch: Torch) -> Iterator[Finding]:
    """What torch requires is there in another version, or not at all."""
    by_name = case.installation.by_name
    for need in torch_needs(case.installation):
        kind = "cuda.triton" if need.name in _TRITON else "cuda.torch-mismatch"
        there = by_name.get(need.name)
        if there is None:
            if case.lock is None:  # with a lock, ``against_lock`` says it
                yield Finding(
                    kind,
                    "dangerous",
                    need.name,
                    f"{need.name} is not installed, and {need.by} requires it ({need.name}{need.specifier}).",
                    {"required": str(need.specifier), "by": need.by, "torch": torch.version},
                    _put_back(case, need),
                )
        elif not need.met_by(there.version):
            pin = case.pins.get(need.name)
            meant = pin is not None and pin.version == there.version
            aside = ", as the lock pins it" if meant else ""
            yield Finding(
                kind,
                "note" if meant else "dangerous",
                need.name,
                f"{need.name} is {there.version}{aside}, and {need.by} {by_name[need.by].version} requires"
                f" {need.name}{need.specifier}.",
                {"installed": there.version, "required": str(need.specifier), "by": need.by, "torch": torch.version},
                "" if meant else _put_back(case, need),
            )


def _put_back(case: Case, need: Need) -> str:
    """The command that installs what is required: from the lock where there is one, else by pip."""
    if case.lock is not None:
        return case.reinstall(need.name)
    return case.install(f"{need.name}{need.specifier}")


def _flashinfer(case: Case, torch: Torch | None) -> Iterator[Finding]:
    """FlashInfer's parts must be of one version, and the compiled part of torch's CUDA major."""
    parts = [case.installation.by_name[name] for name in _FLASHINFER if name in case.installation.by_name]
    versions = {part.name: part.version.partition("+")[0] for part in parts}
    if len(set(versions.values())) > 1:
        main = parts[0]
        listed = ", ".join(f"{part.name} {part.version}" for part in parts)
        others = [f"{part.name}=={versions[main.name]}" for part in parts[1:]]
        yield Finding(
            "cuda.flashinfer",
            "dangerous",
            next(part.name for part in parts if versions[part.name] != versions[main.name]),
            f"FlashInfer's parts are of different versions ({listed}): it refuses to start.",
            {part.name: part.version for part in parts},
            case.reinstall(main.name) if case.lock else case.install(*others),
        )
    for part in parts:
        local = part.version.partition("+")[2]
        major = int(local[2:4]) if local.startswith("cu") and local[2:4].isdigit() else None
        if torch is not None and torch.major and major not in (None, torch.major):
            yield Finding(
                "cuda.flashinfer",
                "dangerous",
                part.name,
                f"{part.name} {part.version} is compiled for CUDA {major}, and torch {torch.version} for {torch.cuda}.",
                {"installed": part.version, "torch": torch.version},
                case.reinstall(part.name) if case.lock else case.uninstall(part.name),
            )
