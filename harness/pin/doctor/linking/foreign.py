"""Libraries that are found, and are not the ones that the environment's wheels bring."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from harness.findings import Evidence, Finding
from harness.pin.doctor.cuda.families import FAMILIES, family_of
from harness.pin.doctor.installed.installation import Distribution
from harness.pin.doctor.linking.elf import Elf
from harness.pin.doctor.linking.ldso import Loaded, file_name, folder_of
from harness.pin.doctor.linking.openings import MOST_NAMED, Replay


@dataclass(frozen=True)
class _Stranger:
    """A library that is loaded in place of one that a wheel brings."""

    subject: str
    expected: str
    found: str
    needed_by: str


def foreign(replay: Replay) -> Iterator[Finding]:
    """One finding for each distribution whose library is passed over for another."""
    groups: dict[str, dict[str, _Stranger]] = {}
    for library in (library for opening in replay.openings for library in opening.libraries):
        stranger = _stranger(replay, library)
        if stranger is not None:
            groups.setdefault(stranger.subject, {}).setdefault(stranger.found, stranger)
    for stranger in _strange_parts(replay):
        groups.setdefault(stranger.subject, {}).setdefault(stranger.found, stranger)
    for subject, strangers in groups.items():
        yield _foreign_finding(replay, subject, list(strangers.values()))


def _stranger(replay: Replay, library: Loaded) -> _Stranger | None:
    needer = library.by
    if needer is None or not replay.is_inside(needer.path):
        return None
    meant = passed_over(replay, library.path, file_name(library.path), replay.owner(needer.path))
    return _Stranger(*meant, library.path, needer.path) if meant else None


def _strange_parts(replay: Replay) -> Iterator[_Stranger]:
    """The parts of cuDNN that its wheel lacks and that are found elsewhere, of another version (pytorch#188892).

    cuDNN opens its parts from its own folder first and then by name, so those that the wheel has are safe.
    """
    for distribution in replay.case.installation.distributions:
        member = family_of(distribution.name)
        if member is None or member.family != "cudnn":
            continue
        for name in sorted(member.libraries, key=len)[:2]:  # libcudnn.so.9, or libcudnn.so.8
            for path in (path for path in replay.by_file_name.get(name, ()) if distribution in replay.owners(path)):
                elf = replay.search.elf(path)
                if isinstance(elf, Elf):
                    yield from _parts_elsewhere(replay, distribution.name, Loaded(path, elf))


def _parts_elsewhere(replay: Replay, subject: str, opener: Loaded) -> Iterator[_Stranger]:
    version = opener.path.rpartition(".so")[2]
    known = {name for member in FAMILIES["cudnn"].members.values() for name in member.libraries}
    for name in sorted(name for name in known if name.endswith(f".so{version}") and name not in replay.by_file_name):
        found = replay.search.find(name, opener)
        if isinstance(found, Loaded):
            yield _Stranger(subject, f"{opener.origin}/{name}", found.path, opener.path)


def passed_over(replay: Replay, found: str, name: str, needer: Distribution | None) -> tuple[str, str] | None:
    """The distribution and its library ``name`` in whose place ``found`` is loaded; None where that is as it should be.

    Only CUDA's libraries and torch's are meant for others; a copy that a wheel keeps for itself is its own affair.
    """
    owners, pins = replay.owners(found), replay.case.pins
    if any(owner.name in pins or not pins for owner in owners):
        return None
    for path in replay.by_file_name.get(name, ()):
        owner = replay.owner(path)
        if owner is None or os.path.realpath(found) == path or (owners and owner.name not in pins):
            continue
        if _is_meant(needer, owner, name):
            return owner.name, path
    return None


def _is_meant(needer: Distribution | None, owner: Distribution, name: str) -> bool:
    if owner.name == "torch":
        return name.startswith(("libtorch", "libc10")) or (needer is not None and needer.name == "torch")
    return family_of(owner.name) is not None


def _foreign_finding(replay: Replay, subject: str, strangers: list[_Stranger]) -> Finding:
    shown, first = replay.case.installation.shown, strangers[0]
    name = file_name(first.expected)
    folder = folder_of(first.found)
    by_path = folder in replay.search.library_path
    way = ", by LD_LIBRARY_PATH" if by_path else ""
    needer = file_name(first.needed_by)
    is_there = first.expected in replay.case.installation.files
    what = f"{subject}'s {name} is passed over" if is_there else f"{subject} has no {name}"
    summary = f"{what}: {needer} gets {shown(first.found)}{way}"
    evidence: dict[str, Evidence] = {
        "count": len(strangers),
        "found": {file_name(each.expected): shown(each.found) for each in strangers[:MOST_NAMED]},
        "expected": {file_name(each.expected): shown(each.expected) for each in strangers[:MOST_NAMED]},
        "needed_by": {file_name(each.expected): shown(each.needed_by) for each in strangers[:MOST_NAMED]},
    }
    return Finding("link.foreign", "dangerous", subject, summary, evidence, _way_back(replay, first, folder, by_path))


def _way_back(replay: Replay, stranger: _Stranger, folder: str, by_path: bool) -> str:
    """The command that lets the loader find the expected one first."""
    case = replay.case
    if by_path:
        return _without(replay, folder)
    owner = replay.owner(stranger.found)
    if owner is not None:
        return case.uninstall(owner.name)
    if stranger.expected not in case.installation.files:
        return ""  # the wheel has no such part: nothing here brings it
    return _first(stranger.expected)


def way_around(replay: Replay, found: str) -> str:
    """The command after which the loader does not take ``found``, a file from outside the environment; "" where that
    is the system's own, and nothing here brings another."""
    name, folder = file_name(found), folder_of(found)
    if found in replay.search.preloaded() or name in replay.search.preloaded():
        return "unset LD_PRELOAD"
    if folder in replay.search.library_path:
        return _without(replay, folder)
    ours = replay.by_file_name.get(name, ())
    return _first(ours[0]) if ours else ""


def _without(replay: Replay, folder: str) -> str:
    """Takes ``folder`` off LD_LIBRARY_PATH."""
    rest = [entry for entry in replay.search.library_path if entry != folder]
    return f"export LD_LIBRARY_PATH={shlex.quote(':'.join(rest))}" if rest else "unset LD_LIBRARY_PATH"


def _first(path: str) -> str:
    """Puts the folder of ``path`` before all others on LD_LIBRARY_PATH."""
    return f'export LD_LIBRARY_PATH={shlex.quote(folder_of(path))}"${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"'
