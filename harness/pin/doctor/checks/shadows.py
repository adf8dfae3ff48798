"""Modules that Python finds before the installed ones: on PYTHONPATH, in the current folder, in the user's site."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from importlib.machinery import FrozenImporter
from pathlib import Path
from typing import NamedTuple

from harness.findings import Evidence, Finding
from harness.pin.doctor.case import Case, names
from harness.pin.doctor.installed.installation import Layout
from harness.pin.doctor.spelling import printable, quoted

_MODULE = re.compile(r"(?P<name>[^\W\d]\w*)(\.cpython-\d+\w*(-[\w-]+)?|\.abi3)?\.(py|so|pyc)")
_UNUSED = frozenset({"test", "tests", "this", "antigravity", "idlelib", "turtle", "turtledemo", "docs", "examples"})
"""Names that no training imports, and that many a wheel and many a project's folder have."""


def check(case: Case) -> Iterator[Finding]:
    """python.shadowed."""
    yield from _home(case)
    standard = _standard_library(case.installation.layout)
    installed = {name for site in case.installation.layout.sites for kind in _modules(site) for name in kind}
    for folder, source in _searched_first(case):
        first = set(_modules(folder).real)
        found = {name for name in first & (standard | installed) - _UNUSED if not _before_any_folder(name)}
        if found:
            yield _shadowed(case, folder, source, sorted(found), found & standard)
    yield from _users_site(case)


def _home(case: Case) -> Iterator[Finding]:
    layout, home = case.installation.layout, case.variables.get("PYTHONHOME", "")
    if not home or (not layout.is_venv and os.path.realpath(home) == layout.base_prefix):
        return
    loses = "; the packages of this environment are not found" if layout.is_venv else ""
    summary = f"PYTHONHOME is {printable(home)}: Python takes its standard library and its packages from there{loses}"
    yield Finding(
        "python.shadowed", "dangerous", "python", summary, {"PYTHONHOME": printable(home)}, "unset PYTHONHOME"
    )


def _searched_first(case: Case) -> Iterator[tuple[str, str]]:
    """Each folder that comes before the standard library, and what puts it there."""
    layout, listed = case.installation.layout, case.variables.get("PYTHONPATH", "")
    entries = [(entry, "on PYTHONPATH") for entry in listed.split(os.pathsep) if listed]
    if not case.variables.get("PYTHONSAFEPATH"):
        entries.insert(0, ("", "the current folder"))
    # What an editable install has put on the path is no stranger; nor is a site that is named once more.
    seen = {*layout.path, *layout.sites, layout.stdlib}
    for entry, source in entries:
        folder = _resolved(case, entry)
        if folder not in seen:
            seen.add(folder)
            yield folder, source


def _resolved(case: Case, entry: str) -> str:
    """A folder of PYTHONPATH; an empty one is the current folder. Nothing is relative where that is not known."""
    return os.path.realpath(os.path.join(case.cwd, entry)) if case.cwd or entry.startswith("/") else ""  # noqa: PTH118


class _Modules(NamedTuple):
    """What ``import`` finds in one folder."""

    real: tuple[str, ...]
    folders: tuple[str, ...]  # without an __init__: each yields to a real module or package that is later on the path


def _modules(folder: str) -> _Modules:
    real: list[str] = []
    folders: list[str] = []
    try:
        with os.scandir(folder or os.devnull) as entries:
            for entry in entries:
                if match := _MODULE.fullmatch(entry.name):
                    real.append(match["name"])
                elif entry.name.isidentifier() and entry.is_dir():
                    package = any(Path(entry.path, f"__init__.{ending}").exists() for ending in ("py", "pyc"))
                    (real if package else folders).append(entry.name)
    except OSError:  # not there, not a folder, or closed to Python as well
        pass
    return _Modules(tuple(real), tuple(folders))


def _standard_library(layout: Layout) -> frozenset[str]:
    """That of the examined Python, which may have another list than ours."""
    return frozenset(_modules(layout.stdlib).real + _modules(f"{layout.stdlib}/lib-dynload").real)


def _before_any_folder(name: str) -> bool:
    return name in sys.builtin_module_names or FrozenImporter.find_spec(name) is not None


def _shadowed(case: Case, folder: str, source: str, found: list[str], standard: set[str]) -> Finding:
    owners = {_owner(case, name) for name in found if name not in standard}
    named = min(standard, default=found[0])
    what = f"the standard library's {named}" if standard else f"the installed {named}"
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    summary = f"{printable(folder)} ({source}) has a module that Python imports instead of {what}{more}"
    evidence: dict[str, Evidence] = {
        "folder": printable(folder),
        "from": source,
        "modules": tuple(found[:20]),
        "count": len(found),
        "standard": tuple(sorted(standard)[:20]),
    }
    fix = _without(case, folder) if source == "on PYTHONPATH" else _renamed(folder, found)
    subject = next(iter(owners)) if len(owners) == 1 and not standard else None
    return Finding("python.shadowed", "dangerous", subject or "python", summary, evidence, fix)


def _owner(case: Case, name: str) -> str | None:
    """The distribution whose top-level module ``name`` is."""
    owners = case.installation.owners
    for site in case.installation.layout.sites:
        for file in (f"{site}/{name}/__init__.py", f"{site}/{name}.py"):
            if file in owners:
                return owners[file][0][0].name
    inside = tuple(f"{site}/{name}{end}" for site in case.installation.layout.sites for end in ("/", "."))
    return next((claims[0][0].name for path, claims in owners.items() if path.startswith(inside)), None)


def _without(case: Case, folder: str) -> str:
    kept = [entry for entry in case.variables["PYTHONPATH"].split(os.pathsep) if _resolved(case, entry) != folder]
    return f"export PYTHONPATH={quoted([os.pathsep.join(kept)])}" if any(kept) else "unset PYTHONPATH"


def _renamed(folder: str, found: Iterable[str]) -> str:
    """Out of the way, under a name that nothing imports; a package's folder or a module's file."""
    places = [place for name in found for place in sorted(Path(folder).glob(f"{name}*")) if _is_named(place, name)]
    return " && ".join(f"mv {quoted([str(place)])} {quoted([f'{folder}/my_{place.name}'])}" for place in places)


def _is_named(place: Path, name: str) -> bool:
    match = _MODULE.fullmatch(place.name)
    return place.name == name if match is None else match["name"] == name


def _users_site(case: Case) -> Iterator[Finding]:
    """Packages in the user's own folder, which Python puts before the environment's, and which no environment names."""
    layout = case.installation.layout
    # An isolated start, which the path is of, leaves the user's folder out, and it alone.
    users = [site for site in layout.sites if site not in (*layout.path, layout.purelib, layout.platlib)]
    for site in users if not case.variables.get("PYTHONNOUSERSITE") else ():
        here = names(d for d in case.installation.distributions if d.site == site)
        hidden = tuple(sorted({d.name for d in case.installation.distributions if d.site != site} & set(here)))
        summary = f"Python also takes packages from the user's folder {printable(site)}"
        evidence: dict[str, Evidence] = {"site": printable(site), "names": here, "shadowed": hidden}
        if hidden:
            summary += f", and these before its own: {', '.join(hidden[:5])}"
            fix = "export PYTHONNOUSERSITE=1"
            yield Finding("python.shadowed", "dangerous", "python", summary, evidence, fix)
        elif here:
            yield Finding("python.shadowed", "note", "python", f"{summary}: {len(here)} of them", evidence)
