"""Whether every library finds what it needs, and finds it where the lock put it."""

from __future__ import annotations

import fnmatch
import os
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from harness.findings import Evidence, Finding, Severity
from harness.pin.doctor.case import Case
from harness.pin.doctor.cuda.families import family_of
from harness.pin.doctor.linking.foreign import foreign
from harness.pin.doctor.linking.ldso import Unresolved, file_name
from harness.pin.doctor.linking.missing_symbols import undefined
from harness.pin.doctor.linking.openings import MOST_NAMED, Replay


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
    table = tomllib.loads((files("harness.pin.doctor.linking") / "elsewhere.toml").read_text("utf-8"))
    return tuple(Excuse(tuple(e["names"]), e["why"], tuple(e.get("of", ()))) for e in table["library"])


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
    # Of several that need one library, the first in both: here and in the evidence.
    needers = {shown(lack.library): shown(lack.needed_by) for lack in reversed(lacks) if lack.needed_by}
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
        "needed_by": {library: needers[library] for library in libraries[:MOST_NAMED] if library in needers},
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
