"""A folder that is made once, found again by its digest, and never seen half-made. Standard library only."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path


def made_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """``folder``, made by ``make(empty_folder)`` unless it is there.

    ``make`` writes aside and its folder is renamed into place, so a maker that is killed leaves nothing that could be
    taken for the real one; the next maker sweeps up what it left. Of several processes that ask at once, one makes and
    the others wait for it (the lock goes with its process).
    """
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = folder.with_name(f".{folder.name}.partial")
    lock = os.open(folder.with_name(f".{folder.name}.lock"), os.O_CREAT | os.O_RDWR, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir()
            make(aside)
            aside.rename(folder)
    finally:
        os.close(lock)
    return folder
