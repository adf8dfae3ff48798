"""An ELF file opened the way the dynamic loader does: its segments and its dynamic table, every read checked.

Section headers are never looked at: the loader does not, a stripped library has none, and they may say anything.
Sources: the System V ABI, chapters 4 and 5.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

MAGIC = b"\x7fELF"
MOST_ENTRIES = 1 << 16  # of any table but the symbols': real libraries have some hundreds
LONGEST_NAME = 1 << 16

LOAD, DYNAMIC, INTERPRETER, NOTE = 1, 2, 3, 4  # kinds of segments
STRTAB, STRSZ = 5, 10  # the two tags that every name needs


class BrokenElf(Exception):
    """The file begins as an ELF and cannot be loaded as one. The text goes on from its name: "is truncated: ..."."""


class Segment(NamedTuple):
    """One program header."""

    kind: int
    offset: int
    address: int
    size: int  # in the file


@contextmanager
def opened(path: str | Path) -> Iterator[ElfFile | None]:
    """The file, or None for what is not a regular file or no ELF. Raises BrokenElf, or OSError if it cannot be read.

    It is read, not mapped: a mapped file that an installer shortens would kill this process.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe must not make it wait
    try:
        status = os.fstat(descriptor)
        is_elf = stat.S_ISREG(status.st_mode) and os.pread(descriptor, 4, 0) == MAGIC
        yield ElfFile(descriptor, status.st_size) if is_elf else None
    finally:
        os.close(descriptor)


class ElfFile:
    """An open ELF file. No number in it leads a read outside of it."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._descriptor, self.size = descriptor, size
        ident = self.read(0, 16)
        if ident[4] not in (1, 2) or ident[5] not in (1, 2):
            raise BrokenElf("is damaged: its header names no word size or no byte order")
        self.wide, self.order = ident[4] == 2, "<" if ident[5] == 1 else ">"
        fields = self.unpack("HHIQQQIHHH" if self.wide else "HHIIIIIHHH", 16)
        self.machine = fields[1]
        self.segments = tuple(self._program_headers(start=fields[4], entry_size=fields[8], count=fields[9]))
        end = max((segment.offset + segment.size for segment in self.segments if segment.kind == LOAD), default=0)
        if end > size:
            raise BrokenElf(f"is truncated: {size:,} of at least {end:,} bytes are there")
        self.tags = self._dynamic()

    def read(self, offset: int, count: int) -> bytes:
        if offset + count > self.size:
            raise BrokenElf(f"is truncated or damaged: it refers to byte {offset + count:,} of {self.size:,}")
        data = os.pread(self._descriptor, count, offset)
        if len(data) < count:
            raise BrokenElf("was shortened while it was read")
        return data

    def unpack(self, form: str, offset: int) -> tuple[int, ...]:
        """The integers of ``struct`` format ``form`` at ``offset``, in the file's byte order."""
        form = self.order + form
        return struct.unpack(form, self.read(offset, struct.calcsize(form)))

    def unpack_all(self, form: str, offset: int, count: int) -> Iterator[tuple[int, ...]]:
        """``count`` records of ``form``, one after another."""
        form = self.order + form
        return struct.iter_unpack(form, self.read(offset, count * struct.calcsize(form)))

    def _program_headers(self, start: int, entry_size: int, count: int) -> Iterator[Segment]:
        form = "IIQQQQQQ" if self.wide else "IIIIIIII"
        if count and entry_size != struct.calcsize(self.order + form):
            raise BrokenElf(f"is damaged: its program headers are of {entry_size} bytes")
        for values in self.unpack_all(form, start, count):
            offset, address, size = (
                (values[2], values[3], values[5]) if self.wide else (values[1], values[2], values[4])
            )
            yield Segment(values[0], offset, address, size)

    def of_kind(self, kind: int) -> tuple[Segment, ...]:
        return tuple(segment for segment in self.segments if segment.kind == kind)

    def _dynamic(self) -> dict[int, list[int]]:
        form, tags = ("qQ" if self.wide else "iI"), dict[int, list[int]]()
        for segment in self.of_kind(DYNAMIC):
            count = min(segment.size // struct.calcsize(self.order + form), MOST_ENTRIES)
            for tag, value in self.unpack_all(form, segment.offset, count):
                if tag == 0:
                    break
                tags.setdefault(tag, []).append(value)
        return tags

    def tag(self, tag: int, default: int = 0) -> int:
        """The value of a dynamic tag that occurs once."""
        return self.tags[tag][0] if tag in self.tags else default

    def offset(self, address: int) -> int:
        """Where in the file the byte lies that is loaded at ``address``."""
        for segment in self.segments:
            if segment.kind == LOAD and segment.address <= address < segment.address + segment.size:
                return segment.offset + address - segment.address
        raise BrokenElf(f"is damaged: address {address:#x} is in none of its segments")

    def name(self, at: int) -> bytes:
        """The name at ``at`` of the dynamic string table."""
        if at >= self.tag(STRSZ):
            raise BrokenElf("is damaged: a name lies outside its string table")
        start, found = self.offset(self.tag(STRTAB)) + at, b""
        while b"\0" not in found:
            if len(found) >= LONGEST_NAME:
                raise BrokenElf("is damaged: a name has no end")
            reached = start + len(found)
            found += self.read(reached, max(1, min(256, self.size - reached)))
        return found[: found.index(b"\0")]
