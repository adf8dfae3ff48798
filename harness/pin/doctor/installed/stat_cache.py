"""What the bytes of each file were when they were last hashed, and how to know that nobody touched it since.

An index like git's. A file counts as untouched where size, mtime, ctime, inode and mode are what they were.
``touch -r`` and ``cp -p`` set an mtime back, but only the kernel sets a ctime.

Racy timestamps: a change within the same tick of the clock as the one before it leaves the ctime equal. So an entry is
kept only where the file's times were older than the clock was before its bytes were read.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.pin.doctor.installed.installation import Stat

_MAGIC = b"harness stat cache 1 "

_COARSE_CLOCK = 5  # CLOCK_REALTIME_COARSE of Linux, which the time module has no name for
_GRAIN_NS = 10_000_000  # a tick of the slowest kernel, and what exFAT keeps; ext4, XFS and Btrfs keep nanoseconds
_COARSE_GRAIN_NS = 2_000_000_000  # ext3 and HFS+ keep whole seconds, FAT every second one


def moment() -> int:
    """Now, in nanoseconds, by the clock that the kernel stamps files with: it steps once a tick, 1 to 10 ms."""
    return time.clock_gettime_ns(_COARSE_CLOCK)


def settled(found: Stat, at: int) -> bool:
    """Whether any change after ``at``, a ``moment()``, must give the file another ctime than ``found`` has."""
    grain = _GRAIN_NS if found.ctime_ns % 1_000_000_000 else _COARSE_GRAIN_NS
    return max(found.mtime_ns, found.ctime_ns) + grain <= at


@dataclass(frozen=True)
class StatCache:
    """Files as they were when they were hashed."""

    stats: Mapping[str, Stat] = field(default_factory=dict)  # by absolute path
    digests: Mapping[tuple[str, str], str] = field(default_factory=dict)  # by path and algorithm, as a RECORD spells it

    @classmethod
    def load(cls, path: Path) -> StatCache:
        """The cache at ``path``; an empty one where there is none, or none that this version wrote whole."""
        try:
            data = path.read_bytes()
        except OSError:
            return cls()
        head, _, body = data.partition(b"\n")
        if head != _MAGIC + hashlib.sha256(body).hexdigest().encode():
            return cls()
        columns = json.loads(body)  # as ``save`` wrote it: its digest says so
        paths = columns["paths"]
        stats = dict(zip(paths, map(Stat._make, zip(*columns["stats"], strict=True)), strict=True))
        digests: dict[tuple[str, str], str] = {}
        for algorithm, column in columns["digests"].items():
            digests |= {(path, algorithm): digest for path, digest in zip(paths, column, strict=True) if digest}
        return cls(stats, digests)

    def with_more(self, other: StatCache) -> StatCache:
        """This and ``other``, whose word is the newer one."""
        return StatCache({**self.stats, **other.stats}, {**self.digests, **other.digests})

    def save(self, path: Path) -> None:
        """Write it to ``path``, which another process reads whole, old or new. Raises OSError where it cannot."""
        algorithms = sorted({algorithm for _, algorithm in self.digests})
        columns = {
            "paths": list(self.stats),
            "stats": list(zip(*self.stats.values(), strict=True)),
            "digests": {name: [self.digests.get((path, name)) for path in self.stats] for name in algorithms},
        }
        body = json.dumps(columns, separators=(",", ":")).encode()
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            try:
                file.write(_MAGIC + hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
                file.flush()
                Path(file.name).replace(path)
            except BaseException:
                Path(file.name).unlink()
                raise
