"""Brings recorded code back: a worktree of the recorded commit with the recorded patch on it, proved by its digest."""

from __future__ import annotations

import fcntl
import hashlib
from pathlib import Path

from harness.errors import HarnessError
from harness.pin.code import git, read_code


def restored(repository: Path, commit: str, patch: bytes, under: Path) -> Path:
    """The root of a worktree under ``under`` that holds ``commit`` with ``patch`` applied.

    One that is there already and still is that code is used again. Raises HarnessError where the repository does not
    have the commit, or the patch does not give the code that it came from.
    """
    wanted = hashlib.sha256(patch).hexdigest()
    folder = under / f"{commit[:12]}-{wanted[:8]}"
    under.mkdir(parents=True, exist_ok=True)
    with (under / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is(folder, commit, wanted):
            _make(repository, commit, patch, folder)
        if not _is(folder, commit, wanted):
            raise HarnessError(f"{folder} is not the code that ran: remove it and try again: rm -rf {folder}")
    return folder


def _is(folder: Path, commit: str, wanted: str) -> bool:
    code = read_code(folder) if (folder / ".git").exists() else None
    return code is not None and code.commit == commit and hashlib.sha256(code.patch).hexdigest() == wanted


def _make(repository: Path, commit: str, patch: bytes, folder: Path) -> None:
    if git(repository, "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}") is None:
        raise HarnessError(f"{repository} has no commit {commit[:12]}, which ran: fetch it with git fetch --all")
    if folder.exists():
        git(repository, "worktree", "remove", "--force", str(folder))  # half made, or changed since
    git(repository, "worktree", "prune")
    if git(repository, "worktree", "add", "--detach", "--quiet", str(folder), commit) is None:
        raise HarnessError(f"git cannot make a worktree of {commit[:12]} in {folder}; is the folder in the way?")
    if patch and git(folder, "apply", "--binary", "--whitespace=nowarn", "-", stdin=patch) is None:
        raise HarnessError(f"the recorded patch does not apply to {commit[:12]} in {folder}")
