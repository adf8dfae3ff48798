"""A mend that would not end right changes nothing: wheels that lack or lie, changed files, a link that leads out."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from harness.errors import EnvironmentFault
from harness.pin.doctor.mending import journal, mend
from tests.pin.doctor.breakages import edit, unharmed
from tests.pin.doctor.locked import Locked, write_lock
from tests.pin.doctor.trees import snapshot
from tests.pin.doctor.wheels import make_wheel


def test_a_wheel_that_the_index_lacks_changes_nothing(
    locked: Locked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "empty-cache"))
    edit(locked.site / "small.py")
    edit(locked.site / "tool/__init__.py")
    next(locked.index.glob("small-*")).unlink()
    before = snapshot(locked.prefix)
    with pytest.raises(EnvironmentFault, match=r"uv could not fetch small, tool.*nothing was changed"):
        locked.mend()
    unharmed(locked, before)


def test_a_wheel_with_another_hash_changes_nothing(
    locked: Locked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "empty-cache"))
    make_wheel(locked.index, "small", "3.0", {"small.py": b"small = 'evil'\n"})
    edit(locked.site / "small.py")
    before = snapshot(locked.prefix)
    with pytest.raises(EnvironmentFault, match="nothing was changed"):
        locked.mend()
    unharmed(locked, before)


def test_a_wheel_whose_bytes_its_own_record_denies_changes_nothing(locked: Locked, tmp_path: Path) -> None:
    source = tmp_path / "odd"
    source.mkdir()
    good = make_wheel(source, "small", "3.0", {"small.py": b"small = 3\n"})
    unpacked = tmp_path / "unpacked"
    shutil.unpack_archive(good, unpacked, "zip")
    (unpacked / "small.py").write_bytes(b"small = 4\n")
    next(locked.index.glob("small-*")).unlink()
    wheel = Path(shutil.make_archive(str(locked.index / "small"), "zip", unpacked))
    wheel = wheel.rename(locked.index / "small-3.0-py3-none-any.whl")
    edit(locked.site / "small.py")
    lock = write_lock(Path(locked.lock.path), [wheel])
    before = snapshot(locked.prefix)
    odd = Locked(locked.prefix, locked.index, lock, locked.uv, locked.where)
    with pytest.raises(EnvironmentFault, match=r"small 3\.0 are not what its RECORD says, .*nothing was changed"):
        odd.mend()
    unharmed(locked, before)


def test_bytes_that_do_not_verify_after_the_exchange_are_rolled_back(
    locked: Locked, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit(locked.site / "small.py")
    before = snapshot(locked.prefix)
    real = journal._move

    def damaging(path: str, source: Path, target: Path) -> None:
        real(path, source, target)
        if path.endswith("small.py") and target == locked.prefix and not (target / "seen").exists():
            (target / path).write_bytes(b"a disk that lies")
            monkeypatch.setattr(journal, "_move", real)

    monkeypatch.setattr(journal, "_move", damaging)
    with pytest.raises(EnvironmentFault, match=r"small\.py for one, though .* as they were"):
        locked.mend()
    unharmed(locked, before)


def test_a_file_that_changed_since_the_examination_is_not_replaced(locked: Locked) -> None:
    edit(locked.site / "small.py")
    found = locked.examine()
    plan = mend.plan(found.case, found.diagnosis.findings)
    edit(locked.site / "small.py", b"a person is at work here")
    before = snapshot(locked.prefix)
    with pytest.raises(EnvironmentFault, match=r"small\.py was changed meanwhile"):
        mend.carry_out(plan, found.case, locked.uv, lambda _: None)
    unharmed(locked, before)


def test_nothing_is_written_through_a_link_that_leads_out(locked: Locked, tmp_path: Path) -> None:
    sources = tmp_path / "sources"
    shutil.move(locked.site / "tool", sources)
    (locked.site / "tool").symlink_to(sources)
    before = snapshot(tmp_path / "sources"), snapshot(locked.prefix)
    with pytest.raises(EnvironmentFault, match="leads out of the environment"):
        locked.mend()
    assert (snapshot(tmp_path / "sources"), snapshot(locked.prefix)) == before
