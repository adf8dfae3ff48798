"""Compile an environment's locks.

pip-tools compiles under each Python that an environment is for, oldest first, in the tools environment of that
Python. Each later Python starts from the pins of the first, so that they agree wherever they can; one that still
differs gets a lock of its own. Nothing is downloaded but metadata: pip and uv read a wheel's end by range requests,
and hashes come from the index's pages (``index_hashes``).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.errors import EnvironmentFault, UsageError
from harness.pin.aside import replace_text, say_on_stderr
from harness.pin.environments import (
    environment,
    lock_path,
    official_hashes,
    own_lock_path,
)
from harness.pin.indexes import local_path, pip_settings
from harness.pin.locks import parse_pins
from harness.pin.venvs import ensure
from harness.places import Places
from harness.records import Environment, Pin

_PIP_COMPILE = (
    "--quiet",
    "--allow-unsafe",
    "--generate-hashes",
    "--no-emit-options",  # no host, path or index option: where packages come from is each machine's own affair
    "--no-header",
    "--resolver=backtracking",
    "--strip-extras",
    "--pip-args=--use-feature=fast-deps",
)


def compile_environment(env: Environment, where: Places, upgrade: bool) -> tuple[Path, ...]:
    """Write the locks of ``env``; returns their paths. Existing pins stay unless ``upgrade``.

    Raises EnvironmentFault where the requirements cannot be met or a Python is missing, and UsageError for a captured
    environment, whose lock says what was installed; no lock is touched then.
    """
    if env.captured:
        raise UsageError(
            f"{env.name} was captured from a working Python and its lock is not compiled; "
            f"copy envs/{env.name}.in to a new environment and lock that"
        )
    texts = dict[str, str]()
    first = env.python[0]
    for version in env.python:
        say_on_stderr(f"locking {env.name} for Python {version} ...")
        own = lock_path(env, version, where)
        differs = own == own_lock_path(env.name, version, where)
        seed = own.read_text(encoding="utf-8") if own.exists() and not upgrade and (version == first or differs) else ""
        texts[version] = _compile(env, version, where, seed or texts.get(first, ""))
    shared = [version for version in env.python if _pins(texts[version]) == _pins(texts[first])]
    written = [_write(where.root / "envs" / f"{env.name}.txt", env.name, tuple(shared), texts[first])]
    for version in env.python:
        own = own_lock_path(env.name, version, where)
        if version in shared:
            own.unlink(missing_ok=True)
        else:
            written.append(_write(own, env.name, (version,), texts[version]))
    return tuple(written)


def _pins(text: str) -> tuple[Pin, ...]:
    return parse_pins(text, "the new lock")


def _write(path: Path, name: str, versions: tuple[str, ...], body: str) -> Path:
    header = (
        f"# Lock of the environment {name} for Python {', '.join(versions)}.\n"
        f"# pip-tools compiled it from envs/{name}.in; change that and write this anew:\n"
        f"#\n#     nox -s lock -- {name}\n#\n"
    )
    replace_text(path, header + body)
    return path


def _compile(env: Environment, version: str, where: Places, seed: str) -> str:
    """The text of the lock of ``env`` under ``version``, with the pins of the lock ``seed`` kept where they may be."""
    tools = ensure("tools", where, python=version)
    with tempfile.TemporaryDirectory() as folder, stand_ins(env, where) as links:
        output, official = Path(folder) / "lock.txt", Path(folder) / "hashes.json"
        output.write_text(seed, encoding="utf-8")
        official.write_text(json.dumps(official_hashes(where)), encoding="utf-8")
        sources = [f"--constraint={path.name}" for path in included_locks(env, version, where)]
        sources += [f"--find-links={place}" for place in ([links] if links else extra_pages(env, where))]
        arguments = [*_PIP_COMPILE, *sources, f"--output-file={output}", f"{env.name}.in"]
        command = [
            tools.python,
            "-m",
            "harness.pin.index_hashes",
            "--deps" if env.dependencies else "--no-deps",
            official,
            *arguments,
        ]
        environ = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
        done = subprocess.run(command, cwd=where.root / "envs", env=environ, stdout=sys.stderr, check=False)
        if done.returncode != 0:
            raise EnvironmentFault(
                f"{env.name} cannot be locked for Python {version}: pip-tools' own words are above; "
                f"mend envs/{env.name}.in and try again: nox -s lock -- {env.name}"
            )
        return output.read_text(encoding="utf-8")


def included_locks(env: Environment, version: str, where: Places) -> list[Path]:
    """The locks of the environments that ``NAME.in`` takes in by ``-r OTHER.in``: what they pin holds here too."""
    text = (where.root / "envs" / f"{env.name}.in").read_text(encoding="utf-8")
    names = re.findall(r"^-r\s+(\S+)\.in\s*$", text, flags=re.MULTILINE)
    return [lock_path(environment(name, where), version, where) for name in names]


def extra_pages(env: Environment, where: Places) -> tuple[str, ...]:
    """The pages of the environment's extra index that list what no other index may have."""
    names = [pin.partition("==")[0] for pin in official_hashes(where)]
    asked = env.extra_index and not pip_settings().no_index
    return tuple(f"{env.extra_index}/{name}/" for name in names) if asked else ()


@contextmanager
def stand_ins(env: Environment, where: Places) -> Iterator[Path | None]:
    """A folder in which each wheel that only the extra index lists stands for every Python; None where it is not here.

    A machine may have torch 2.13.0+cpu in a find-links folder for one Python, and not reach the index with the
    others. What a release asks for is the same in each of its wheels, and the hashes are known (``official_hashes``).
    """
    folders = [folder for link in pip_settings().find_links if (folder := local_path(link))]
    with tempfile.TemporaryDirectory() as name:
        for pin in official_hashes(where):
            stem = pin.replace("==", "-")
            for wheel in [found for folder in folders for found in folder.glob(f"{stem}-*.whl")][:1]:
                (Path(name) / f"{stem}-py3-none-any.whl").symlink_to(wheel)
        yield Path(name) if env.extra_index and any(Path(name).iterdir()) else None
