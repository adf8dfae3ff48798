"""Wheels made again from RECORD and the disk: valid for the real installers, and the same bytes after every round."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packaging.utils import parse_wheel_filename

from harness.errors import EnvironmentFault
from harness.pin.doctor.installed import layout as layouts
from harness.pin.doctor.installed.read import read
from harness.pin.freeze.rebuild import MARKER, Origin, Rebuilt, wheel
from harness.pin.venvs import find_uv
from harness.places import places
from tests.pin.doctor.wheels import install, make_venv, make_wheel, record_digest, site_packages
from tests.pin.freeze.sources import with_uv

ORIGIN = Origin("no index has its wheel", "2026-11-29", "/somewhere/venv")


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One environment that tests install into, each another distribution."""
    return make_venv(tmp_path_factory.mktemp("rebuild") / "venv")


def rebuilt(python: Path, name: str, folder: Path) -> Rebuilt:
    installation = read(layouts.ask(python))
    folder.mkdir(exist_ok=True)
    return wheel(installation.by_name[name], installation, folder, ORIGIN)


def members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def modes(path: Path) -> dict[str, int]:
    with zipfile.ZipFile(path) as archive:
        return {entry.filename: entry.external_attr >> 16 & 0o777 for entry in archive.infolist()}


def test_every_kind_of_file_goes_back_where_the_wheel_had_it(empty: Path, tmp_path: Path) -> None:
    stem = "kinds-1.0.data"
    files = {
        "kinds/__init__.py": b"",
        "kinds/tool": b"#!/bin/sh\n",
        f"{stem}/data/etc/kinds.conf": b"a = 1\n",
        f"{stem}/headers/kinds.h": b"int f();\n",
        f"{stem}/purelib/kinds_pure.py": b"",
        "kinds-1.0.dist-info/entry_points.txt": b"[console_scripts]\nkinds-run = kinds:main\n",
    }
    scripts = {"kinds-script": b"#!python\nprint(1)\n", "kinds-shell": b"#!/bin/sh\necho 1\n"}
    original = make_wheel(tmp_path, "kinds", "1.0", files, scripts=scripts)
    with_uv(empty, original)
    (site_packages(empty) / "kinds" / "tool").chmod(0o755)
    made = rebuilt(empty, "kinds", tmp_path / "out")
    before, after = members(original), members(made.path)
    before["kinds_pure.py"] = before.pop(f"{stem}/purelib/kinds_pure.py")  # the same place, by another name
    info = "kinds-1.0.dist-info"
    assert after.keys() - before.keys() == {f"{info}/{MARKER}"}
    assert before.keys() - after.keys() == set()
    assert {name for name in before if before[name] != after[name]} == {f"{info}/RECORD"}
    assert (made.missing, made.outside, made.links) == ((), (), ())
    found = modes(made.path)
    executable = {name for name, mode in found.items() if mode == 0o755}
    assert executable == {"kinds/tool", f"{stem}/scripts/kinds-script", f"{stem}/scripts/kinds-shell"}
    assert {mode for name, mode in found.items() if name not in executable} == {0o644}
    told = json.loads(after[f"{info}/{MARKER}"])
    assert (told["why"], told["when"], told["source"]) == (ORIGIN.why, ORIGIN.when, ORIGIN.source)


def test_its_record_is_true(empty: Path, tmp_path: Path) -> None:
    with_uv(empty, make_wheel(tmp_path, "recorded", "1.0", {"recorded.py": b"x = 1\n"}))
    (site_packages(empty) / "recorded.py").write_bytes(b"x = 2  # edited\n")
    found = members(rebuilt(empty, "recorded", tmp_path / "out").path)
    rows = {row[0]: row[1:] for row in csv.reader(io.StringIO(found["recorded-1.0.dist-info/RECORD"].decode()))}
    assert rows.keys() == found.keys()
    assert rows.pop("recorded-1.0.dist-info/RECORD") == ["", ""]
    for name, (digest, size) in rows.items():
        assert (digest, size) == (f"sha256={record_digest(found[name])}", str(len(found[name])))
    assert found["recorded.py"] == b"x = 2  # edited\n"


names = st.text("abc_,;'\"é %", min_size=1, max_size=12).map(lambda text: text.strip() or "x")
trees = st.dictionaries(names, st.tuples(st.binary(max_size=200), st.booleans()), min_size=1, max_size=6)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(trees, st.sampled_from(["uv", "uv --relocatable", "pip"]))
def test_rebuild_install_rebuild_gives_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, tree: dict[str, tuple[bytes, bool]], how: str
) -> None:
    """Any names and bytes, scripts with each installer's own first line among them."""
    folder = tmp_path_factory.mktemp("rounds")
    first = hand_made(folder, tree)
    installation = read(layouts.ask(first))
    made = wheel(installation.by_name["rounds"], installation, folder, ORIGIN)
    again = wheel(installation.by_name["rounds"], installation, folder / "venv", ORIGIN)
    assert again.path.read_bytes() == made.path.read_bytes()
    second = installed(folder / "second", made.path, how)
    later = Origin("another reason", "2027-01-01", "/elsewhere")
    other = read(layouts.ask(second))
    assert other.by_name["rounds"].problems == ()
    assert wheel(other.by_name["rounds"], other, folder / "second", later).path.read_bytes() == made.path.read_bytes()


