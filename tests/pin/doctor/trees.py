"""A whole tree, file by file, to tell whether it is as it was."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple


class File(NamedTuple):
    """Everything of a file but the time of its last renaming."""

    content: str  # SHA-256, or where a link leads
    mode: int
    mtime_ns: int
    inode: int


def snapshot(prefix: Path) -> dict[str, File | int]:
    """Every file under ``prefix`` by its relative path, and the mode of every folder.

    The empty file ``.lock`` that uv leaves in an environment is not part of it.
    """
    found = dict[str, File | int]()
    for path in sorted(prefix.rglob("*")):
        name, stat = str(path.relative_to(prefix)), path.lstat()
        if path.is_symlink():
            found[name] = File(str(path.readlink()), stat.st_mode, stat.st_mtime_ns, stat.st_ino)
        elif path.is_dir():
            found[name] = stat.st_mode
        elif name != ".lock":
            with path.open("rb") as file:
                content = hashlib.file_digest(file, "sha256").hexdigest()
            found[name] = File(content, stat.st_mode, stat.st_mtime_ns, stat.st_ino)
    return found


def contents(prefix: Path) -> dict[str, bytes]:
    """The bytes of every file under ``prefix`` by its relative path."""
    return {str(path.relative_to(prefix)): path.read_bytes() for path in prefix.rglob("*") if path.is_file()}
