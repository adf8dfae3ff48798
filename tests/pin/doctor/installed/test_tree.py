"""The walk over what is installed, against ``find`` by other means, and the signature that a touch must change."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.pin.doctor.installed.installation import Layout
from harness.pin.doctor.installed.tree import look, signature, stats, walk


def layout_of(*sites: Path) -> Layout:
    first = str(sites[0])
    return Layout(Path("python"), "3.11", first, first, tuple(map(str, sites)), first, first, "/none", ())


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    for name in ("a.py", "pkg/b.py", "pkg/deep/c.so", "pkg/__pycache__/b.cpython-311.pyc", "pkg/.hidden"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return folder


def test_every_file_but_bytecode(site: Path) -> None:
    tree = walk(layout_of(site))
    expected = {str(path) for path in site.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert set(tree.files) == expected
    for path, stat in tree.files.items():
        found = os.lstat(path)
        fields = (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_mode)
        assert stat == fields == look(path)
    assert tree.unreadable == {}


def test_links_to_folders_are_not_followed_and_loops_end(site: Path) -> None:
    (site / "pkg" / "round").symlink_to(site)
    (site / "self").symlink_to("self")
    (site / "away").symlink_to("/usr")
    (site / "gone").symlink_to("nowhere")
    tree = walk(layout_of(site))
    assert {Path(path).name for path in tree.files} == {
        "a.py",
        "b.py",
        "c.so",
        ".hidden",
        "round",
        "self",
        "away",
        "gone",
    }
    assert tree.unreadable == {}


def test_a_site_inside_a_site_and_one_that_is_not_there(site: Path) -> None:
    assert walk(layout_of(site, site / "pkg", site / "never")) == walk(layout_of(site))


def test_folders_that_cannot_be_listed_are_named(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.scandir

    def closed(folder: str) -> object:
        if folder.endswith("deep"):
            raise PermissionError(13, "Permission denied", folder)
        return real(folder)

    monkeypatch.setattr(os, "scandir", closed)
    tree = walk(layout_of(site))
    assert tree.unreadable == {str(site / "pkg" / "deep"): "Permission denied"}
    assert str(site / "pkg" / "b.py") in tree.files


def edit_with_mtime_set_back(path: Path) -> None:
    before = path.stat()
    path.write_bytes(b"x" * before.st_size)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replace_by_copy(path: Path) -> None:
    shutil.copy2(path, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)


@pytest.mark.parametrize(
    "change",
    [
        edit_with_mtime_set_back,
        replace_by_copy,
        lambda path: path.touch(),
        lambda path: path.unlink(),
        lambda path: path.chmod(0o600),
        lambda path: path.rename(path.with_name("z.py")),
        lambda path: path.with_name("new").write_text(""),
    ],
    ids=["edited", "copied over", "touched", "gone", "mode", "renamed", "another file"],
)
def test_the_signature_tells_every_touch(site: Path, change: Callable[[Path], object]) -> None:
    before = signature(walk(layout_of(site)).files)
    assert signature(walk(layout_of(site)).files) == before
    change(site / "a.py")
    assert signature(walk(layout_of(site)).files) != before


def test_the_signature_tells_a_change_behind_a_link(site: Path, tmp_path: Path) -> None:
    """uv links files out of its cache where it is told to: an edit there is an edit here."""
    (tmp_path / "cached").write_text("one")
    (site / "linked.py").symlink_to(tmp_path / "cached")
    before = signature(walk(layout_of(site)).files)
    edit_with_mtime_set_back(tmp_path / "cached")
    assert signature(walk(layout_of(site)).files) != before


def test_the_signature_does_not_depend_on_order_and_takes_names_that_are_no_text(site: Path) -> None:
    (site / os.fsdecode(b"caf\xe9.py")).write_text("")
    files = walk(layout_of(site)).files
    assert signature(dict(reversed(files.items()))) == signature(files)


def test_stats_of_paths_that_cannot_be_looked_at(site: Path) -> None:
    unreadable: dict[str, str] = {}
    asked = [str(site / "a.py"), str(site / "none"), str(site / "a.py" / "below"), str(site / ("n" * 300)), "a\0b"]
    assert list(stats(asked, unreadable)) == asked[:1]
    assert list(unreadable) == asked[3:]
