"""Whether every library finds what it needs, and finds it where the lock put it."""

from __future__ import annotations

import fnmatch
import os
import shlex
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from harness.findings import Evidence, Finding, Severity
from harness.pin.doctor.case import Case
from harness.pin.doctor.families import family_of
from harness.pin.doctor.installation import Distribution
from harness.pin.doctor.ldso import Loaded, Unresolved, file_name, folder_of
from harness.pin.doctor.link_symbols import undefined
from harness.pin.doctor.openings import Replay

MOST_NAMED = 20
"""How many libraries one finding names; it counts them all."""


def check(case: Case) -> Iterator[Finding]:
    """Libraries that are not found, found in the wrong place, or lack what others need of them."""
    replay = Replay(case)
    yield from unresolved(replay)
    yield from foreign(replay)
    yield from undefined(replay)


@dataclass(frozen=True)
class Excuse:
    """One entry of elsewhere.toml."""

    names: tuple[str, ...]
    why: str
    of: tuple[str, ...] = ()

    def holds(self, name: str, distribution: str) -> bool:
        return (not self.of or distribution in self.of) and any(fnmatch.fnmatchcase(name, each) for each in self.names)


@cache
def _excuses() -> tuple[Excuse, ...]:
    table = tomllib.loads((files("harness.pin.doctor") / "elsewhere.toml").read_text("utf-8"))
    return tuple(Excuse(tuple(e["names"]), e["why"], tuple(e.get("of", ()))) for e in table["library"])


# --- needs that are not met ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Lack:
    """One library that is not there for one that needs it, or one that cannot be loaded."""

    subject: str
    severity: Severity
    library: str
    needed_by: str = ""
    searched: tuple[str, ...] = ()
    why: str = ""


def unresolved(replay: Replay) -> Iterator[Finding]:
    """One finding for each distribution and severity."""
    lacks = [_Lack(_name(replay, path), "broken", path, why=why) for path, why in replay.damaged.items()]
    for failure in (failure for opening in replay.openings for failure in opening.failures):
        if os.path.realpath(failure.path) not in replay.damaged:
            lacks += [lack for lack in [_lack(replay, failure)] if lack is not None]
    groups: dict[tuple[str, Severity], list[_Lack]] = {}
    for lack in dict.fromkeys(lacks):
        groups.setdefault((lack.subject, lack.severity), []).append(lack)
    for (subject, severity), group in groups.items():
        yield _unresolved_finding(replay.case, subject, severity, group)


def _lack(replay: Replay, failure: Unresolved) -> _Lack | None:
    """What ``failure`` means; None where another library of the environment is loaded first and answers to the name."""
    needer = failure.needed_by.path
    if not replay.is_inside(needer):
        return None  # the system's own business
    owner = replay.owner(needer)
    subject = owner.name if owner else "python"
    if failure.why:
        return _Lack(subject, "broken", failure.path, needer, failure.searched, failure.why)
    for excuse in _excuses():
        if excuse.holds(failure.name, subject):
            return _Lack(subject, "note", failure.name, needer, failure.searched, excuse.why)
    # torch's own way of loading is replayed. Of others it is not known: much Python code opens the libraries of its
    # wheels by their paths before it imports what needs them, so a library that is installed is taken to be found.
    if subject != "torch" and failure.name in replay.by_file_name:
        return None
    return _Lack(subject, _severity(replay, failure), failure.name, needer, failure.searched)


def _severity(replay: Replay, failure: Unresolved) -> Severity:
    """A library of another's that Python does not import itself may be a plugin that nobody asks for."""
    opened = failure.needed_by
    while opened.by is not None:
        opened = opened.by
    is_module = not file_name(opened.path).startswith("lib")
    return "broken" if is_module or replay.goes_with_torch(opened.path) else "dangerous"


def _unresolved_finding(case: Case, subject: str, severity: Severity, lacks: list[_Lack]) -> Finding:
    shown = case.installation.shown
    libraries = tuple(dict.fromkeys(shown(lack.library) for lack in lacks))
    whys = {shown(lack.library): lack.why for lack in lacks if lack.why}
    first = lacks[0]
    name = file_name(first.library)
    others = f" and {len(libraries) - 1} more" if len(libraries) > 1 else ""
    if severity == "note":
        purposes = ", ".join(dict.fromkeys(whys.values()))
        summary = f"{subject} has parts for {purposes}, whose libraries are not here: {_listed(libraries)}"
    elif first.why:
        summary = f"{subject} cannot be loaded: {name} {first.why}{others and '; so' + others[4:]}"
    else:
        by = file_name(first.needed_by)
        summary = f"{subject} cannot be loaded: nothing provides {name}{others}, which {by} needs"
    searched = tuple(dict.fromkeys(shown(folder) for lack in lacks for folder in lack.searched))
    evidence: dict[str, Evidence] = {
        "count": len(libraries),
        "libraries": libraries[:MOST_NAMED],
        "needed_by": {shown(lack.library): shown(lack.needed_by) for lack in lacks[:MOST_NAMED] if lack.needed_by},
        "searched": searched[:MOST_NAMED],
        "why": dict(list(whys.items())[:MOST_NAMED]),
    }
    fix = "" if severity == "note" else _reinstall(case, lacks)
    return Finding("link.unresolved", severity, subject, summary, {k: v for k, v in evidence.items() if v}, fix)


def _listed(names: tuple[str, ...]) -> str:
    """ "a, b and 3 more": short enough for a line."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _reinstall(case: Case, lacks: list[_Lack]) -> str:
    """Puts back whoever should bring the libraries: who claims a file of that name, or whose family has it."""
    wanted = {file_name(lack.library) for lack in lacks}
    bringers = {
        distribution.name
        for distribution in case.installation.distributions
        if any(file_name(claim.path) in wanted for claim in distribution.claims)
        or ((member := family_of(distribution.name)) is not None and member.libraries & wanted)
    }
    pinned = {pin for pin in case.pins if (member := family_of(pin)) is not None and member.libraries & wanted}
    names = sorted((bringers & set(case.pins) or bringers) | pinned)
    return (
        case.reinstall(*names) if names else ""
    )  # a library that nobody here brings: the system's, or another wheel's


def _name(replay: Replay, path: str) -> str:
    owner = replay.owner(path)
    return owner.name if owner else "python"


# --- needs that are met by the wrong one -----------------------------------------------------------------------


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
    for subject, strangers in groups.items():
        yield _foreign_finding(replay, subject, list(strangers.values()))


def _stranger(replay: Replay, library: Loaded) -> _Stranger | None:
    needer = library.by
    if needer is None or not replay.is_inside(needer.path):
        return None
    meant = passed_over(replay, library.path, file_name(library.path), replay.owner(needer.path))
    return _Stranger(*meant, library.path, needer.path) if meant else None


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
    summary = f"{subject}'s {name} is passed over: {needer} gets {shown(first.found)}{way}"
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
        rest = [entry for entry in replay.search.library_path if entry != folder]
        return f"export LD_LIBRARY_PATH={shlex.quote(':'.join(rest))}" if rest else "unset LD_LIBRARY_PATH"
    owner = replay.owner(stranger.found)
    if owner is not None:
        return f"{case.command} --fix --remove {owner.name}" if case.lock is not None else case.uninstall(owner.name)
    expected = shlex.quote(folder_of(stranger.expected))
    return f'export LD_LIBRARY_PATH={expected}"${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"'
