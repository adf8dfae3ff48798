"""An environment as its files tell it."""

from __future__ import annotations

import os
import re
from collections.abc import Container
from dataclasses import replace

from harness.pin.doctor.installed.dist_info import distributions_in
from harness.pin.doctor.installed.installation import Claim, Distribution, Installation, Layout
from harness.pin.doctor.installed.tree import Tree, stats, walk

_USUAL_SITE = re.compile(r"(?P<root>/.+)/lib(64)?/python[^/]*/(site|dist)-packages")

_MOST_LINKS = 40  # as many as Linux follows


def read(layout: Layout, tree: Tree | None = None) -> Installation:
    """Everything that is installed in ``layout``; ``tree`` is what ``walk(layout)`` gave, where it is at hand.

    A file that leaves the environment, by its path or through a link to a folder, is never looked at.
    """
    tree = tree or walk(layout)
    files, unreadable = dict(tree.files), dict(tree.unreadable)
    found = []
    for site in layout.sites:
        root = root_of(site, layout)
        links = _Links(root, site)
        found += [_placed(distribution, root, files, links) for distribution in distributions_in(site, root)]
    elsewhere = (c.path for d in found for c in d.claims if c.path not in files and not is_compiled(c))
    files |= stats(dict.fromkeys(elsewhere), unreadable)
    found.sort(key=lambda d: (d.name, layout.path.index(d.site) if d.site in layout.path else -1))
    return Installation(layout, tuple(found), files, unreadable)


def root_of(site: str, layout: Layout) -> str:
    """The folder that holds ``site`` and the scripts and data of what is installed there."""
    for prefix in (layout.prefix, layout.base_prefix):
        if site.startswith(prefix.rstrip("/") + "/") and prefix != "/":
            return prefix
    usual = _USUAL_SITE.fullmatch(site)
    return usual["root"] if usual else site


def is_compiled(claim: Claim) -> bool:
    """Whether it is bytecode, which installers and Python itself write and which no hash is kept of."""
    return not claim.algorithm and "/__pycache__/" in claim.path


def _placed(distribution: Distribution, root: str, files: Container[str], links: _Links) -> Distribution:
    """``distribution`` with the links on the way to its files resolved, and without the files that they lead away."""
    if all(claim.path in files or is_compiled(claim) for claim in distribution.claims):
        return distribution
    claims: dict[str, Claim] = {}
    outside = list(distribution.outside)
    for claim in distribution.claims:
        path = claim.path if claim.path in files or is_compiled(claim) else links.resolved(claim.path)
        if path == claim.path or path.startswith((f"{root}/", f"{distribution.site}/")):
            claims.setdefault(path, claim if path == claim.path else claim._replace(path=path))
        else:
            outside.append(os.path.relpath(claim.path, distribution.site))
    return replace(distribution, claims=tuple(claims.values()), outside=tuple(outside))


class _Links:
    """Resolves the links among the folders on the way to a file, and looks at nothing outside of ``inside``.

    Those folders have no links above them. Each folder is asked about once.
    """

    def __init__(self, *inside: str) -> None:
        self._inside = tuple(f"{folder}/" for folder in inside)
        self._folders = {"": ""}

    def resolved(self, path: str) -> str:
        """``path``, in the folder that it is really in."""
        folder, _, name = path.rpartition("/")
        todo = []
        while folder not in self._folders:  # a loop: the depth is a stranger's choice
            todo.append(folder)
            folder = folder.rpartition("/")[0]
        for folder in reversed(todo):
            above, _, last = folder.rpartition("/")
            self._folders[folder] = folder  # where a link leads back to itself, that is the end
            self._folders[folder] = self._followed(f"{self._folders[above]}/{last}")
        return f"{self._folders[path.rpartition('/')[0]]}/{name}"

    def _followed(self, folder: str) -> str:
        for _ in range(_MOST_LINKS):
            if not folder.startswith(self._inside):
                break
            try:
                target = os.readlink(folder)  # noqa: PTH115 - a string, as it is written
            except OSError:  # no link, or not there
                break
            above = folder.rpartition("/")[0]
            folder = self.resolved(os.path.normpath(target if target.startswith("/") else f"{above}/{target}"))
        return folder
