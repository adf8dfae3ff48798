"""/etc/ld.so.cache, read from the file itself. ``ldconfig -p`` prints the same."""

from __future__ import annotations

import os
import struct
from pathlib import Path

CACHE = Path("/etc/ld.so.cache")

SYSTEM_FOLDERS = (
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
    "/usr/local/cuda/lib64",
)
"""Where the loader looks last, or is told to look by what NVIDIA's packages put into ld.so.conf."""

_MAGIC = b"glibc-ld.so.cache1.1"
_HEADER_SIZE = 48
_ENTRY = struct.Struct("=iIIIQ")  # flags, where the name is, where the path is, kernel, processor
_FOR_NEWER_PROCESSORS = 1 << 62


def of_this_machine() -> dict[str, tuple[str, ...]]:
    """This machine's; empty where there is none (musl), or none that can be read: the default folders are left."""
    try:
        return read_cache(CACHE.read_bytes())
    except OSError:
        return {}


def read_cache(data: bytes) -> dict[str, tuple[str, ...]]:
    """The paths that the cache has for each name, in its order; nothing where it is in no format of glibc's."""
    start = data.find(_MAGIC)
    data = data[start:] if start >= 0 else b""  # an older format may stand before it; offsets count from here
    if len(data) < _HEADER_SIZE:
        return {}
    (count,) = struct.unpack_from("=I", data, len(_MAGIC))
    found: dict[str, list[str]] = {}
    for index in range(min(count, (len(data) - _HEADER_SIZE) // _ENTRY.size)):
        _, name, path, _, processor = _ENTRY.unpack_from(data, _HEADER_SIZE + index * _ENTRY.size)
        if not processor & _FOR_NEWER_PROCESSORS:
            found.setdefault(_string(data, name), []).append(_string(data, path))
    return {name: tuple(paths) for name, paths in found.items()}


def _string(data: bytes, at: int) -> str:
    return os.fsdecode(data[at : data.find(b"\0", at)])
