"""Hashing what is claimed: against hashlib, only what was touched, and whatever happens to the files meanwhile."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from harness.pin.doctor.installed import digests as module
from harness.pin.doctor.installed import tree
from harness.pin.doctor.installed.digests import digests
from harness.pin.doctor.installed.installation import Claim, Distribution, Installation, Layout, Stat
from harness.pin.doctor.installed.stat_cache import StatCache
from harness.pin.doctor.installed.tree import stats
from tests.pin.doctor.settling import settle

FILES = {"a.py": b"print(1)\n", "empty": b"", "big.so": bytes(range(256)) * 20_000, "pkg/c.py": b"x" * 4097}


def encoded(algorithm: str, data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.new(algorithm, data).digest()).rstrip(b"=").decode()


def installation(folder: Path, algorithms: Mapping[str, tuple[str, ...]] = {}) -> Installation:
    """Every file of ``folder``, claimed with the digest that it has now."""
    paths = sorted(path for path in folder.rglob("*") if not path.is_dir() or path.is_symlink())
    claims = tuple(
        Claim(str(path), algorithm, "claimed", None)
        for path in paths
        for algorithm in algorithms.get(path.name, ("sha256",))
    )
    site = str(folder)
    layout = Layout(Path("python"), "3.11", site, site, (site,), site, site, "/none", ())
    demo = Distribution("demo", "1.0", f"{site}/demo.dist-info", site, claims)
    return Installation(layout, (demo,), stats(map(str, paths), {}))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files that were written a while ago, for the clock."""
    for name, data in FILES.items():
        path = tmp_path / "site" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return settle(tmp_path / "site")


def test_the_digests_are_those_of_hashlib(folder: Path) -> None:
    wanted = {"a.py": ("sha256", "sha512"), "empty": ("sha384",), "big.so": ("md5",), "c.py": ("", "sha3_256")}
    found = digests(installation(folder, wanted), StatCache())
    assert found.known == {
        (str(folder / name), algorithm): encoded(algorithm, FILES[name])
        for name, algorithm in [("a.py", "sha256"), ("a.py", "sha512"), ("empty", "sha384"), ("pkg/c.py", "sha3_256")]
    }  # md5 proves nothing, and no hash is no hash
    assert found.read_bytes == len(FILES["a.py"]) + len(FILES["pkg/c.py"])
    assert (found.left, found.unreadable, found.unsettled) == (0, {}, ())


def test_the_second_time_nothing_is_read(folder: Path, tmp_path: Path) -> None:
    first = digests(installation(folder), StatCache())
    assert first.read_bytes == sum(map(len, FILES.values()))
    first.remembered.save(tmp_path / "index")
    again = digests(installation(folder), StatCache.load(tmp_path / "index"))
    assert (again.known, again.read_bytes) == (first.known, 0)
    assert again.remembered == first.remembered


def test_another_algorithm_than_the_remembered_one_is_hashed(folder: Path) -> None:
    first = digests(installation(folder), StatCache())
    both = digests(installation(folder, {"a.py": ("sha256", "sha512")}), first.remembered)
    assert both.read_bytes == len(FILES["a.py"])
    assert both.known[str(folder / "a.py"), "sha512"] == encoded("sha512", FILES["a.py"])


