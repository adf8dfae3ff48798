"""Which file of an index is installed: proven over HTTP by a wheel's end, and never taken on trust."""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.pin.doctor.installed import layout as layouts
from harness.pin.doctor.installed.read import read
from harness.pin.freeze.listing import Listing, extra_index
from harness.pin.freeze.match import Match, match
from harness.pin.freeze.ranges import RangeFile
from harness.pin.indexes import IndexSettings
from tests.pin.doctor.wheels import make_venv, make_wheel, record_digest, site_packages
from tests.pin.freeze.index_server import Index, serving
from tests.pin.freeze.sources import with_uv

FILES = {"pack/__init__.py": b"1\n", "pack/weights.bin": bytes(200_000)}
SCRIPTS = {"pack-script": b"#!python\nprint(1)\n"}


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    (tmp_path / "files").mkdir()
    with serving(Index(tmp_path / "files")) as found:
        yield found


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_venv(tmp_path_factory.mktemp("match") / "venv")


def matched(python: Path, index: Index, name: str = "pack", **settings: tuple[str, ...]) -> Match:
    layout = layouts.ask(python)
    listing = Listing(IndexSettings(index.address, **settings), None)  # type: ignore[arg-type]
    return match(read(layout).by_name[name], layout, listing, {})


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_wheel_is_proven_by_its_end_alone(python: Path, index: Index) -> None:
    path = make_wheel(index.folder, "pack", "1.0", FILES, scripts=SCRIPTS)
    with_uv(python, path)
    found = matched(python, index)
    assert found.wheel is not None
    assert (found.wheel.filename, found.wheel.sha256) == (path.name, sha256(path))
    assert index.sent < 2 * 65536 + 1000 < path.stat().st_size


def test_of_two_wheels_of_a_release_the_installed_one_is_found(python: Path, index: Index) -> None:
    other = {**FILES, "pack/__init__.py": b"2\n"}
    make_wheel(index.folder, "pack", "1.0", other, scripts=SCRIPTS)
    path = make_wheel(index.folder, "pack", "1.0", FILES, scripts=SCRIPTS, tag="py3-none-manylinux_2_17_x86_64")
    make_wheel(index.folder, "pack", "1.0", other, scripts=SCRIPTS, tag="py3-none-win_amd64")
    make_wheel(index.folder, "pack", "1.0.1", FILES, scripts=SCRIPTS)
    with_uv(python, path)
    found = matched(python, index)
    assert found.wheel is not None
    assert found.wheel.filename == path.name
    assert not any("win_amd64" in asked or "1.0.1" in asked for asked in index.asked)


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("pack/__init__.py", b"3\n"),  # the same size
        ("pack/__init__.py", None),
        ("pack-1.0.dist-info/METADATA", b"Metadata-Version: 2.1\nName: pack\nVersion: 1.0\nRequires-Dist: six\n"),
        ("../../../bin/pack-script", b"#!python\nprint(2)\n"),
        ("pack/weights.bin", bytes(199_999) + b"\1"),
    ],
)
def test_a_changed_file_is_no_match_and_named(python: Path, index: Index, path: str, content: bytes | None) -> None:
    with_uv(python, make_wheel(index.folder, "pack", "1.0", FILES, scripts=SCRIPTS))
    file = site_packages(python) / path
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    found = matched(python, index)
    assert found.wheel is None
    assert found.why == "differs from pack-1.0-py3-none-any.whl"
    assert [Path(name).name for name in found.differing] == [Path(path).name]
    assert not found.unreached


def test_an_edit_whose_record_was_edited_too_is_no_match(python: Path, index: Index) -> None:
    with_uv(python, make_wheel(index.folder, "pack", "1.0", FILES))
    site = site_packages(python)
    (site / "pack" / "__init__.py").write_bytes(b"evil\n")
    record = site / "pack-1.0.dist-info" / "RECORD"
    record.write_text(
        record.read_text().replace(record_digest(b"1\n"), record_digest(b"evil\n")).replace(",2\n", ",5\n")
    )
    assert matched(python, index).differing == (f"{site.relative_to(python.parent.parent)}/pack/__init__.py",)


def test_a_wheel_whose_own_record_lies_is_judged_by_its_bytes(python: Path, index: Index) -> None:
    path = make_wheel(index.folder, "pack", "1.0", FILES)
    with_uv(python, path)
    with zipfile.ZipFile(path) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    false = contents["pack-1.0.dist-info/RECORD"].replace(record_digest(b"1\n").encode(), record_digest(b"9").encode())
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {**contents, "pack-1.0.dist-info/RECORD": false}.items():
            archive.writestr(name, content)
    found = matched(python, index)
    assert found.wheel is not None
    assert found.wheel.sha256 == sha256(path)


