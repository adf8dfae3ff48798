"""Which files of an environment leave, and which come, when distributions are removed or installed again."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterable, Iterator
from importlib.util import source_from_cache
from pathlib import Path

from harness.errors import EnvironmentFault
from harness.pin.aside import MARKER
from harness.pin.doctor.case import Case
from harness.pin.doctor.checks import as_built
from harness.pin.doctor.checks.contests import is_own
from harness.pin.doctor.installed.installation import Distribution, Installation, Layout
from harness.pin.doctor.installed.tree import stats

_OF_THE_ENVIRONMENT = re.compile(rf"pyvenv\.cfg|bin/(python|pypy)[\d.]*|{re.escape(MARKER)}|{re.escape(as_built.FILE)}")
"""Files that make it an environment, whatever a RECORD claims."""


def taken_out(case: Case, names: Collection[str]) -> tuple[str, ...]:
    """The files of the distributions ``names``: what they claim, its bytecode, and their metadata.

    Paths are relative to the prefix. What a distribution that stays claims too is left to it.
    """
    installation = case.installation
    claimed = {claim.path for distribution in _staying(installation, names) for claim in distribution.claims}
    own = dict.fromkeys(path for path in _belongings(installation, names) if path not in claimed)
    there = (path for path in (*own, *_bytecode(own)) if path in installation.files or path.endswith(".pyc"))
    root = _root(installation.layout)
    return tuple(path.removeprefix(root) for path in there if _may_change(installation.layout, path))


def put_in(case: Case, names: Collection[str], staged: Installation) -> tuple[str, ...]:
    """The files of ``staged`` to put in the environment, relative to the prefix: those that are not there already.

    A file that is another locked distribution's own stays, where that one stays: the lock does not say whose it is.
    """
    layout = case.installation.layout
    staying = _staying(case.installation, names)
    theirs = {c.path for d in staying if d.name in case.pins for c in d.claims if is_own(case, c)}
    beside, root = _root(staged.layout), _root(layout)
    coming = dict.fromkeys(c.path.removeprefix(beside) for d in staged.distributions for c in d.claims)
    there = (path for path in coming if os.path.lexists(beside + path))
    return tuple(path for path in there if root + path not in theirs and _may_change(layout, root + path))


def refuse_changed(case: Case, names: Collection[str]) -> None:
    """Raise EnvironmentFault where a file of the distributions ``names`` is not as it was when it was examined."""
    paths = [claim.path for distribution in _going(case.installation, names) for claim in distribution.claims]
    before, now = case.installation.files, stats(paths, {})
    for path in paths:
        if path in before and (path not in now or before[path][:2] != now[path][:2]):  # size and mtime
            shown = case.installation.shown(path)
            raise EnvironmentFault(f"{shown} was changed meanwhile: nothing was done; again: {case.command} --fix")


def _root(layout: Layout) -> str:
    return layout.prefix.rstrip("/") + "/"


def _going(installation: Installation, names: Collection[str]) -> list[Distribution]:
    """Those in the environment itself: others are seen from it and not its own to change."""
    root = _root(installation.layout)
    return [d for d in installation.distributions if d.name in names and d.site.startswith(root)]


def _staying(installation: Installation, names: Collection[str]) -> list[Distribution]:
    going = {distribution.info for distribution in _going(installation, names)}
    return [distribution for distribution in installation.distributions if distribution.info not in going]


def _belongings(installation: Installation, names: Collection[str]) -> Iterator[str]:
    for distribution in _going(installation, names):
        yield distribution.info  # where it is a file
        yield from (path for path in installation.files if path.startswith(distribution.info + "/"))
        yield from (claim.path for claim in distribution.claims)


def _bytecode(paths: Iterable[str]) -> Iterator[str]:
    """What Python has compiled of ``paths``: left behind, its folder would be imported as an empty package."""
    sources: dict[str, set[str]] = {}
    for path in paths:
        if path.endswith(".py"):
            sources.setdefault(path.rpartition("/")[0], set()).add(path)
    for folder, own in sources.items():
        for compiled in Path(folder, "__pycache__").glob("*.pyc"):
            with contextlib.suppress(ValueError):  # named as no Python names bytecode
                if source_from_cache(str(compiled)) in own:
                    yield str(compiled)


def _may_change(layout: Layout, path: str) -> bool:
    """Whether an installer may have put it there: not a file of Python or of the environment itself."""
    root = _root(layout)
    if any(path.startswith(site + "/") for site in layout.sites):
        return path.startswith(root)
    of_python = path.startswith(layout.stdlib + "/") or _OF_THE_ENVIRONMENT.fullmatch(path.removeprefix(root))
    return path.startswith(root) and not of_python
