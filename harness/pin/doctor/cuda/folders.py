"""One CUDA library in two folders that the loader could take it from."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from harness.findings import Finding
from harness.pin.doctor.case import Case
from harness.pin.doctor.cuda.families import FAMILIES


@dataclass(frozen=True)
class _Sought:
    """A library that the loader finds by name. Two files with one key must not come from two folders."""

    family: str
    key: str  # the soname; for a family that is one set, its version: "cudnn .so.9"


@dataclass
class _Folder:
    """A folder and the sought libraries in it."""

    path: str
    on_path: bool = False  # of LD_LIBRARY_PATH
    libraries: dict[str, _Sought] = field(default_factory=dict)  # by soname

    @property
    def keys(self) -> set[_Sought]:
        return set(self.libraries.values())


def _sought() -> dict[str, _Sought]:
    found = {}
    for family in FAMILIES.values():
        for soname in {name for member in family.members.values() for name in member.libraries}:
            if family.search:
                version = f"{family.name} .so{soname.partition('.so')[2]}"
                found[soname] = _Sought(family.name, version if family.search == "set" else soname)
    return found


SOUGHT = _sought()


def check(case: Case) -> Iterator[Finding]:
    """Findings of the kind ``cuda.two-directories``: one for each folder that holds a second copy."""
    folders = [*_installed(case), *_on_library_path(case)]
    for folder, first in _strays(folders):
        both = folder.keys & first.keys
        titles = ", ".join(sorted({FAMILIES[sought.family].title for sought in both}))
        sonames = tuple(sorted(name for name, sought in folder.libraries.items() if sought in both))
        owner = _owner(case, folder)
        where = "a folder of LD_LIBRARY_PATH" if folder.on_path else f"a folder of {owner}"
        yield Finding(
            "cuda.two-directories",
            "dangerous",
            owner,
            f"{titles} is both in {case.installation.shown(first.path)} and in {case.installation.shown(folder.path)},"
            f" {where}: a process can load parts of each.",
            {"folders": (first.path, folder.path), "libraries": sonames},
            _fix(case, folder, owner),
        )


def _installed(case: Case) -> list[_Folder]:
    """The environment's folders with sought libraries, NVIDIA's own first."""
    found: dict[str, _Folder] = {}
    for path in case.installation.files:
        folder, _, name = path.rpartition("/")
        if (sought := SOUGHT.get(name)) is not None:
            found.setdefault(folder, _Folder(folder)).libraries[name] = sought
    return sorted(found.values(), key=lambda folder: ("/nvidia/" not in folder.path, folder.path))


def library_path(case: Case) -> list[str]:
    """The folders of LD_LIBRARY_PATH; one that is empty or relative is so to the current folder, as for the loader."""
    value = case.variables.get("LD_LIBRARY_PATH", "")
    found = [str(Path(case.cwd, entry)) for entry in value.split(":")] if value else []
    return list(dict.fromkeys(folder for folder in found if Path(folder).is_absolute()))


def _on_library_path(case: Case) -> Iterator[_Folder]:
    """The folders of LD_LIBRARY_PATH with sought libraries that are not the environment's own under another name."""
    ours = {Path(folder.path).resolve() for folder in _installed(case)}
    for entry in library_path(case):
        try:
            names = {path.name for path in Path(entry).iterdir()}
        except OSError:  # a folder that is not there gives the loader nothing either
            continue
        theirs = {n: SOUGHT[n] for n in names & set(SOUGHT) if Path(entry, n).resolve().parent not in ours}
        if theirs:
            yield _Folder(entry, True, theirs)


def _strays(folders: list[_Folder]) -> Iterator[tuple[_Folder, _Folder]]:
    """Each folder that has a library which an earlier one has too, with the first such."""
    for index, folder in enumerate(folders):
        first = next((earlier for earlier in folders[:index] if earlier.keys & folder.keys), None)
        if first is not None:
            yield folder, first


def _owner(case: Case, folder: _Folder) -> str:
    """Who brought the libraries of ``folder``: a distribution, or "python" for nobody."""
    owners = case.installation.owners
    claims = [claim for name in folder.libraries for claim in owners.get(f"{folder.path}/{name}", ())]
    return min((distribution.name for distribution, _ in claims), default="python")


def _fix(case: Case, folder: _Folder, owner: str) -> str:
    if folder.on_path:
        entries = case.variables["LD_LIBRARY_PATH"].split(":")
        rest = ":".join(entry for entry in entries if str(Path(case.cwd, entry)) != folder.path)
        return f"export LD_LIBRARY_PATH={shlex.quote(rest)}" if rest else "unset LD_LIBRARY_PATH"
    if owner == "python":
        return f"rm {' '.join(shlex.quote(f'{folder.path}/{name}') for name in sorted(folder.libraries))}"
    return "" if owner in case.pins else case.uninstall(owner)
