"""Build a folder aside and rename it into place: it is there complete, or it is not there.

Standard library only. A lock file makes two builders take turns; the lock passes on to the installer that a
builder starts, so that it outlives a builder that is killed and nobody builds beside an orphan.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

MARKER = "harness-env.json"
"""Written last, inside the folder: what was built."""

Say = Callable[[str], None]
Build = Callable[[Path, int], None]
"""Makes and fills the folder, may use others beside it, and passes the descriptor on to what it starts (pass_fds)."""


def say_on_stderr(text: str) -> None:
    """Progress for a person; standard output stays for results."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


@contextlib.contextmanager
def exclusive(path: Path, waiting: str, say: Say) -> Iterator[int]:
    """Hold the lock file; says ``waiting`` first where somebody else holds it. Yields its file descriptor."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(waiting)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def lock_file(folder: Path) -> Path:
    """The lock file that guards ``folder`` while it is built or changed."""
    return folder.parent / f".lock-{folder.name}"


def is_complete(folder: Path, marker: Mapping[str, str]) -> bool:
    """Whether ``folder`` was built to its end as ``marker`` says and its interpreter is still there."""
    try:
        written = json.loads((folder / MARKER).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, json.JSONDecodeError):
        return False
    return bool(written == dict(marker)) and (folder / "bin" / "python").exists()


def build_once(folder: Path, marker: Mapping[str, str], build: Build, say: Say) -> None:
    """Make ``folder`` with ``build`` unless it is complete already; a second caller waits and then uses it."""
    if is_complete(folder, marker):
        return
    with exclusive(lock_file(folder), f"waiting for another set-up of {folder.name} to end ...", say) as lock:
        if is_complete(folder, marker):
            return
        aside = folder.parent / f".building-{folder.name}"
        shutil.rmtree(aside, ignore_errors=True)
        sweep(folder.parent)
        fresh = aside / "fresh"
        try:
            build(fresh, lock)
            (fresh / MARKER).write_text(json.dumps(dict(marker), indent=1) + "\n", encoding="utf-8")
            if folder.exists():  # complete once, broken since: its interpreter went, or another version wrote it
                folder.rename(aside / "broken")
            fresh.rename(folder)
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def sweep(parent: Path) -> None:
    """Remove what killed set-ups left under ``parent``; a folder whose lock is held is being built, and stays."""
    for leaving in parent.glob(".building-*"):
        with lock_file(parent / leaving.name.removeprefix(".building-")).open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            shutil.rmtree(leaving, ignore_errors=True)


def replace_text(path: Path, text: str, mode: int = 0o644) -> None:
    """Write ``path`` so that a reader sees the old text or the new, unless it holds ``text`` already."""
    if path.exists() and path.read_bytes() == text.encode():
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.chmod(mode)
    temporary.replace(path)