def test_a_server_without_ranges_sends_a_small_file_whole(python: Path, index: Index) -> None:
    index.ranges = False
    path = make_wheel(index.folder, "pack", "1.0", FILES)
    with_uv(python, path)
    assert matched(python, index).wheel is not None
    assert index.sent == path.stat().st_size


def test_a_page_without_hashes_is_helped_by_the_file(python: Path, index: Index) -> None:
    index.hashes = False
    path = make_wheel(index.folder, "pack", "1.0", FILES)
    with_uv(python, path)
    found = matched(python, index)
    assert found.wheel is not None
    assert found.wheel.sha256 == sha256(path)


def test_a_folder_of_links_counts(python: Path, index: Index, tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    path = make_wheel(tmp_path / "links", "pack", "1.0", FILES)
    with_uv(python, path)
    found = matched(python, index, find_links=(str(tmp_path / "links"),))
    assert found.wheel is not None
    assert (found.wheel.url, found.wheel.sha256) == (str(path), sha256(path))


def test_what_no_index_has_is_said_and_what_was_not_reached_too(python: Path, index: Index, tmp_path: Path) -> None:
    with_uv(python, make_wheel(tmp_path, "pack", "1.0", FILES))
    assert matched(python, index) == Match(None, "no index has its wheel")
    index.broken = True
    found = matched(python, index)
    assert (found.wheel, found.why, found.unreached) == (None, "not every index was reached", True)
    gone = Index(tmp_path, address="http://127.0.0.1:1/simple")
    assert matched(python, gone).unreached


def test_a_host_that_was_not_reached_is_asked_once(python: Path, index: Index, tmp_path: Path) -> None:
    with_uv(python, make_wheel(tmp_path, "pack", "1.0", FILES))
    index.broken = True
    listing = Listing(IndexSettings(index.address), None)
    for name in ("pack", "other", "third"):
        assert listing.wheels(name, "1.0") == ()
    assert len(index.asked) == 1
    assert listing.unreached == {"127.0.0.1": "it answers 500"}


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\5\6" + bytes(18), bytes(300_000)])
def test_a_broken_file_on_the_index_is_no_match_and_no_traceback(python: Path, index: Index, content: bytes) -> None:
    path = make_wheel(index.folder, "pack", "1.0", FILES)
    with_uv(python, path)
    path.write_bytes(content)
    found = matched(python, index)
    assert found.wheel is None
    assert found.why.startswith("pack-1.0-py3-none-any.whl could not be read: ")


def test_only_versions_with_a_local_part_are_asked_of_the_extra_index(index: Index, tmp_path: Path) -> None:
    make_wheel(index.folder, "torch", "2.11.0+cu128", {"torch.py": b""})
    (tmp_path / "other").mkdir()
    with serving(Index(tmp_path / "other")) as main:
        listing = Listing(IndexSettings(main.address), index.address)
        assert [wheel.filename for wheel in listing.wheels("torch", "2.11.0+cu128")] == [
            "torch-2.11.0+cu128-py3-none-any.whl"
        ]
        index.asked.clear()
        assert listing.wheels("torch", "2.11.0") == ()
        assert index.asked == []


def test_the_extra_index_is_pytorchs_for_the_installed_build(python: Path, tmp_path: Path) -> None:
    with_uv(python, make_wheel(tmp_path, "torch", "2.11.0+cu128", {}), make_wheel(tmp_path, "aaa", "1.0+cpu", {}))
    found = read(layouts.ask(python)).distributions
    assert extra_index(found, []) == "https://download.pytorch.org/whl/cu128"
    assert extra_index(found, ["https://mirror.example/pytorch/cpu"]) == "https://mirror.example/pytorch/cu128"
    assert extra_index(tuple(one for one in found if one.name == "pack"), []) is None


def test_any_part_of_a_file_can_be_read(index: Index) -> None:
    content = os.urandom(300_000)
    (index.folder / "file.bin").write_bytes(content)
    file = RangeFile(index.address.replace("/simple", "/files/file.bin"), IndexSettings())
    for start, size in ((0, 10), (299_990, 100), (150_000, 70_000), (100_000, 200_000), (5, 0)):
        file.seek(start)
        assert file.read(size) == content[start : start + size]
    assert file.seek(-7, os.SEEK_END) == 299_993
    assert file.read() == content[-7:]
    assert file.read(5) == b""
