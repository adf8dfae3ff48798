"""The digests of the bytes that distributions claim: on all cores, and only of files touched since the last time.

Threads, not processes: hashlib lets go of the interpreter's lock for anything above 2 KB, so on the 5.7 GB of a CUDA
environment two threads take as long as two processes (2.4 s on two cores), and Ctrl-C leaves nothing behind. Buffers
of 1 MiB matter: with 64 KiB the threads wait for the lock twice as long as they hash.
"""

from __future__ import annotations

import base64
import hashlib
import os
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from harness.pin.doctor.installed.installation import Installation, Stat
from harness.pin.doctor.installed.stat_cache import StatCache, moment, settled
from harness.pin.doctor.installed.tree import look

ALGORITHMS = hashlib.algorithms_guaranteed - {"md5", "sha1", "sha224", "sha3_224", "shake_128", "shake_256"}
"""What a RECORD may be trusted with: SHA-256 or better."""

Progress = Callable[[int, int], None]
"""Called with the bytes done and the bytes in all, now and then, from the thread that asked."""

_BUFFER = 1 << 20
_PROGRESS_AFTER_S = 2.0
_PROGRESS_EVERY_S = 0.5


@dataclass(frozen=True)
class Digests:
    """What is known of the bytes, and what it took to know it."""

    known: Mapping[tuple[str, str], str]  # (path, algorithm) -> digest, as a Case wants them
    remembered: StatCache  # of the same files: to save for the next time
    read_bytes: int = 0
    left: int = 0  # files not hashed because of ``limit_bytes``
    unreadable: Mapping[str, str] = field(default_factory=dict)  # path -> why
    unsettled: tuple[str, ...] = ()  # changed while they were hashed, or just before: another look may tell otherwise


def digests(
    installation: Installation,
    remembered: StatCache,
    progress: Progress | None = None,
    limit_bytes: int | None = None,
) -> Digests:
    """The digest of every claimed file whose RECORD has one, by the algorithm of the RECORD.

    With ``limit_bytes``, at most so many are read: of files that were touched since they were remembered, then of
    those never seen, the small ones first.
    """
    wanted, files = _wanted(installation), installation.files
    same = {path for path in wanted if remembered.stats.get(path) == files[path]}
    known = {key: digest for key, digest in remembered.digests.items() if key[0] in same}
    todo = [path for path, names in wanted.items() if any((path, name) not in known for name in names)]
    sizes = {path: files[path].size for path in todo}
    chosen = todo if limit_bytes is None else _within(limit_bytes, todo, sizes, remembered)
    work = _Work(sorted(chosen, key=sizes.__getitem__), wanted)
    if chosen:
        work.run(sum(sizes[path] for path in chosen), progress)
    known |= work.digests
    stats = {**{path: files[path] for path in same}, **work.stats}
    for path in work.unsettled:
        stats.pop(path, None)
    return Digests(
        known=known,
        remembered=StatCache(stats, {key: digest for key, digest in known.items() if key[0] in stats}),
        read_bytes=sum(work.done),
        left=len(todo) - len(chosen),
        unreadable=work.unreadable,
        unsettled=tuple(sorted(work.unsettled)),
    )


def _wanted(installation: Installation) -> dict[str, set[str]]:
    """The algorithms to hash each claimed file with."""
    wanted: dict[str, set[str]] = {}
    for distribution in installation.distributions:
        for claim in distribution.claims:
            if claim.algorithm in ALGORITHMS and claim.path in installation.files:
                wanted.setdefault(claim.path, set()).add(claim.algorithm)
    return wanted


def _within(limit: int, todo: list[str], sizes: Mapping[str, int], remembered: StatCache) -> list[str]:
    """Those of ``todo`` to read when it may be ``limit`` bytes."""
    chosen = []
    for path in sorted(todo, key=lambda path: (path not in remembered.stats, sizes[path])):
        if sizes[path] <= limit:
            limit -= sizes[path]
            chosen.append(path)
    return chosen


class _Work:
    """Files to hash, from the smallest to the largest, and what the threads found.

    One thread takes the small ones, most of whose time goes by with the interpreter's lock held; the others begin
    with the large ones, which need no lock. All of them at the small ones would wait for each other.
    """

    def __init__(self, todo: Iterable[str], wanted: Mapping[str, set[str]]) -> None:
        self._todo, self._wanted = deque(todo), wanted
        self._stop = threading.Event()
        self.done = [0] * min(len(os.sched_getaffinity(0)), len(self._todo))  # bytes, by thread
        self.stats: dict[str, Stat] = {}  # before it was read
        self.digests: dict[tuple[str, str], str] = {}
        self.unreadable: dict[str, str] = {}
        self.unsettled: set[str] = set()

    def run(self, total: int, progress: Progress | None) -> None:
        """Hash everything; an exception here, Ctrl-C's too, stops the threads and goes on up."""
        begun = time.monotonic()
        with ThreadPoolExecutor(len(self.done)) as pool:
            futures = [pool.submit(self._take, thread) for thread in range(len(self.done))]
            try:
                while wait(futures, _PROGRESS_EVERY_S).not_done:
                    if progress is not None and time.monotonic() - begun > _PROGRESS_AFTER_S:
                        progress(sum(self.done), total)
            finally:
                self._stop.set()
            for future in futures:
                future.result()

    def _take(self, thread: int) -> None:
        buffer = bytearray(_BUFFER)
        take = self._todo.pop if thread else self._todo.popleft
        while not self._stop.is_set():
            try:
                path = take()
            except IndexError:
                return
            try:
                self._hash(path, thread, buffer)
            except OSError as error:
                self.unreadable[path] = error.strerror or str(error)

    def _hash(self, path: str, thread: int, buffer: bytearray) -> None:
        view = memoryview(buffer)
        hashes = {name: hashlib.new(name) for name in self._wanted[path]}
        at = moment()
        before = look(path)
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would wait for its writer
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise OSError(0, "it is not a file")
            while (size := os.readv(file, [buffer])) and not self._stop.is_set():
                for hash_ in hashes.values():
                    hash_.update(view[:size])
                self.done[thread] += size
        finally:
            os.close(file)
        self.stats[path] = before
        self.digests |= {(path, name): spelled(hash_.digest()) for name, hash_ in hashes.items()}
        if look(path) != before or not settled(before, at):
            self.unsettled.add(path)


def spelled(digest: bytes) -> str:
    """As a RECORD spells it."""
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
