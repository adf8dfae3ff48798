"""The dynamic symbols of a library: which it defines, and which it asks others for.

How many there are is in the hash table alone: DT_HASH says it, and of DT_GNU_HASH it is the end of the last chain.
Sources: the System V ABI, chapter 5; "GNU Hash ELF Sections" (glibc, dl-lookup.c).
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from harness.pin.doctor.linking.elf_file import STRSZ, STRTAB, BrokenElf, ElfFile, opened

HASH, SYMTAB, GNU_HASH = 4, 6, 0x6FFFFEF5
LOCAL, WEAK = 0, 2
MOST_SYMBOLS = 1 << 22  # libtorch_cpu.so has 75,000


class Symbols(NamedTuple):
    """Names of symbols, in whatever version; those of the library's own use (local) are left out."""

    defined: frozenset[str] = frozenset()
    undefined: frozenset[str] = frozenset()  # without the weak ones, which may be absent


def read_symbols(path: str | Path, prefixes: tuple[str, ...] = ("",)) -> Symbols:
    """The symbols of ``path`` whose names begin with one of ``prefixes``; none where it is no ELF.

    Raises BrokenElf and OSError as ``read_elf`` does.
    """
    wanted = tuple(prefix.encode() for prefix in prefixes)
    with opened(path) as file:
        if file is None or SYMTAB not in file.tags:
            return Symbols()
        names = file.read(file.offset(file.tag(STRTAB)), min(file.tag(STRSZ), file.size))
        defined, undefined = set[str](), set[str]()
        # 64 bits: name, info, other, section, value, size; 32 bits: name, value, size, info, other, section.
        form, info, section = ("IBBHQQ", 1, 3) if file.wide else ("IIIBBH", 3, 5)
        for fields in file.unpack_all(form, file.offset(file.tag(SYMTAB)), _count(file)):
            at, binding = fields[0], fields[info] >> 4
            if at and binding != LOCAL and names.startswith(wanted, at):
                name = names[at : names.find(b"\0", at)].decode(errors="replace")
                if fields[section]:
                    defined.add(name)
                elif binding != WEAK:
                    undefined.add(name)
        return Symbols(frozenset(defined), frozenset(undefined))


def _count(file: ElfFile) -> int:
    if GNU_HASH in file.tags:
        count = _end_of_chains(file, file.offset(file.tag(GNU_HASH)))
    elif HASH in file.tags:
        count = file.unpack("II", file.offset(file.tag(HASH)))[1]
    else:
        return 0
    if count > MOST_SYMBOLS:
        raise BrokenElf(f"is damaged: it has {count:,} symbols")
    return count


def _end_of_chains(file: ElfFile, start: int) -> int:
    """One more than the last symbol in the table; with nothing in it, the first that would be."""
    buckets, first, bloom, _ = file.unpack("IIII", start)
    bucket_start = start + 16 + bloom * (8 if file.wide else 4)
    last = max((index for (index,) in file.unpack_all("I", bucket_start, buckets)), default=0)
    if last < first:
        return first
    chain_start = bucket_start + 4 * buckets
    for index in range(last, MOST_SYMBOLS):
        if file.unpack("I", chain_start + 4 * (index - first))[0] & 1:
            return index + 1
    raise BrokenElf("is damaged: its symbol table has no end")