def hand_made(folder: Path, tree: dict[str, tuple[bytes, bool]]) -> Path:
    """An environment with the distribution ``rounds``, laid by hand: no installer would write every name."""
    python = make_venv(folder / "venv")
    site = site_packages(python)
    files = {f"rounds/{name}": content for name, (content, _) in tree.items()}
    files["../../../bin/rounds-script"] = f"#!{python}\nprint(1)\n".encode()
    files["rounds-1.0.dist-info/METADATA"] = b"Metadata-Version: 2.1\nName: rounds\nVersion: 1.0\n"
    files["rounds-1.0.dist-info/WHEEL"] = b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    text = io.StringIO()
    record = csv.writer(text, lineterminator="\n")
    for name, content in files.items():
        path = site / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        record.writerow([name, f"sha256={record_digest(content)}", len(content)])
    for name, (_, executable) in tree.items():
        (site / "rounds" / name).chmod(0o755 if executable else 0o644)
    record.writerow(["rounds-1.0.dist-info/RECORD", "", ""])
    (site / "rounds-1.0.dist-info" / "RECORD").write_text(text.getvalue(), encoding="utf-8")
    return python


def installed(folder: Path, path: Path, how: str) -> Path:
    """A new environment with the wheel in it."""
    if how == "pip":
        python = make_venv(folder)
        install(python, path)
        return python
    uv = find_uv(places())
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, *how.split()[1:], folder], check=True)
    with_uv(folder / "bin" / "python", path)
    return folder / "bin" / "python"


def test_an_edit_after_the_rebuild_is_told_with_what_was_told_before(empty: Path, tmp_path: Path) -> None:
    with_uv(empty, make_wheel(tmp_path, "twice", "1.0", {"twice.py": b"1"}))
    first = rebuilt(empty, "twice", tmp_path / "first")
    with_uv(empty, first.path)
    (site_packages(empty) / "twice.py").write_bytes(b"2")
    told = json.loads(members(rebuilt(empty, "twice", tmp_path / "second").path)[f"twice-1.0.dist-info/{MARKER}"])
    assert told["before"]["when"] == ORIGIN.when


def test_what_is_gone_or_a_link_or_outside_is_named(empty: Path, tmp_path: Path) -> None:
    with_uv(empty, make_wheel(tmp_path, "lossy", "1.0", {"lossy/a.py": b"a", "lossy/b.py": b"b", "lossy/c.py": b"c"}))
    site = site_packages(empty)
    (site / "lossy" / "a.py").unlink()
    (tmp_path / "cached-b.py").write_bytes(b"b of the cache")
    (site / "lossy" / "b.py").unlink()
    (site / "lossy" / "b.py").symlink_to(tmp_path / "cached-b.py")  # as uv's --link-mode=symlink leaves it
    with (site / "lossy-1.0.dist-info" / "RECORD").open("a") as record:
        record.write("../../../../../../etc/passwd,,\n")
    made = rebuilt(empty, "lossy", tmp_path / "out")
    assert [Path(path).name for path in made.missing] == ["a.py"]
    assert [Path(path).name for path in made.links] == ["b.py"]
    assert made.outside == ("../../../../../../etc/passwd",)
    found = members(made.path)
    assert found["lossy/b.py"] == b"b of the cache"
    assert not any("passwd" in name or name.startswith(("/", "..")) for name in found)


@pytest.mark.parametrize(
    ("recorded", "files", "tags"),
    [
        ("py2-none-any\nTag: py3-none-any", {"t.py": b""}, {"py2-none-any", "py3-none-any"}),
        ("py3-none-any", {"t.so": b"\x7fELF"}, {"cp311-cp311-linux_x86_64"}),  # an editable install calls itself pure
        ("cp27-cp27mu-linux_ppc64", {"t.so": b"\x7fELF"}, {"cp311-cp311-linux_x86_64"}),
        ("cp27-cp27mu-linux_ppc64", {"t.py": b""}, {"py3-none-any"}),
        ("nonsense", {"t.py": b""}, {"py3-none-any"}),
        ("py3-none-manylinux_2_17_x86_64", {"t.so.1": b""}, {"py3-none-manylinux_2_17_x86_64"}),
    ],
)
@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the tags of one Python are written down here")
def test_the_name_has_tags_that_an_installer_takes_here(
    empty: Path, tmp_path: Path, recorded: str, files: dict[str, bytes], tags: set[str]
) -> None:
    with_uv(empty, make_wheel(tmp_path, "tagged", "1.0", files))
    (site_packages(empty) / "tagged-1.0.dist-info" / "WHEEL").write_text(f"Wheel-Version: 1.0\nTag: {recorded}\n")
    made = rebuilt(empty, "tagged", tmp_path / "out")
    assert {str(tag) for tag in parse_wheel_filename(made.path.name)[3]} == tags


@pytest.mark.parametrize("lost", ["METADATA", "RECORD"])
def test_a_distribution_whose_files_nobody_knows_is_refused(empty: Path, tmp_path: Path, lost: str) -> None:
    with_uv(empty, make_wheel(tmp_path, "headless", "1.0", {"headless.py": b""}))
    (site_packages(empty) / "headless-1.0.dist-info" / lost).unlink()
    with pytest.raises(EnvironmentFault, match=f"it has no {lost}"):
        rebuilt(empty, "headless", tmp_path / "out")


def test_neither_the_clock_nor_zlib_has_a_say(empty: Path, tmp_path: Path) -> None:
    with_uv(empty, make_wheel(tmp_path, "bulky", "1.0", {"bulky.bin": os.urandom(3 << 20)}))
    made = rebuilt(empty, "bulky", tmp_path / "out")
    with zipfile.ZipFile(made.path) as archive:
        assert {entry.compress_type for entry in archive.infolist()} == {zipfile.ZIP_STORED}
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    assert made.bytes == made.path.stat().st_size
