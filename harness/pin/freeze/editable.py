"""The files behind an editable install: what Python imports from a folder of sources, as it is there now.

Its site holds only the way to them: a ``.pth`` file with their folder (hatch, poetry, flit, uv, setuptools with a
``src`` folder), or one that starts a finder with a table of packages (setuptools without).
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from harness.pin.doctor.installed.installation import Distribution

_PROJECT = ("pyproject.toml", "setup.py", "setup.cfg")
_BESIDE = frozenset(
    ("build", "dist", "doc", "docs", "test", "tests", "example", "examples", "benchmarks", "scripts", "tools")
) | frozenset(("setup.py", "conftest.py", "noxfile.py", "node_modules"))
"""What lies beside the packages in a project's own folder and is not meant to be installed."""


class Sources(NamedTuple):
    """What an editable install imports."""

    files: dict[str, str]  # path under site-packages -> the file
    wiring: frozenset[str]  # the installed files that lead there; no use without the sources
    passed_over: tuple[str, ...]  # what could be imported too and was taken for no part of it


def sources(distribution: Distribution) -> Sources | None:
    """The files that ``distribution`` stands for; None where nothing says where they are, in a way that is known."""
    site = distribution.site + "/"
    top = [claim.path for claim in distribution.claims if "/" not in claim.path.removeprefix(site)]
    files: dict[str, str] = {}
    passed_over: list[str] = []
    wiring = {path for path in top if path.endswith(".pth") or Path(path).name.startswith("__editable__")}
    for path in sorted(wiring):
        for name, place in _packages(Path(path), distribution, passed_over):
            files |= _under(name, place)
    return Sources(files, frozenset(wiring), tuple(passed_over)) if files else None


def _packages(wire: Path, distribution: Distribution, passed_over: list[str]) -> Iterator[tuple[str, Path]]:
    """Each package or module that the file leads to: its path under site-packages, and where it is."""
    text = wire.read_text(encoding="utf-8", errors="replace")
    if wire.suffix == ".pth":
        for line in text.splitlines():
            folder = Path(line.strip())
            if folder.is_absolute() and folder.is_dir():
                yield from _in_folder(folder, distribution, passed_over)
    elif wire.suffix == ".py":
        for name, place in _mapping(text).items():
            if all(part.isidentifier() for part in name.split(".")):
                folder, module = Path(place), Path(place + ".py")
                found, ending = (folder, "") if folder.exists() else (module, ".py")
                yield name.replace(".", "/") + ending, found


def _in_folder(folder: Path, distribution: Distribution, passed_over: list[str]) -> Iterator[tuple[str, Path]]:
    """What can be imported from ``folder``; of a project's own folder only what belongs to the distribution."""
    found = {path.name: path for path in sorted(folder.iterdir()) if _is_importable(path)}
    chosen = set(found)
    if any((folder / name).is_file() for name in _PROJECT):
        listed = Path(distribution.info) / "top_level.txt"
        names = set(listed.read_text(encoding="utf-8", errors="replace").split()) if listed.is_file() else set()
        names = names or {distribution.name.replace("-", "_")}
        named = {name for name in found if name.partition(".")[0] in names}
        chosen = named or set(found) - _BESIDE
    passed_over += [str(found[name]) for name in sorted(found.keys() - chosen)]
    yield from ((name, found[name]) for name in sorted(chosen))


def _is_importable(path: Path) -> bool:
    stem = path.name.partition(".")[0]
    if not stem.isidentifier() or stem == "__pycache__":
        return False
    return path.suffix in (".py", ".so") if path.is_file() else path.suffix == "" and any(path.rglob("*.py"))


def _mapping(text: str) -> dict[str, str]:
    """The table ``MAPPING`` of setuptools' finder: package or module -> its path, a module's without its ending."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError):
        return {}
    for node in body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Dict):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            if isinstance(target, ast.Name) and target.id == "MAPPING":
                return dict(_texts_of(node.value))
    return {}


def _texts_of(table: ast.Dict) -> Iterator[tuple[str, str]]:
    """The entries of a literal table that are texts."""
    for key, value in zip(table.keys, table.values, strict=True):
        match key, value:
            case ast.Constant(value=str(name)), ast.Constant(value=str(place)):
                yield name, place


def _under(name: str, place: Path) -> dict[str, str]:
    """``place`` as ``name`` in site-packages: itself, or every file in it but what tools leave there."""
    if place.is_file():
        return {name: str(place)}
    files: dict[str, str] = {}
    seen: set[str] = set()
    for folder, folders, names in os.walk(place, followlinks=True):
        inside = Path(name, Path(folder).relative_to(place))
        real = os.path.realpath(folder)
        if real in seen:  # a link that leads back
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(f for f in folders if f != "__pycache__" and not f.endswith(".egg-info") and f[0] != ".")
        files |= {str(inside / file): str(Path(folder, file)) for file in sorted(names) if not file.endswith(".pyc")}
    return files
