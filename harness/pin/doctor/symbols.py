"""The dynamic symbols of a library: which it asks others for, and whether it defines a name.

Both go through the hash table that the loader uses. The GNU table sorts the symbols that are not defined before those
that are, so the first question reads only the head of the symbol table; the second looks up one bucket for each name.
A library with only the older table (DT_HASH) is read whole. Source: "GNU Hash ELF Sections" (glibc, dl-lookup.c).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from harness.pin.doctor.elf_file import STRSZ, STRTAB, BrokenElf, ElfFile, opened

HASH, SYMTAB, GNU_HASH = 4, 6, 0x6FFFFEF5
WEAK, UNDEFINED = 2, 0
MOST_SYMBOLS = 1 << 24
LONGEST_CHAIN = 4096  # real ones have two or three


def undefined(path: str | Path, prefixes: tuple[str, ...]) -> frozenset[str]:
    """The symbols with one of ``prefixes`` that ``path`` must find elsewhere; not the weak ones, which may be absent.

    Raises as ``read_elf`` does; empty for what is no ELF.
    """
    wanted = tuple(prefix.encode() for prefix in prefixes)
    with opened(path) as file:
        if file is None or SYMTAB not in file.tags:
            return frozenset()
        names = file.read(file.offset(file.tag(STRTAB)), min(file.tag(STRSZ), file.size))
        found: set[str] = set()
        for at, is_defined, is_weak in _symbols(file, 0, _first_defined(file)):
            if at and not is_defined and not is_weak and names.startswith(wanted, at):
                found.add(names[at : names.find(b"\0", at)].decode(errors="replace"))
        return frozenset(found)


def missing(path: str | Path, names: Iterable[str]) -> frozenset[str]:
    """Those of ``names`` that ``path`` does not define. Raises as ``read_elf`` does; all of them for what is no ELF."""
    with opened(path) as file:
        if file is None or SYMTAB not in file.tags:
            return frozenset(names)
        table = GnuHash(file) if GNU_HASH in file.tags else None
        if table is not None:
            return frozenset(name for name in names if not table.defines(name.encode()))
        defined = {file.name(at) for at, is_defined, _ in _symbols(file, 0, _first_defined(file)) if is_defined}
        return frozenset(name for name in names if name.encode() not in defined)


def _symbols(file: ElfFile, first: int, count: int) -> Iterator[tuple[int, bool, bool]]:
    """(where its name is, is it defined, is it weak) of ``count`` symbols from ``first`` on."""
    if count > MOST_SYMBOLS:
        raise BrokenElf(f"is damaged: it has {count:,} symbols")
    start = file.offset(file.tag(SYMTAB))
    if file.wide:
        for name, info, _, section, _, _ in file.unpack_all("IBBHQQ", start + 24 * first, count):
            yield name, section != UNDEFINED, info >> 4 == WEAK
    else:
        for name, _, _, info, _, section in file.unpack_all("IIIBBH", start + 16 * first, count):
            yield name, section != UNDEFINED, info >> 4 == WEAK


def _first_defined(file: ElfFile) -> int:
    """How many symbols to look at for all that are undefined: those before the GNU table's, else all."""
    if GNU_HASH in file.tags:
        return GnuHash(file).first
    return file.unpack("II", file.offset(file.tag(HASH)))[1] if HASH in file.tags else 0


class GnuHash:
    """The loader's hash table of the symbols that a library defines."""

    def __init__(self, file: ElfFile) -> None:
        self._file = file
        start = file.offset(file.tag(GNU_HASH))
        self._buckets, self.first, bloom, _ = file.unpack("IIII", start)
        self._bucket_start = start + 16 + bloom * (8 if file.wide else 4)
        self._chain_start = self._bucket_start + 4 * self._buckets

    def defines(self, name: bytes) -> bool:
        """Whether the library defines ``name``, in whatever version."""
        if not self._buckets:
            return False
        wanted = _gnu_hash(name)
        index = self._file.unpack("I", self._bucket_start + 4 * (wanted % self._buckets))[0]
        for at in range(index, index + LONGEST_CHAIN):
            if index < self.first:
                return False  # an empty bucket
            value = self._file.unpack("I", self._chain_start + 4 * (at - self.first))[0]
            if value | 1 == wanted | 1:
                symbol, is_defined, _ = next(_symbols(self._file, at, 1))
                if is_defined and self._file.name(symbol) == name:
                    return True
            if value & 1:
                return False  # the chain's last
        raise BrokenElf("is damaged: a chain of its symbol table has no end")


def _gnu_hash(name: bytes) -> int:
    value = 5381
    for byte in name:
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value
