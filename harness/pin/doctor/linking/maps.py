"""The native libraries that a process has mapped, from /proc/PID/maps (proc(5))."""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from harness.pin.doctor.linking.elf import Elf, read_elf
from harness.pin.doctor.linking.elf_file import BrokenElf
from harness.pin.doctor.linking.ldso import file_name

_LINE = re.compile(r"^([0-9a-f]+-[0-9a-f]+) ..x. [0-9a-f]+ ([0-9a-f]+:[0-9a-f]+) (\d+) +(/.*\.so.*)$", re.MULTILINE)
_DELETED = " (deleted)"


class Mapped(NamedTuple):
    """A library file that a process executes from."""

    path: str  # in the process's own view of the files
    device: str  # "fd:00"
    inode: int
    deleted: bool  # the path does not lead to this file any more
    span: str  # its addresses: "7f12a000-7f12c000"


@dataclass(frozen=True)
class LoadedLibrary:
    """The same, and what the file says of itself."""

    path: str
    name: str  # its soname; the file's name where it has none
    build_id: str  # hexadecimal; "" where it has none, or cannot be read any more
    device: str
    inode: int
    deleted: bool
    place: str  # where this process finds the file: elsewhere for that of a process in a container


def mapped(text: str) -> tuple[Mapped, ...]:
    """The libraries in the text of a maps file, each once, in the order of their addresses."""
    found: dict[tuple[str, str, int], Mapped] = {}
    for span, device, inode, path in _LINE.findall(text):
        path = path.replace("\\012", "\n")  # the only character that the kernel rewrites
        deleted = path.endswith(_DELETED)
        path = path.removesuffix(_DELETED) if deleted else path
        if ".so" in file_name(path) and not path.startswith("/memfd:"):
            found.setdefault((path, device, int(inode)), Mapped(path, device, int(inode), deleted, span))
    return tuple(found.values())


def mapped_by(pid: int) -> tuple[Mapped, ...]:
    """The libraries of the process ``pid``; none where it has ended or is another user's."""
    try:
        return mapped(Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="surrogateescape"))
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ()


def identified(library: Mapped, pid: int | None = None, root: str = "") -> LoadedLibrary:
    """``library`` with its name and build id; of process ``pid``, whose files lie under ``root`` (see ``root_of``).

    A deleted file is read through the kernel's link to it, which needs a privilege (CAP_CHECKPOINT_RESTORE).
    """
    place = root + library.path
    elf = _elf(f"/proc/{pid or 'self'}/map_files/{library.span}" if library.deleted else place)
    name = (elf.soname if elf else "") or file_name(library.path)
    build_id = elf.build_id if elf else ""
    return LoadedLibrary(library.path, name, build_id, library.device, library.inode, library.deleted, place)


def root_of(pid: int) -> str:
    """Where the files of process ``pid`` begin for this one: "" for the same, /proc/PID/root for a container's."""
    try:
        same = os.stat(f"/proc/{pid}/ns/mnt").st_ino == os.stat("/proc/self/ns/mnt").st_ino  # noqa: PTH116
        return "" if same and os.readlink(f"/proc/{pid}/root") == "/" else f"/proc/{pid}/root"  # noqa: PTH115
    except OSError:  # ended, or not ours to ask
        return ""


def _elf(path: str) -> Elf | None:
    try:
        return read_elf(path)
    except (BrokenElf, OSError):  # changed or gone since it was mapped, which the mapping itself tells
        return None


def libraries(pid: int) -> tuple[LoadedLibrary, ...]:
    """The libraries of the process ``pid``; none where it has ended or is another user's."""
    root = root_of(pid)
    return tuple(identified(library, pid, root) for library in mapped_by(pid))


def of_tree(pids: Iterable[int]) -> tuple[LoadedLibrary, ...]:
    """The libraries of several processes, each once."""
    return tuple(dict.fromkeys(library for pid in pids for library in libraries(pid)))


def is_changed(library: LoadedLibrary) -> bool:
    """Whether another file is at the library's path now than the one that was mapped.

    Where the numbers differ, the file is mapped once more and the kernel is asked for the number of that: on overlayfs
    and btrfs, maps and stat count differently.
    """
    if library.deleted:
        return True
    try:
        now = os.stat(library.place).st_ino  # noqa: PTH116
        return now != library.inode and _inode_when_mapped(library.place) != library.inode
    except FileNotFoundError:
        return True
    except OSError:
        return False  # closed to us: nothing is known


def _inode_when_mapped(path: str) -> int | None:
    with Path(path).open("rb") as file, mmap.mmap(file.fileno(), 1, prot=mmap.PROT_READ | mmap.PROT_EXEC):
        own = mapped(Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape"))
        return next((library.inode for library in reversed(own) if library.path == path), None)
