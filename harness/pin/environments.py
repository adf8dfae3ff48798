"""What environments there are (``envs/envs.toml``), which lock is whose, and which Pythons this machine has.

Standard library only: the bootstrap asks before anything is installed.

A lock is ``envs/NAME.txt``. Where another Python resolves differently, its lock is ``envs/NAME-py313.txt``,
and ``NAME.txt`` holds for the rest.
"""

from __future__ import annotations

import difflib
import functools
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.errors import EnvironmentFault, UsageError
from harness.pin.locks import read_lock
from harness.places import Places
from harness.records import Environment, Lock

RUNNING = f"{sys.version_info.major}.{sys.version_info.minor}"
"""The version of the Python that runs this, as envs.toml writes one: "3.11"."""

HASHES = "hashes"  # the one table of envs.toml that is not an environment


def _tables(where: Places) -> dict[str, Any]:
    path = where.root / "envs" / "envs.toml"
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise EnvironmentFault(f"there is no {path}; is {where.root} the checkout? git checkout -- envs") from None
    except tomllib.TOMLDecodeError as error:
        raise EnvironmentFault(f"{path} cannot be read: {error}") from None


def load_environments(where: Places) -> dict[str, Environment]:
    """Every environment of ``envs.toml``, by name, in the file's order."""
    return {name: _environment(name, table, where) for name, table in _tables(where).items() if name != HASHES}


def _environment(name: str, table: Mapping[str, Any], where: Places) -> Environment:
    wheels = tuple(str((where.root / "envs" / folder).resolve()) for folder in table.get("wheels", ()))
    return Environment(name=name, **{**table, "python": tuple(table["python"]), "wheels": wheels})


def environment(name: str, where: Places) -> Environment:
    """The environment called ``name``. Raises UsageError, naming the right ones, where there is none."""
    known = load_environments(where)
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UsageError(f"unknown environment {name!r}: {hint}there are {', '.join(known)}")
    return known[name]


def official_hashes(where: Places) -> Mapping[str, Mapping[str, str]]:
    """``{"torch==2.13.0+cpu": {file name: "sha256:..."}}``: files whose index the one who locks may not reach."""
    hashes: Mapping[str, Mapping[str, str]] = _tables(where).get(HASHES, {})
    return hashes


def own_lock_path(name: str, python: str, where: Places) -> Path:
    """Where a lock for this Python alone would be: ``envs/cpu-py313.txt``."""
    return where.root / "envs" / f"{name}-py{python.replace('.', '')}.txt"


def lock_path(env: Environment, python: str, where: Places) -> Path:
    """The lock file that holds for ``env`` under ``python`` ("3.11")."""
    own = own_lock_path(env.name, python, where)
    return own if own.exists() else where.root / "envs" / f"{env.name}.txt"


def lock_for(env: Environment, python: str, where: Places) -> Lock:
    """The lock of ``env`` under ``python``. Raises UsageError for a Python that the environment is not locked for."""
    if python not in env.python:
        raise UsageError(f"{env.name} is not locked for Python {python}, only for {', '.join(env.python)}")
    path = lock_path(env, python, where)
    same = tuple(version for version in env.python if lock_path(env, version, where) == path)
    return read_lock(path, env.name, same)


def _candidates(version: str) -> Iterator[Path]:
    """Files that may be a Python of ``version``, the likely ones first."""
    if version == RUNNING:
        yield Path(getattr(sys, "_base_executable", sys.executable))
    for folder in os.get_exec_path():
        if found := shutil.which(f"python{version}", path=folder):
            yield Path(found)
    home = Path.home()
    yield from sorted((home / ".pyenv" / "versions").glob(f"{version}.*/bin/python{version}"), reverse=True)
    yield from sorted((home / ".local/share/uv/python").glob(f"cpython-{version}.*/bin/python{version}"), reverse=True)


def _is_python(path: Path, version: str) -> bool:
    """Whether the file runs and is that Python: a version manager's shim is often neither."""
    probe = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        answer = subprocess.run([path, "-I", "-c", probe], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return answer.stdout.strip() == version


@functools.cache
def find_python(version: str) -> Path | None:
    """An interpreter of ``version`` ("3.11") on this machine, or None. Looks on PATH, then at pyenv's and uv's."""
    for path in _candidates(version):
        if path.exists() and _is_python(path, version):
            return path
    return None


def by_preference(env: Environment) -> tuple[str, ...]:
    """The Pythons that ``env`` is locked for, the running one before the others."""
    return tuple(sorted(env.python, key=lambda version: version != RUNNING))


def choose_python(env: Environment, python: str | None = None) -> tuple[str, Path]:
    """The version and interpreter to build ``env`` with: ``python``, or the running one, or the first found.

    Raises EnvironmentFault where this machine has no Python that the environment is locked for.
    """
    versions = (python,) if python else by_preference(env)
    for version in versions:
        if path := find_python(version):
            return version, path
    raise EnvironmentFault(
        f"{env.name} needs Python {' or '.join(versions)}, and this machine has {RUNNING}; "
        f"install one, for example: uv python install {versions[-1]}"
    )
