"""Compile caches: one root for each (environment, device, CUDA), pointed at before the child starts, and measured.

A cache that another environment or another GPU filled gives misses at best and wrong results at worst, so no two of
them share a root. The harness deletes none: a cold start takes a new root.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.records import CacheState

# Where torch, Triton, C++ extensions and the driver are told to keep what they compiled, and our folder for each.
VARIABLES: Mapping[str, str] = {
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
    "TORCH_EXTENSIONS_DIR": "extensions",
    "CUDA_CACHE_PATH": "cuda",
}

# Folders inside TORCHINDUCTOR_CACHE_DIR. Everything else there is generated code, and what it was compiled to.
_INDUCTOR_KINDS = ("fxgraph", "aotautograd", "triton")
_NO_ENTRIES = ("locks",)


@dataclass(frozen=True)
class CacheRoot:
    """A root, and the variables that point a child at it."""

    path: Path
    variables: Mapping[str, str]


def choose(caches: Path, identity: str, device: str, cuda: str | None, cold: bool = False) -> CacheRoot:
    """The root under ``caches`` for an environment's identity, a device's name and a CUDA version.

    ``cold`` takes a new root beside it, so that the run starts with nothing and the warm root stays as it is.
    """
    caches.mkdir(parents=True, exist_ok=True)
    slug = "-".join(_slug(part) for part in (identity, device, f"cuda{cuda}" if cuda else "nocuda"))
    path = _new_beside(caches / slug) if cold else caches / slug
    for folder in VARIABLES.values():
        (path / folder).mkdir(parents=True, exist_ok=True)
    return CacheRoot(path, {name: str(path / folder) for name, folder in VARIABLES.items()})


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "_", text.lower()).strip("_")[:60] or "unknown"


def _new_beside(path: Path) -> Path:
    number = 0
    while True:
        number += 1
        new = path.with_name(f"{path.name}-cold{number}")
        with contextlib.suppress(FileExistsError):
            new.mkdir()
            return new


def inventory(variables: Mapping[str, str]) -> CacheState:
    """What is in the folders that ``variables`` point at: bytes and files, in all and by kind."""
    by_kind: dict[str, dict[str, int]] = {}
    for name, kind in VARIABLES.items():
        for found, size in _files(Path(variables[name]), kind) if name in variables else ():
            entry = by_kind.setdefault(found, {"bytes": 0, "entries": 0})
            entry["bytes"] += size
            entry["entries"] += 1
    return CacheState(
        bytes=sum(entry["bytes"] for entry in by_kind.values()),
        entries=sum(entry["entries"] for entry in by_kind.values()),
        by_kind=dict(sorted(by_kind.items())),
    )


def _files(root: Path, kind: str) -> Iterator[tuple[str, int]]:
    """Each file under ``root``, as its kind and its bytes. Another run may be at work: what vanishes is passed over."""
    for folder, _, names in os.walk(root):
        inside = Path(folder).relative_to(root).parts
        top = inside[0] if kind == "inductor" and inside else ""
        if top in _NO_ENTRIES:
            continue
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                yield top if top in _INDUCTOR_KINDS else kind, (Path(folder) / name).lstat().st_size


@contextlib.contextmanager
def in_use(root: CacheRoot) -> Iterator[bool]:
    """Mark the root as used for as long as the context lasts. Yields whether another run already uses it."""
    descriptor = os.open(root.path / "in-use", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shared = False
        except BlockingIOError:
            shared = True
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield shared
    finally:
        os.close(descriptor)
