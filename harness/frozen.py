"""What a capture gave: for a person, as JSON, and as ``frozen.json`` beside what was captured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from harness.records import CacheState


@dataclass(frozen=True)
class Kept:
    """One distribution, and the wheel that stands for it."""

    name: str
    version: str
    source: Literal["index", "rebuilt"]
    wheel: str  # the file's name
    sha256: str
    url: str = ""  # where the index has it, without what may be a password
    why: str = ""  # rebuilt: because
    bytes: int = 0  # of a rebuilt wheel
    unreached: bool = False  # rebuilt: an index that may have it did not answer
    differing: tuple[str, ...] = ()  # against the likeliest wheel of the index
    missing: tuple[str, ...] = ()  # claimed, not there, and so not in the wheel
    outside: tuple[str, ...] = ()  # claimed, outside every folder that a wheel fills, and so not in the wheel
    links: tuple[str, ...] = ()  # links whose target's bytes are in the wheel
    passed_over: tuple[str, ...] = ()  # of an editable install's folder, taken for no part of it


@dataclass(frozen=True)
class LeftOut:
    """A distribution that no wheel could be had for."""

    name: str
    version: str
    why: str


@dataclass(frozen=True)
class SavedCaches:
    """Compile caches that were copied: found, and how a run of the captured environment gets them."""

    sources: Mapping[str, str]  # "inductor": the folder that was copied; kinds that were not there are absent
    state: CacheState
    root: str = ""  # the cache root of the environment's own runs, filled from them; "" where it was not
    why_not: str = ""  # why no root was filled


@dataclass(frozen=True)
class Frozen:
    """A working Python, captured."""

    name: str
    day: str  # "2026-11-29"
    source: str  # the environment's folder
    python: str  # "3.12.3"
    torch: str | None  # its build: "2.11.0+cu128"
    cuda: str | None
    driver: str | None
    folder: str  # frozen.json, fingerprint.json, python.json, loaded.json, caches/, untracked/
    lock: str
    lock_digest: str
    kept: tuple[Kept, ...]
    left_out: tuple[LeftOut, ...] = ()
    untracked: tuple[str, ...] = ()  # files that Python could import and no RECORD claims: in no wheel
    unreached: Mapping[str, str] = field(default_factory=dict)  # host -> why
    extra_index: str | None = None  # where versions with a local part are found
    wheels: tuple[str, ...] = ()  # the folders with the rebuilt wheels
    bytes_in_git: int = 0  # of rebuilt wheels
    bytes_elsewhere: int = 0  # of those that are too large for git
    caches: SavedCaches | None = None  # None: they were not copied, a warning says why
    loaded: int = 0  # libraries that were seen loaded
    warnings: tuple[str, ...] = ()

    @property
    def proven(self) -> tuple[Kept, ...]:
        """Pinned by an index's hash: every installed byte was compared."""
        return tuple(kept for kept in self.kept if kept.source == "index")

    @property
    def rebuilt(self) -> tuple[Kept, ...]:
        return tuple(kept for kept in self.kept if kept.source == "rebuilt")

    def to_json(self) -> dict[str, Any]:
        counts = {
            "proven": len(self.proven),
            "rebuilt": len(self.rebuilt),
            "not_reachable": sum(kept.unreached for kept in self.kept),
        }
        return {"schema": 1, "counts": counts, **asdict(self)}
