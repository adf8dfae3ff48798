"""The index of hashes: what is read back, what is not trusted, and which times prove that nobody touched a file."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.pin.doctor.installed.installation import Stat
from harness.pin.doctor.installed.stat_cache import StatCache, moment, settled

numbers = st.integers(-(1 << 62), 1 << 64)
stats = st.builds(Stat, numbers, numbers, numbers, numbers, numbers)
digests = st.dictionaries(st.sampled_from(["sha256", "sha512", "blake2b"]), st.text(min_size=1), max_size=3)
caches = st.dictionaries(st.text(), st.tuples(stats, digests), max_size=6).map(
    lambda files: StatCache(
        {path: stat for path, (stat, _) in files.items()},
        {(path, name): digest for path, (_, by) in files.items() for name, digest in by.items()},
    )
)


@given(cache=caches)
def test_what_is_saved_is_loaded(tmp_path_factory: pytest.TempPathFactory, cache: StatCache) -> None:
    path = tmp_path_factory.mktemp("cache") / "deep" / "index"
    cache.save(path)
    assert StatCache.load(path) == cache
    assert [entry.name for entry in path.parent.iterdir()] == ["index"]


CACHE = StatCache({"/a": Stat(1, 2, 3, 4, 5)}, {("/a", "sha256"): "abc"})


@given(st.data())
def test_any_damage_means_hash_anew(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("cache") / "index"
    CACHE.save(path)
    whole = bytearray(path.read_bytes())
    position = data.draw(st.integers(0, len(whole) - 1))
    if data.draw(st.booleans()):
        del whole[position:]
    else:
        whole[position] ^= data.draw(st.integers(1, 255))
    path.write_bytes(whole)
    assert StatCache.load(path) == StatCache()


def test_a_cache_that_is_none_or_another_version_s(tmp_path: Path) -> None:
    path = tmp_path / "index"
    assert StatCache.load(path) == StatCache()
    assert StatCache.load(tmp_path) == StatCache()  # a folder
    path.write_bytes(b'{"an": "other file"}')
    assert StatCache.load(path) == StatCache()
    CACHE.save(path)
    path.write_bytes(path.read_bytes().replace(b"cache 1 ", b"cache 0 ", 1))
    assert StatCache.load(path) == StatCache()


def test_a_write_that_fails_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "index"
    CACHE.save(path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        StatCache().save(path)
    assert StatCache.load(path) == CACHE
    assert list(tmp_path.iterdir()) == [path]


SECOND, TICK = 1_000_000_000, 10_000_000
FINE = 1_700_000_000 * SECOND + 123_456_789
WHOLE = 1_700_000_000 * SECOND


@pytest.mark.parametrize(
    ("mtime", "ctime", "at", "expected"),
    [
        (FINE, FINE, FINE, False),  # within the tick: the next change may get the same times
        (FINE, FINE, FINE + TICK - 1, False),
        (FINE, FINE, FINE + TICK, True),
        (FINE - SECOND, FINE, FINE + 1, False),  # an mtime set back: the ctime counts
        (FINE + SECOND, FINE, FINE + TICK, False),  # a time to come
        (FINE, FINE + SECOND, FINE + TICK, False),  # the clock was set back since
        (WHOLE, WHOLE, WHOLE + SECOND, False),  # a file system that keeps seconds
        (WHOLE, WHOLE, WHOLE + 2 * SECOND, True),
    ],
)
def test_which_times_prove_anything(mtime: int, ctime: int, at: int, expected: bool) -> None:
    assert settled(Stat(1, mtime, ctime, 1, 0o644), at) is expected


def test_the_moment_is_the_clock_that_files_are_stamped_with(tmp_path: Path) -> None:
    """A file that is made after a moment is never stamped with an earlier one, or the rule would prove nothing."""
    for number in range(200):
        before = moment()
        (tmp_path / str(number)).touch()
        assert os.stat(tmp_path / str(number)).st_ctime_ns >= before  # noqa: PTH116 - nothing in between
    assert abs(moment() - time.time_ns()) < SECOND


def test_twenty_thousand_entries_come_back_as_they_were(tmp_path: Path) -> None:
    paths = [f"/env/lib/python3.11/site-packages/package_{n % 300}/module_{n}.py" for n in range(21_000)]
    cache = StatCache(
        {path: Stat(n, FINE + n, FINE + n, n, 0o100644) for n, path in enumerate(paths)},
        {(path, "sha256"): "x" * 43 for path in paths},
    )
    cache.save(tmp_path / "index")
    loaded = StatCache.load(tmp_path / "index")
    assert (loaded.stats, loaded.digests) == (cache.stats, cache.digests)
