"""Which runs a word names, where several may stand together on one side of a comparison.

@1, an id or its start, a folder      one run, as everywhere (``folder.find``)
@NAME                                 all runs with that tag
toy                                   the finished runs of that recipe that were asked for as its latest one was
ID,ID,...                             several of any of these
32 hexadecimal digits                 the run that MLflow knows under this id
a folder of run folders               all runs in it
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from harness.errors import RecordError, UsageError
from harness.places import program
from harness.run import tags
from harness.run.folder import RunFolder, find, run_folders

MLFLOW_ID = re.compile(r"[0-9a-f]{32}")
"""How MLflow names a run."""


class Named(NamedTuple):
    """The runs that a word names, the earliest first where they are a group, and what to call them."""

    name: str
    folders: tuple[RunFolder, ...]


def side(runs: Path, reference: str) -> Named:
    """The runs that ``reference`` names, among those under ``runs``.

    Raises UsageError, in one line, where it names none, several where one is meant, or one run twice.
    """
    if "," in reference:
        return _several(runs, reference)
    if reference.startswith("@") and not reference[1:].isdecimal():
        return Named(reference, _tagged(runs, reference[1:]))
    if "/" in reference or reference in (".", ".."):
        return _folder(runs, reference)
    if MLFLOW_ID.fullmatch(reference):
        return _one(of_mlflow(runs, reference))
    known = run_folders(runs)
    if known and reference and not reference.startswith("@") and not any(f.id.startswith(reference) for f in known):
        return _of_recipe(known, reference, runs)
    return _one(find(runs, reference))


def mirrored(runs: Path, mlflow_run_id: str) -> RunFolder | None:
    """The run that MLflow knows under this id: mirrored from here, or imported from there."""
    records = ("mirror.json", "imported.json")
    known = run_folders(runs)
    return next((f for f in known if any(_read(f, r).get("mlflow_run_id") == mlflow_run_id for r in records)), None)


def of_mlflow(runs: Path, mlflow_run_id: str) -> RunFolder:
    """As ``mirrored``. Raises UsageError, with the command that brings it here, where no folder is that run."""
    folder = mirrored(runs, mlflow_run_id)
    if folder is None:
        raise UsageError(
            f"no run in {runs} is MLflow's {mlflow_run_id}; bring it here: {program()} import {mlflow_run_id}"
        )
    return folder


def _one(folder: RunFolder) -> Named:
    return Named(folder.id, (folder,))


def _several(runs: Path, reference: str) -> Named:
    parts = [part.strip() for part in reference.split(",")]
    if not all(parts):
        raise UsageError(f"{reference!r} has an empty place between its commas; write ID,ID")
    found = [folder for part in parts for folder in side(runs, part).folders]
    twice = next((f for f in found if sum(f.path.resolve() == other.path.resolve() for other in found) > 1), None)
    if twice is not None:
        raise UsageError(f"{reference} names the run {twice.id} twice")
    if len(found) == 1:
        return _one(found[0])
    return Named(f"{found[0].id} and {len(found) - 1} more", tuple(found))


def _tagged(runs: Path, name: str) -> tuple[RunFolder, ...]:
    found = tags.tagged(runs, name)
    if not found:
        there = tags.known(runs)
        near = difflib.get_close_matches(name, there, n=1, cutoff=0.5)
        hint = f"did you mean @{near[0]}?" if near else f"the tags are {', '.join(there)}" if there else "none has any"
        raise UsageError(f"@{name}: no run in {runs} has this tag; {hint}; {program()} tag {name} RUN gives it")
    return found


def _folder(runs: Path, reference: str) -> Named:
    path = Path(reference).absolute()
    inside = () if (path / "spec.json").exists() else tuple(reversed(run_folders(path)))
    return Named(reference, inside) if inside else _one(find(runs, reference))


def _of_recipe(known: list[RunFolder], name: str, runs: Path) -> Named:
    """The finished runs with the spec of the latest finished run of the recipe ``name``, the earliest first.

    Where others have finished too, the name says how many of them these are.
    """
    of_it = list(_asked_for(known, name))
    if not of_it:
        raise UsageError(
            f"{name}: no run in {runs} starts so or is of a recipe of that name; `harness runs` lists them"
        )
    finished = [(folder, spec) for folder, spec in of_it if _read(folder, "result.json").get("status") == "finished"]
    if not finished:
        raise UsageError(f"{name}: none of its {len(of_it)} runs has finished; name one by its id: `harness runs`")
    latest = finished[0][1].get("id")
    alike = tuple(reversed([folder for folder, spec in finished if spec.get("id") == latest]))
    left_out = len(finished) > len(alike)
    return Named(f"{name}, {len(alike)} of its {len(finished)} finished runs" if left_out else name, alike)


def _asked_for(known: list[RunFolder], recipe: str) -> Iterator[tuple[RunFolder, dict[str, Any]]]:
    for folder in known:
        spec = _read(folder, "spec.json")
        if spec.get("recipe") == recipe:
            yield folder, spec


def _read(folder: RunFolder, name: str) -> dict[str, Any]:
    """What the file says; nothing where it cannot be read: one broken record does not hide the others."""
    try:
        return folder.read_json(name) or {}
    except RecordError:
        return {}
