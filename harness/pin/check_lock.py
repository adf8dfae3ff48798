"""Whether a lock still satisfies its ``.in``, without downloading a wheel."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from harness.pin.compile_lock import extra_pages, included_locks, stand_ins
from harness.pin.environments import lock_for
from harness.pin.indexes import pip_settings, uv_variables
from harness.pin.venvs import find_uv
from harness.places import Places
from harness.records import Environment


def check_environment(env: Environment, where: Places) -> tuple[str, ...]:
    """Why the locks of ``env`` do not satisfy ``NAME.in``, a line each; nothing where they do."""
    return tuple(complaint for version in env.python for complaint in _check(env, version, where))


def _check(env: Environment, version: str, where: Places) -> Iterator[str]:
    """Resolve again with uv, which keeps each pin that may stay: a lock that satisfies its source stays the same."""
    lock = lock_for(env, version, where)
    label = f"{env.name}, Python {version}"
    if env.captured:  # what was installed together need not go together: there is nothing to resolve
        listed = _requirements((where.root / "envs" / f"{env.name}.in").read_text(encoding="utf-8"))
        yield from _differences(label, {pin.name: pin.version for pin in lock.pins}, listed)
        return
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "lock.txt"
        output.write_text(Path(lock.path).read_text(encoding="utf-8"), encoding="utf-8")
        done = resolve_with_uv(env, version, where, output, "--no-annotate")
        if done.returncode != 0:
            yield f"{label}: {' '.join(done.stderr.split())}"
            return
        resolved = _requirements(output.read_text(encoding="utf-8"))
    yield from _differences(label, {pin.name: pin.version for pin in lock.pins}, resolved)


def resolve_with_uv(
    env: Environment, version: str, where: Places, output: Path, *options: str
) -> subprocess.CompletedProcess[str]:
    """``uv pip compile`` of ``NAME.in`` into ``output``, whose pins it keeps where they may stay."""
    with stand_ins(env, where) as links:
        settings = pip_settings()
        if links:
            settings = dataclasses.replace(settings, find_links=(*settings.find_links, str(links)))
        pages = () if links else extra_pages(env, where)
        names = [pin.name for pin in lock_for(env, version, where).pins]
        asked = ["--quiet", "--no-header", "--strip-extras", f"--python-version={version}", *options]
        asked += [] if env.dependencies else ["--no-deps"]
        asked += [f"--constraint={path.name}" for path in included_locks(env, version, where)]
        return subprocess.run(
            [find_uv(where), "pip", "compile", *asked, f"--output-file={output}", f"{env.name}.in"],
            cwd=where.root / "envs",
            env={**os.environ, **uv_variables(settings, names, pages)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )


def _requirements(text: str) -> dict[str, str]:
    """``{name: version}`` of lines ``name==version``; what follows a blank on a line, and comments, say no more."""
    words = [line.split()[0] for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return dict(word.split("==") for word in words)


def _differences(label: str, pinned: Mapping[str, str], resolved: Mapping[str, str]) -> Iterator[str]:
    for name in sorted(pinned.keys() | resolved.keys()):
        if name not in pinned:
            yield f"{label}: {name} is asked for and not in the lock"
        elif name not in resolved:
            yield f"{label}: {name}=={pinned[name]} is in the lock and nothing asks for it"
        elif pinned[name] != resolved[name]:
            yield f"{label}: {name}=={pinned[name]} is in the lock, and what is asked for needs =={resolved[name]}"
