"""What a build is given: the commit's files and no others, and pip's settings where only the build sees them."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.pin.image.context import Revision, build_context, read_revision
from harness.places import Places, places
from harness.records import Environment, Lock, Pin

ENV = Environment("cpu", "a test", ("3.11",))
EPOCH = 1_700_000_000
COMMITTED = {"GIT_AUTHOR_DATE": f"{EPOCH} +0100", "GIT_COMMITTER_DATE": f"{EPOCH} +0100"}


def git(root: Path, *arguments: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@b.example"]
    environment = {"PATH": "/usr/bin:/bin:/usr/local/bin", "HOME": str(root), **COMMITTED}
    subprocess.run(["git", *who, *arguments], cwd=root, env=environment, check=True, capture_output=True)


@pytest.fixture
def where(tmp_path: Path) -> Places:
    """A checkout with one commit, which holds more than an image does."""
    root = tmp_path / "checkout"
    for name in ("Dockerfile", "harness/cli.py", "harness/pin/tool.sh", "envs/cpu.txt", "tests/test_a.py", "README.md"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (root / "harness/pin/tool.sh").chmod(0o775)
    (root / "harness/cli.py").chmod(0o600)
    (root / ".gitignore").write_text("__pycache__/\n.harness/\n")
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "first")
    (root / "harness/__pycache__").mkdir()
    (root / "harness/__pycache__/cli.pyc").write_text("bytecode")
    return Places(root, root / ".harness", root / "runs")


def ignored(_: str) -> None:
    """Nobody listens."""


def lock(*wheels: Path, name: str = "thing", version: str = "1.0+cpu") -> Lock:
    hashes = tuple("sha256:" + hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in wheels)
    return Lock("cpu", ("3.11",), "0" * 64, (Pin(name, version, hashes),), "envs/cpu.txt")


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_revision_is_the_commit_and_its_date(where: Places) -> None:
    revision = read_revision(where.root, allow_dirty=False)
    assert (revision.epoch, revision.date, revision.dirty) == (EPOCH, "2023-11-14T23:13:20+01:00", False)
    assert revision.label == revision.commit
    assert len(revision.commit) == 40


def test_a_changed_tree_is_refused_and_named_and_labelled_where_it_is_allowed(where: Places) -> None:
    (where.root / "harness/cli.py").write_text("changed")
    (where.root / "new.py").write_text("new")
    with pytest.raises(UsageError, match=r"^not committed: harness/cli.py and 1 more; commit, or .* --allow-dirty$"):
        read_revision(where.root, allow_dirty=False)
    assert read_revision(where.root, allow_dirty=True).label.endswith("-dirty")


def test_outside_a_checkout_there_is_nothing_to_build(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no git checkout with a commit"):
        read_revision(tmp_path, allow_dirty=True)


def test_the_context_is_what_the_image_needs_of_the_commit(where: Places) -> None:
    revision = read_revision(where.root, allow_dirty=False)
    (where.root / "harness/untracked.py").write_text("not in the commit")
    with build_context(where, revision, ENV, [], ignored, {}) as folder:
        code = {name for name in files(folder) if not name.startswith(".build/")}
        assert code == {"Dockerfile", "harness/cli.py", "harness/pin/tool.sh", "envs/cpu.txt"}
        rights = {
            name: stat.S_IMODE((folder / name).stat().st_mode) for name in ("harness/cli.py", "harness/pin/tool.sh")
        }
        assert rights == {
            "harness/cli.py": 0o644,
            "harness/pin/tool.sh": 0o755,
        }  # as git keeps them, not as umask has it
        assert (folder / "harness/cli.py").stat().st_mtime == EPOCH
    assert [path.name for path in where.state.iterdir()] == [".lock-image"]


def test_a_changed_tree_is_built_as_it_is(where: Places) -> None:
    (where.root / "harness/new.py").write_text("new")
    (where.root / "envs/cpu.txt").unlink()
    (where.root / "harness/cli.py").write_text("changed")
    with build_context(where, read_revision(where.root, allow_dirty=True), ENV, [], ignored, {}) as folder:
        assert (folder / "harness/new.py").exists()
        assert not (folder / "envs/cpu.txt").exists()
        assert (folder / "harness/cli.py").read_text() == "changed"


def test_only_wheels_that_a_lock_pins_by_their_hash_are_brought(where: Places, tmp_path: Path) -> None:
    links, index = tmp_path / "links", tmp_path / "index"
    for name in ("thing", "other"):
        (index / name).mkdir(parents=True)
    links.mkdir()
    pinned, same_name = links / "thing-1.0+cpu-py3-none-any.whl", links / "thing-1.0+cpu-cp311-cp311-linux_x86_64.whl"
    elsewhere, unpinned = (
        index / "thing/thing-1.0+cpu-cp312-cp312-linux_x86_64.whl",
        index / "other/other-2-py3-none-any.whl",
    )
    for wheel in (pinned, same_name, elsewhere, unpinned):
        wheel.write_text(wheel.name)
    for name in ("thing", "other"):
        page = "".join(f'<a href="{path.as_uri()}">a</a>' for path in (index / name).glob("*.whl"))
        (index / name / "index.html").write_text(page)
    environ = {"PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": str(links), "PIP_EXTRA_INDEX_URL": index.as_uri()}
    with build_context(where, _clean(where), ENV, [lock(pinned, elsewhere)], ignored, environ) as folder:
        assert files(folder / ".build/links") == {pinned.name, elsewhere.name}
        told = json.loads((folder / ".build/settings.json").read_text())
    assert told["PIP_FIND_LINKS"] == "/opt/dflash/.build/links"
    assert str(tmp_path) not in json.dumps(told)  # no path of this machine


def test_the_settings_of_this_machine_are_told_and_nobody_else_may_read_them(where: Places, tmp_path: Path) -> None:
    certificate = tmp_path / "authorities.pem"
    certificate.write_text("a certificate")
    environ = {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": "https://name:secret@index.example/simple",
        "PIP_EXTRA_INDEX_URL": "https://more.example/simple",
        "PIP_TRUSTED_HOST": "more.example",
        "SSL_CERT_FILE": str(certificate),
        "UV_HTTP_TIMEOUT": "90",
        "AWS_SECRET_ACCESS_KEY": "not the build's",
    }
    with build_context(where, _clean(where), ENV, [], ignored, environ) as folder:
        told = json.loads((folder / ".build/settings.json").read_text())
        assert (folder / ".build/ca.pem").read_text() == "a certificate"
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert told == {
        "PIP_INDEX_URL": "https://name:secret@index.example/simple",
        "PIP_EXTRA_INDEX_URL": "https://more.example/simple",
        "PIP_TRUSTED_HOST": "more.example",
        "PIP_CERT": "/opt/dflash/.build/ca.pem",
        "UV_HTTP_TIMEOUT": "90",
    }


@pytest.mark.parametrize(("setting", "told"), [("on", "1"), ("0", None)])
def test_a_machine_that_asks_no_index_builds_without_one(where: Places, setting: str, told: str | None) -> None:
    environ = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": setting}
    with build_context(where, _clean(where), ENV, [], ignored, environ) as folder:
        settings = json.loads((folder / ".build/settings.json").read_text())
    assert settings.get("PIP_NO_INDEX") == told


def test_the_wheels_of_a_captured_environment_come_along(where: Places) -> None:
    wheels = where.state / "wheels" / "cpu"
    (wheels / "torch").mkdir(parents=True)
    (wheels / "torch" / "index.html").write_text("a page")
    captured = Environment("cpu", "a test", ("3.11",), wheels=(str(where.root / "envs/wheels/cpu"), str(wheels)))
    with build_context(where, _clean(where), captured, [], ignored, {}) as folder:
        assert (folder / ".build/wheels/cpu/torch/index.html").read_text() == "a page"


def test_the_context_of_this_checkout_is_small(tmp_path: Path) -> None:
    revision = Revision("0" * 40, EPOCH, "", dirty=False)
    with build_context(replace(places(), state=tmp_path), revision, ENV, [], ignored, {}) as folder:
        assert sum((folder / name).stat().st_size for name in files(folder)) < 5_000_000
        assert {path.name for path in folder.iterdir()} == {
            *(".build", ".dockerignore", "Dockerfile", "LICENSE", "envs", "experiments", "harness", "noxfile.py"),
            "pyproject.toml",
        }


def test_what_a_killed_build_left_is_taken_away(where: Places) -> None:
    (where.state / "image/.build").mkdir(parents=True)
    (where.state / "image/.build/settings.json").write_text("a secret")
    with build_context(where, _clean(where), ENV, [], ignored, {}) as folder:
        assert "a secret" not in (folder / ".build/settings.json").read_text()
    assert not folder.exists()


def test_two_builds_take_turns(where: Places) -> None:
    heard: list[str] = []

    def second() -> bool:
        with build_context(where, _clean(where), ENV, [], heard.append, {}) as folder:
            return folder.exists()

    with ThreadPoolExecutor(1) as pool:
        with build_context(where, _clean(where), ENV, [], ignored, {}):
            waiting = pool.submit(second)
            until = time.monotonic() + 30
            while not heard:
                assert time.monotonic() < until
                time.sleep(0.01)
            assert not waiting.done()
        assert waiting.result(30)
    assert heard == ["waiting for another build of an image to end ..."]


def _clean(where: Places) -> Revision:
    return read_revision(where.root, allow_dirty=False)
