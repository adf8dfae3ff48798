"""Which code ran: the commit, and the patch that makes it what it was, without touching the user's index or objects."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.pin.secrets import holds_secret
from harness.records import Value

LARGEST_UNTRACKED = 1 << 20
"""Bytes. A larger file that git does not know is data that somebody forgot to ignore, and no part of a patch."""

_SECRET_FILES = re.compile(
    r"\.env(\..*)?|.*\.(pem|key|p12|pfx)|id_(rsa|dsa|ecdsa|ed25519).*|\.(netrc|pypirc|npmrc)"
    r"|(.*[-_.])?(credentials?|secrets?|tokens?)(\.(json|ya?ml|toml|ini|txt))?"
)
# All that a user's git configuration could change, so that one tree gives one patch, and it applies.
_PATCH_OPTIONS = (
    "--binary", "--full-index", "--no-color", "--no-ext-diff", "--no-textconv", "--no-relative", "--no-renames",
    "--diff-algorithm=myers", "--unified=3", "--src-prefix=a/", "--dst-prefix=b/",
)  # fmt: skip


@dataclass(frozen=True)
class Code:
    """``patch`` makes the tree of ``commit`` what it was; ``left_out`` are untracked files that it does not hold."""

    root: Path
    commit: str
    patch: bytes
    left_out: tuple[str, ...] = ()

    def facts(self) -> dict[str, Value]:
        """The code facts of a fingerprint."""
        return {
            "code.commit": self.commit,
            "code.dirty": bool(self.patch),
            "code.patch.sha256": hashlib.sha256(self.patch).hexdigest(),
            "code.patch.left_out": ", ".join(self.left_out),
            "context.code.root": str(self.root),
        }


def read_code(folder: Path, apart_from: Sequence[Path] = ()) -> Code | None:
    """The code that ``folder`` belongs to, or None outside a git checkout, before its first commit, or without git.

    Untracked files are in the patch unless git ignores them, they lie under ``apart_from`` (run folders), they are
    large, or they look like a secret.
    """
    wanted = ("--show-toplevel", "--path-format=absolute", "--git-path", "index", "--git-path", "objects", "HEAD")
    answer = git(folder, "rev-parse", *wanted)
    if answer is None or len(lines := answer.decode().splitlines()) != 4:
        return None
    root, users_index, objects, commit = Path(lines[0]), Path(lines[1]), lines[2], lines[3]
    taken, left_out = _untracked(root, apart_from)
    with tempfile.TemporaryDirectory(prefix="harness-git-") as scratch:
        index = Path(scratch) / "index"
        if users_index.exists():
            shutil.copyfile(users_index, index)
        variables = {
            "GIT_INDEX_FILE": str(index),
            "GIT_OBJECT_DIRECTORY": scratch,
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": objects,
        }
        if taken:
            # Intent to add puts names into the scratch index, and no file's bytes into any store of objects.
            names = b"\0".join(os.fsencode(name) for name in taken)
            options = ("--intent-to-add", "--pathspec-from-file=-", "--pathspec-file-nul")
            git(root, "--literal-pathspecs", "add", *options, variables=variables, stdin=names)
        patch = git(root, "-c", "core.quotePath=true", "diff", "HEAD", *_PATCH_OPTIONS, variables=variables)
    return None if patch is None else Code(root, commit, patch, tuple(left_out))


def _untracked(root: Path, apart_from: Sequence[Path]) -> tuple[list[str], list[str]]:
    """Untracked files: the names that belong into a patch, and those that do not, with the reason."""
    # A worktree that the harness made lies under such a folder itself, and all of it counts.
    apart = [folder.resolve() for folder in apart_from if folder.resolve().is_relative_to(root)]
    listed = git(root, "ls-files", "--others", "--exclude-standard", "-z") or b""
    taken: list[str] = []
    left_out: list[str] = []
    for name in (os.fsdecode(raw) for raw in listed.split(b"\0") if raw):
        path = root / name
        if any(path.is_relative_to(folder) for folder in apart) or name.endswith("/"):
            continue  # our own records; and a checkout inside this one, which git lists as a folder
        reason = _reason_to_leave_out(path)
        if reason:
            left_out.append(f"{name} ({reason})")
        else:
            taken.append(name)
    return taken, left_out


def _reason_to_leave_out(path: Path) -> str:
    if path.is_symlink():
        return ""
    if not path.is_file():
        return "not a file"
    if path.lstat().st_size > LARGEST_UNTRACKED:
        return "large"
    if _SECRET_FILES.fullmatch(path.name.lower()) or holds_secret(path.read_bytes().decode(errors="replace")):
        return "may hold a secret"
    return ""


def git(folder: Path, *arguments: str, variables: Mapping[str, str] | None = None, stdin: bytes = b"") -> bytes | None:
    """What git prints, or None where it fails or is not there."""
    unset = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_EXTERNAL_DIFF", "GIT_PREFIX")
    environment = {key: value for key, value in os.environ.items() if key not in unset}
    environment |= {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C", **(variables or {})}
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], env=environment, input=stdin, capture_output=True, check=True
        )
    except (FileNotFoundError, subprocess.CalledProcessError):
        return None
    return done.stdout
