"""The recorded code: exact, applied again byte for byte, and read without a trace in the user's repository."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from harness.errors import HarnessError
from harness.pin.code import LARGEST_UNTRACKED, read_code
from harness.pin.restore import restored


def git(folder: Path, *arguments: str) -> str:
    identity = {
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@b",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@b",
    }
    done = subprocess.run(
        ["git", *arguments], cwd=folder, env={**os.environ, **identity}, check=True, capture_output=True, text=True
    )
    return done.stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    (root / ".gitignore").write_text("data/\n")
    (root / "train.py").write_text("lr = 1\nsteps = 10\n")
    (root / "gone.py").write_text("to be removed\n")
    (root / "tool.sh").write_text("#!/bin/sh\n")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "first")
    return root


def change_everything(root: Path) -> None:
    """Staged, unstaged, removed, new, binary, odd names, a mode, a link, ignored."""
    (root / "train.py").write_text("lr = 2\nsteps = 10\n")
    git(root, "add", "train.py")
    (root / "train.py").write_text("lr = 3\nsteps = 10\nno newline at the end")
    (root / "gone.py").unlink()
    (root / "new ü file.py").write_text("print('new')\n")
    (root / "weights.bin").write_bytes(bytes(range(256)) * 10)
    (root / "empty").touch()
    (root / "tool.sh").chmod(0o755)
    (root / "link").symlink_to("train.py")
    (root / "data").mkdir()
    (root / "data" / "big").write_text("ignored")


def tree(root: Path) -> dict[str, tuple[bytes, bool]]:
    """Every file that git does not ignore: its bytes, and whether it can be executed."""
    names = git(root, "ls-files", "-co", "--exclude-standard", "-z").split("\0")
    paths = [root / name for name in names if name and (root / name).is_symlink() | (root / name).exists()]
    return {
        str(path.relative_to(root)): (
            str(path.readlink()).encode() if path.is_symlink() else path.read_bytes(),
            os.access(path, os.X_OK),
        )
        for path in paths
    }


def test_a_clean_checkout_has_an_empty_patch(repository: Path) -> None:
    code = read_code(repository)
    assert code is not None
    assert code.commit == git(repository, "rev-parse", "HEAD").strip()
    facts = code.facts()
    assert facts["code.dirty"] is False
    assert code.patch == b""
    assert code.left_out == ()


def test_the_patch_gives_the_code_back_byte_for_byte(repository: Path, tmp_path: Path) -> None:
    change_everything(repository)
    code = read_code(repository / "data")  # from any folder inside
    assert code is not None
    again = restored(repository, code.commit, code.patch, tmp_path / "worktrees")
    assert tree(again) == tree(repository)
    assert not (again / "data").exists()
    assert restored(repository, code.commit, code.patch, tmp_path / "worktrees") == again  # used again

    (again / "train.py").write_text("spoiled")
    assert restored(repository, code.commit, code.patch, tmp_path / "worktrees") == again
    assert tree(again) == tree(repository)


def test_reading_leaves_no_trace(repository: Path) -> None:
    change_everything(repository)
    before = (repository / ".git" / "index").read_bytes()
    objects = sorted((repository / ".git" / "objects").rglob("*"))
    status = git(repository, "status", "--porcelain")
    index = (repository / ".git" / "index").read_bytes()
    read_code(repository)
    assert (repository / ".git" / "index").read_bytes() in (before, index)
    assert sorted((repository / ".git" / "objects").rglob("*")) == objects
    assert git(repository, "status", "--porcelain") == status


def test_the_users_git_configuration_changes_nothing(repository: Path) -> None:
    change_everything(repository)
    plain = read_code(repository)
    for key, value in {
        "diff.noprefix": "true", "diff.external": "false", "color.ui": "always", "diff.renames": "copies",
        "diff.context": "9", "core.quotePath": "false", "diff.algorithm": "histogram", "status.relativePaths": "true",
    }.items():  # fmt: skip
        git(repository, "config", key, value)
    assert read_code(repository) == plain


def test_what_does_not_belong_into_a_patch_is_named(repository: Path) -> None:
    (repository / "dump.bin").write_bytes(b"\1" * (LARGEST_UNTRACKED + 1))
    (repository / ".env").write_text("HF_TOKEN=abc")
    (repository / "notes.txt").write_text("the key is sk-abcdefghijklmnop1234")
    (repository / "secrets.py").write_text("# a module about secrets\n")
    runs = repository / "runs"
    (runs / "1").mkdir(parents=True)
    (runs / "1" / "events.jsonl").write_text("{}")
    code = read_code(repository, (runs,))
    assert code is not None
    assert sorted(code.left_out) == [
        ".env (may hold a secret)", "dump.bin (large)", "notes.txt (may hold a secret)"
    ]  # fmt: skip
    assert b"a module about secrets" in code.patch
    assert b"sk-abc" not in code.patch
    assert b"events.jsonl" not in code.patch


def test_a_checkout_inside_the_folder_of_run_records_is_read_whole(repository: Path) -> None:
    """As a worktree is that the harness made: its own place must not hide it."""
    (repository / "new.py").write_text("x = 1\n")
    code = read_code(repository, (repository.parent,))
    assert code is not None
    assert b"+x = 1" in code.patch


def test_outside_git_and_before_the_first_commit_the_code_is_unknown(tmp_path: Path) -> None:
    assert read_code(tmp_path) is None
    git(tmp_path, "init", "-q")
    assert read_code(tmp_path) is None


def test_a_commit_that_is_not_there_says_how_to_get_it(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="git fetch"):
        restored(repository, "0" * 40, b"", tmp_path / "worktrees")


def test_a_patch_that_does_not_apply_is_an_error(repository: Path, tmp_path: Path) -> None:
    patch = b"--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n-never there\n+x\n"
    with pytest.raises(HarnessError, match="does not apply"):
        restored(repository, git(repository, "rev-parse", "HEAD").strip(), patch, tmp_path / "worktrees")
