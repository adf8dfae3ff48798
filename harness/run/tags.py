"""Tags: names that a person gives to runs, in ``tags.json`` of each run's folder. ``@NAME`` then means all of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from harness.errors import UsageError
from harness.run.folder import RunFolder, run_folders

NAME = "tags.json"

_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,63}")


def checked(names: Iterable[str]) -> tuple[str, ...]:
    """``names``, each once. Raises UsageError for one that could not be written as ``@NAME``."""
    found = tuple(dict.fromkeys(names))
    for name in found:
        if name.isdecimal():
            raise UsageError(f"the tag {name} is a number, and @{name} already means a run by its age: add a letter")
        if not _TAG.fullmatch(name):
            raise UsageError(
                f"{name!r} cannot be a tag: letters, digits, _ . and -, at most 64 of them, for example before-upgrade"
            )
    return found


def tags_of(folder: RunFolder) -> tuple[str, ...]:
    """The tags of a run, in order. Raises RecordError where ``tags.json`` cannot be read."""
    return tuple((folder.read_json(NAME) or {}).get("tags", ()))


def add(folder: RunFolder, names: Sequence[str]) -> bool:
    """Give the run these tags too; whether it lacked one of them. Raises UsageError for a name that cannot be a tag."""
    return _write(folder, {*tags_of(folder), *checked(names)})


def remove(folder: RunFolder, names: Sequence[str]) -> bool:
    """Take these tags from the run; whether it had one of them."""
    return _write(folder, set(tags_of(folder)) - set(names))


def tagged(runs: Path, name: str) -> tuple[RunFolder, ...]:
    """The runs under ``runs`` with this tag, the earliest first. Raises RecordError where a ``tags.json`` is broken:
    a group from which a run is missing would be another group."""
    return tuple(reversed([folder for folder in run_folders(runs) if name in tags_of(folder)]))


def known(runs: Path) -> tuple[str, ...]:
    """Every tag that a run under ``runs`` has."""
    return tuple(sorted({tag for folder in run_folders(runs) for tag in tags_of(folder)}))


def _write(folder: RunFolder, names: set[str]) -> bool:
    changed = names != set(tags_of(folder))
    if changed:
        folder.write_json(NAME, {"tags": sorted(names)})
    return changed
