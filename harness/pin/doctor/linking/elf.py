"""What a shared library says of itself: whom it needs, where it looks, and which versions it defines.

Some small reads a file, whatever its size: 0.2 ms for a library of a CUDA environment, where pyelftools takes 8; that
and readelf are the references of the tests. Source: the Linux Standard Base, "Symbol Versioning".
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.pin.doctor.linking.elf_file import (
    INTERPRETER,
    LONGEST_NAME,
    MOST_ENTRIES,
    NOTE,
    BrokenElf,
    ElfFile,
    opened,
)

NEEDED, SONAME, RPATH, RUNPATH = 1, 14, 15, 29
FLAGS_1, VERDEF, VERDEFNUM, VERNEED, VERNEEDNUM = 0x6FFFFFFB, 0x6FFFFFFC, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF
NODEFLIB = 0x800
WEAK = 2
GNU_BUILD_ID = 3


@dataclass(frozen=True)
class Elf:
    """The dynamic part of one ELF file; all of it empty for one that is linked statically."""

    machine: int  # e_machine: 62 is x86-64, 183 is AArch64
    bits: int  # 32 or 64
    little_endian: bool
    soname: str = ""
    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()  # folders as written; the loader passes over them where there is a runpath
    runpath: tuple[str, ...] | None = None  # None where there is none, which is not the same as an empty one
    needed_versions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by library; without the weak ones
    defined_versions: frozenset[str] = frozenset()
    build_id: str = ""  # hexadecimal
    interpreter: str = ""  # the loader that a program asks for
    no_default_folders: bool = False

    @property
    def architecture(self) -> tuple[int, int, bool]:
        """What is equal for all that one process loads."""
        return self.machine, self.bits, self.little_endian


def read_elf(path: str | Path) -> Elf | None:
    """The dynamic part of ``path``; None for what is not a regular file or no ELF.

    Raises BrokenElf for one that is cut short or contradicts itself, OSError where it cannot be opened.
    """
    with opened(path) as file:
        if file is None:
            return None
        runpath = _folders(file, RUNPATH)
        return Elf(
            machine=file.machine,
            bits=64 if file.wide else 32,
            little_endian=file.order == "<",
            soname=next(_names(file, SONAME), ""),
            needed=tuple(_names(file, NEEDED)),
            rpath=_folders(file, RPATH) or (),
            runpath=runpath,
            needed_versions=dict(_needed_versions(file)),
            defined_versions=frozenset(_defined_versions(file)),
            build_id=next(_build_ids(file), ""),
            interpreter=_interpreter(file),
            no_default_folders=bool(file.tag(FLAGS_1) & NODEFLIB),
        )


def _text(file: ElfFile, at: int) -> str:
    return os.fsdecode(file.name(at))


def _names(file: ElfFile, tag: int) -> Iterator[str]:
    return (_text(file, at) for at in file.tags.get(tag, ()))


def _folders(file: ElfFile, tag: int) -> tuple[str, ...] | None:
    return tuple(_text(file, file.tag(tag)).split(":")) if tag in file.tags else None


def _interpreter(file: ElfFile) -> str:
    for segment in file.of_kind(INTERPRETER):
        return os.fsdecode(file.read(segment.offset, min(segment.size, LONGEST_NAME)).partition(b"\0")[0])
    return ""


def _chain(file: ElfFile, form: str, at: int, count: int) -> Iterator[tuple[int, tuple[int, ...]]]:
    """(where, fields) of up to ``count`` records whose last field is the distance to the next."""
    if count > MOST_ENTRIES:
        raise BrokenElf(f"is damaged: it has {count:,} symbol versions")
    for _ in range(count):
        fields = file.unpack(form, at)
        yield at, fields
        if fields[-1] == 0:
            return
        at += fields[-1]


def _needed_versions(file: ElfFile) -> Iterator[tuple[str, tuple[str, ...]]]:
    if VERNEED not in file.tags:
        return
    start = file.offset(file.tag(VERNEED))
    for at, (_, count, library, first, _) in _chain(file, "HHIII", start, file.tag(VERNEEDNUM)):
        versions = (fields for _, fields in _chain(file, "IHHII", at + first, count))
        yield _text(file, library), tuple(_text(file, name) for _, flags, _, name, _ in versions if not flags & WEAK)


def _defined_versions(file: ElfFile) -> Iterator[str]:
    if VERDEF not in file.tags:
        return
    start = file.offset(file.tag(VERDEF))
    for at, fields in _chain(file, "HHHHIII", start, file.tag(VERDEFNUM)):
        yield _text(file, file.unpack("II", at + fields[5])[0])


def _build_ids(file: ElfFile) -> Iterator[str]:
    for segment in file.of_kind(NOTE):
        notes, at = file.read(segment.offset, min(segment.size, LONGEST_NAME)), 0
        while at + 12 <= len(notes):
            name_size, size, kind = struct.unpack_from(file.order + "III", notes, at)
            start = at + 12 + _padded(name_size)
            if kind == GNU_BUILD_ID and notes[at + 12 : at + 16] == b"GNU\0":
                yield notes[start : start + size].hex()
            at = start + _padded(size)


def _padded(size: int) -> int:
    return (size + 3) & ~3