def in_place(path: Path) -> None:
    before = path.stat()
    with path.open("r+b") as file:
        file.write(b"PRINT(2)\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def touch_r(path: Path) -> None:
    shutil.copystat(path, path.with_suffix(".times"))
    path.write_bytes(b"PRINT(2)\n")
    subprocess.run(["touch", "-r", path.with_suffix(".times"), path], check=True)


def cp_p(path: Path) -> None:
    other = path.with_suffix(".other")
    other.write_bytes(b"PRINT(2)\n")
    os.utime(other, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    subprocess.run(["cp", "-p", other, path], check=True)


def moved_over(path: Path) -> None:
    other = path.with_suffix(".other")
    other.write_bytes(b"PRINT(2)\n")
    os.utime(other, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    other.replace(path)


@pytest.mark.parametrize("change", [in_place, touch_r, cp_p, moved_over])
def test_a_change_that_keeps_size_and_mtime_is_seen(folder: Path, change: Callable[[Path], None]) -> None:
    path = folder / "a.py"
    path.with_suffix(".times").touch()
    first = digests(installation(folder), StatCache())
    before = path.stat()
    change(path)
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    again = digests(installation(folder), first.remembered)
    assert again.known[str(path), "sha256"] == encoded("sha256", b"PRINT(2)\n")


def test_changes_within_one_tick_of_the_clock_are_seen(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a kernel that stamps files once in 10 ms, here by cutting the stamps, and with edits much faster than that."""

    def coarse(path: str, real: Callable[[str], Stat] = tree.look) -> Stat:
        stat = real(path)
        tick = 10_000_000
        return stat._replace(mtime_ns=stat.mtime_ns // tick * tick, ctime_ns=stat.ctime_ns // tick * tick)

    monkeypatch.setattr(tree, "look", coarse)
    monkeypatch.setattr(module, "look", coarse)
    path, remembered = folder / "a.py", StatCache()
    for number in range(100):
        path.write_bytes(b"%9d" % number)
        found = digests(installation(folder), remembered)
        assert found.known[str(path), "sha256"] == encoded("sha256", b"%9d" % number)
        remembered = found.remembered
    with monkeypatch.context() as stopped:  # a busy machine takes longer than a tick from one line to the next
        path.write_bytes(b"the last")
        stopped.setattr(module, "moment", lambda: coarse(str(path)).ctime_ns)
        found = digests(installation(folder), remembered)
        assert str(path) in found.unsettled
    while digests(installation(folder), found.remembered).unsettled:  # longer where a stamp is a whole second
        time.sleep(0.05)


def test_a_file_that_changes_while_it_is_hashed_is_not_remembered(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / "a.py"
    real = os.readv

    def meddled(file: int, buffers: list[bytearray]) -> int:
        size = real(file, buffers)
        if size == len(FILES["a.py"]):
            path.write_bytes(b"something else")
        return size

    monkeypatch.setattr(os, "readv", meddled)
    found = digests(installation(folder), StatCache())
    monkeypatch.undo()
    assert found.unsettled == (str(path),)
    assert str(path) not in found.remembered.stats
    assert set(found.remembered.stats) == {str(folder / name) for name in FILES} - {str(path)}
    again = digests(installation(folder), found.remembered)
    assert again.known[str(path), "sha256"] == encoded("sha256", b"something else")


def test_files_that_cannot_be_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "pipe").symlink_to(folder.parent / "pipe")
    os.mkfifo(folder.parent / "pipe")
    (folder / "zero").symlink_to("/dev/zero")
    (folder / "loop").symlink_to("loop")
    (folder / "link.py").symlink_to("a.py")
    case = installation(folder)
    (folder / "empty").unlink()
    real = os.open

    def closed(path: str, *args: int) -> int:
        if path.endswith("c.py"):
            raise PermissionError(13, "Permission denied", path)
        return real(path, *args)

    monkeypatch.setattr(os, "open", closed)
    monkeypatch.setattr(module, "moment", lambda: (folder / "link.py").lstat().st_ctime_ns)  # the clock stands still
    found = digests(case, StatCache())
    assert {Path(path).name: why for path, why in found.unreadable.items()} == {
        "pipe": "it is not a file",
        "zero": "it is not a file",
        "loop": "Too many levels of symbolic links",
        "empty": "No such file or directory",
        "c.py": "Permission denied",
    }
    assert {Path(path).name for path, _ in found.known} == {"a.py", "big.so", "link.py"}
    assert found.unsettled == (str(folder / "link.py"),)  # made just now
    assert {Path(path).name for path in found.remembered.stats} == {"a.py", "big.so"}


def test_at_most_so_many_bytes_what_was_touched_first(folder: Path) -> None:
    nothing = digests(installation(folder), StatCache(), limit_bytes=0)
    assert (set(nothing.known), nothing.left) == ({(str(folder / "empty"), "sha256")}, 3)
    small = digests(installation(folder), StatCache(), limit_bytes=10_000)
    assert (small.left, small.read_bytes) == (1, len(FILES["a.py"]) + len(FILES["pkg/c.py"]))
    whole = digests(installation(folder), StatCache())
    (folder / "new.py").write_bytes(b"n" * 10)
    (folder / "pkg" / "c.py").write_bytes(b"y" * 4097)
    touched = digests(installation(folder), whole.remembered, limit_bytes=4100)
    assert touched.known[str(folder / "pkg" / "c.py"), "sha256"] == encoded("sha256", b"y" * 4097)
    assert touched.left == 1  # new.py: never seen
    assert touched.known[str(folder / "a.py"), "sha256"] == whole.known[str(folder / "a.py"), "sha256"]


SLOW = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from harness.pin.doctor.installed.digests import digests
from harness.pin.doctor.installed.stat_cache import StatCache
from tests.pin.doctor.installed.test_digests import installation
digests(installation(Path(sys.argv[1])), StatCache(), lambda done, total: print(done, total, flush=True))
"""


def test_progress_and_an_interrupt(tmp_path: Path) -> None:
    """A file with a hole of a terabyte: hashing it would take minutes."""
    (tmp_path / "huge.so").touch()
    os.truncate(tmp_path / "huge.so", 1 << 40)
    root = Path(__file__).resolve().parents[4]
    command = [sys.executable, "-c", SLOW, str(tmp_path), str(root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=root) as process:
        assert process.stdout is not None
        done, total = map(int, process.stdout.readline().split())
        assert 0 < done < total == 1 << 40
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)  # to the end of the hole it would be many minutes
    assert errors.rstrip().endswith("KeyboardInterrupt")
