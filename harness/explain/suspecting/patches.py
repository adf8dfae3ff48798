"""What a change of the code can touch, by the names of the files in its patch: ``[[files]]`` of ``rules.toml``.

A patch of a README slows nothing; one of ``data.py`` may slow the data, and hardly the optimizer.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from harness.comparison import Change
from harness.records import Value

FILES = "observed.patch.files"

ANY = ("*",)


@dataclass(frozen=True)
class _Kind:
    """Files by globs, and the phases that they can slow; none for what computes nothing."""

    globs: tuple[str, ...]
    phases: tuple[str, ...]


@cache
def _kinds() -> tuple[_Kind, ...]:
    data = tomllib.loads(Path(__file__).with_name("rules.toml").read_text("utf-8"))
    groups = data["groups"]
    return tuple(
        _Kind(
            tuple(entry["globs"]),
            tuple(p for name in entry["phases"] for p in (groups[name[1:]] if name[0] == "@" else (name,))),
        )
        for entry in data["files"]
    )


def reach_of(changes: Iterable[Change]) -> tuple[str, ...] | None:
    """Globs of the phases that a changed patch can touch; None where its files are not known, or the commit changed."""
    found = {change.fact: change for change in changes}
    patch = found.get(FILES)
    if patch is None or "code.commit" in found:
        return None
    before, after = _names(patch.before), _names(patch.after)
    touched = before ^ after or before | after
    return tuple(dict.fromkeys(phase for name in sorted(touched) for phase in _phases(name)))


def _names(value: Value) -> frozenset[str]:
    return frozenset(value.split(", ")) if isinstance(value, str) and value else frozenset()


def _phases(name: str) -> tuple[str, ...]:
    """The phases of the first kind that fits; any, for a file that none does."""
    name = name.lower()
    return next((kind.phases for kind in _kinds() if any(fnmatchcase(name, g) for g in kind.globs)), ANY)
