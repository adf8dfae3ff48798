"""Every file that is installed, and what ``lstat`` says of it: fast, and without following a link to a folder."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from harness.pin.doctor.installed.installation import Layout, Stat


class Tree(NamedTuple):
    """What ``walk`` saw."""

    files: dict[str, Stat]  # by absolute path
    unreadable: dict[str, str]  # folder or file -> why


def walk(layout: Layout) -> Tree:
    """Every file under the sites but for those in ``__pycache__``; a link to a folder is an entry, not a way."""
    tree = Tree({}, {})
    todo = list(layout.sites)
    seen = set(todo)
    while todo:
        for folder in _list_into(tree, todo.pop()):
            if folder not in seen:  # a site inside a site
                seen.add(folder)
                todo.append(folder)
    return tree


def _list_into(tree: Tree, folder: str) -> list[str]:
    """Add the files of ``folder`` to ``tree``; returns the folders in it."""
    folders = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name != "__pycache__":
                        folders.append(entry.path)
                    continue
                try:
                    found = look(entry.path) if entry.is_symlink() else _of(entry.stat(follow_symlinks=False))
                except FileNotFoundError:  # it went while we looked
                    continue
                tree.files[entry.path] = found
    except FileNotFoundError:  # a site that was never made
        pass
    except OSError as error:
        tree.unreadable[folder] = error.strerror or str(error)
    return folders


def stats(paths: Iterable[str], unreadable: dict[str, str]) -> dict[str, Stat]:
    """What is known of each of ``paths`` that is there; why one could not be looked at goes into ``unreadable``."""
    found = {}
    for path in paths:
        try:
            found[path] = look(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError) as error:
            unreadable[path] = getattr(error, "strerror", None) or str(error)
    return found


def signature(files: Mapping[str, Stat]) -> str:
    """A digest over paths and stats: equal where nobody touched a file."""
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


def look(path: str) -> Stat:
    """``lstat``; of a link to a file, what it points to, so that a change there shows, and the mode of the link."""
    found = os.lstat(path)
    if not stat.S_ISLNK(found.st_mode):
        return _of(found)
    try:
        target = os.stat(path)  # noqa: PTH116 - a Path for each of 21,000 files costs more than the stat
    except OSError:  # it leads nowhere, or in a circle
        return _of(found)
    if not stat.S_ISREG(target.st_mode):
        return _of(found)
    ctime_ns = max(found.st_ctime_ns, target.st_ctime_ns)
    return Stat(target.st_size, target.st_mtime_ns, ctime_ns, target.st_ino, found.st_mode)


def _of(found: os.stat_result) -> Stat:
    fields = (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_mode)
    return tuple.__new__(Stat, fields)  # half the time of Stat(...), 21,000 times over
