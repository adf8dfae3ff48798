"""The dynamic loader's search and its table of what is loaded, replayed over the files without loading anything.

The rules are those of glibc (dl-load.c ``_dl_map_object``, dl-deps.c, ld.so(8)): a name that is loaded already is used
again; else DT_RPATH of the one that needs it and of those that loaded it, unless it has a DT_RUNPATH; LD_LIBRARY_PATH;
its DT_RUNPATH; /etc/ld.so.cache, read from the file itself; the default folders. A file for another machine is passed
over; one that is no library ends the search. The folders for newer processors (glibc-hwcaps) are left out: what lies
there belongs to the owner of what lies above.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from harness.pin.doctor.linking.elf import Elf, read_elf
from harness.pin.doctor.linking.elf_file import BrokenElf
from harness.pin.doctor.linking.ld_cache import of_this_machine


@dataclass(frozen=True, eq=False)
class Loaded:
    """A library in a process, and the one whose need brought it there (None for what was opened by its path)."""

    path: str  # as it was found
    elf: Elf
    by: Loaded | None = None

    @property
    def origin(self) -> str:
        return folder_of(self.path)


@dataclass(frozen=True, eq=False)
class Unresolved:
    """A need that the loader cannot meet."""

    name: str
    needed_by: Loaded
    searched: tuple[str, ...] = ()
    path: str = ""  # where the search ended: a file that cannot be loaded
    why: str = ""  # "is truncated: ..."; "" where no file of that name was found


def file_name(path: str) -> str:
    return path.rpartition("/")[2]


def folder_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"


@dataclass
class Search:
    """Where the loader looks, in a process of ``program`` with ``variables``; what it saw is kept."""

    program: str  # the interpreter's own file, links resolved
    variables: Mapping[str, str] = field(default_factory=dict)
    cwd: str = ""
    cache: Mapping[str, tuple[str, ...]] = field(default_factory=of_this_machine)
    _elves: dict[str, Elf | BrokenElf | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        elf = self.elf(self.program)
        # A wrapper script is no ELF; the architecture is then taken from the first library.
        self.main = Loaded(self.program, elf) if isinstance(elf, Elf) else None
        self.library_path = tuple(self._expanded(self._split("LD_LIBRARY_PATH", ":;"), folder_of(self.program)))

    def _split(self, variable: str, separators: str) -> list[str]:
        text = self.variables.get(variable, "")
        for separator in separators[1:]:
            text = text.replace(separator, separators[0])
        return text.split(separators[0]) if text else []

    def preloaded(self) -> list[str]:
        """The names in LD_PRELOAD."""
        return [name for name in self._split("LD_PRELOAD", ": ") if name]

    def elf(self, path: str) -> Elf | BrokenElf | None:
        """The library at ``path``, read once; None where nothing can be opened or it is no ELF."""
        if path not in self._elves:
            try:
                self._elves[path] = read_elf(path)
            except BrokenElf as error:
                self._elves[path] = error
            except (OSError, ValueError):  # closed to us or gone; or a name with a NUL in it
                self._elves[path] = None
        return self._elves[path]

    def find(self, name: str, by: Loaded) -> Loaded | Unresolved:
        """What the loader takes for ``name``, which ``by`` needs."""
        if "/" in name:
            return self._taken(self._absolute(name), name, by, ()) or Unresolved(name, by, (folder_of(name),))
        searched: list[str] = []
        for path in self._candidates(name, by):
            found = self._taken(path, name, by, tuple(searched))
            if found is not None:
                return found
            searched.append(folder_of(path))
        return Unresolved(name, by, tuple(dict.fromkeys(searched)))

    def _taken(self, path: str, name: str, by: Loaded, searched: tuple[str, ...]) -> Loaded | Unresolved | None:
        """What the loader makes of one candidate; None where it goes on to the next."""
        if not os.access(path, os.R_OK):
            return None
        elf = self.elf(path)
        if isinstance(elf, Elf):
            return Loaded(path, elf, by) if elf.architecture == by.elf.architecture else None
        why = str(elf) if elf is not None else "is no library"
        return Unresolved(name, by, searched, path, why)

    def _candidates(self, name: str, by: Loaded) -> Iterator[str]:
        for folder in self._own_folders(by):
            yield f"{folder}/{name}"
        if not by.elf.no_default_folders:
            yield from self.cache.get(name, ())
            for folder in _default_folders(by.elf):
                yield f"{folder}/{name}"

    def _own_folders(self, by: Loaded) -> Iterator[str]:
        """Those that the library's own chain and the variables name."""
        if by.elf.runpath is None:
            loader: Loaded | None = by
            last = by
            while loader is not None:
                if loader.elf.runpath is None:
                    yield from self._expanded(loader.elf.rpath, loader.origin)
                last, loader = loader, loader.by
            if self.main is not None and last is not self.main and self.main.elf.runpath is None:
                yield from self._expanded(self.main.elf.rpath, self.main.origin)
        yield from self.library_path
        if by.elf.runpath is not None:
            yield from self._expanded(by.elf.runpath, by.origin)

    def _expanded(self, folders: tuple[str, ...] | list[str], origin: str) -> Iterator[str]:
        """``folders`` with the loader's own variables filled in; $LIB is one of two, by distribution."""
        for folder in folders:
            for key, value in (("ORIGIN", origin), ("PLATFORM", os.uname().machine)):
                folder = folder.replace("${" + key + "}", value).replace("$" + key, value)
            libs = ("lib64", f"lib/{_multiarch()}") if "$LIB" in folder or "${LIB}" in folder else ("",)
            for lib in libs:
                yield self._absolute(folder.replace("${LIB}", lib).replace("$LIB", lib))

    def _absolute(self, path: str) -> str:
        return os.path.normpath(os.path.join(self.cwd or ".", path))  # noqa: PTH118 - an empty path is the current folder


def _multiarch() -> str:
    return f"{os.uname().machine}-linux-gnu"


def _default_folders(elf: Elf) -> tuple[str, ...]:
    """Debian's, then those of the others; what is for another word size is passed over by its header."""
    wide = ("/lib64", "/usr/lib64") if elf.bits == 64 else ()
    return (f"/lib/{_multiarch()}", f"/usr/lib/{_multiarch()}", *wide, "/lib", "/usr/lib")


@dataclass(frozen=True, eq=False)
class Opening:
    """What one ``dlopen`` did to a process: the libraries that are new, and the needs that were not met."""

    process: Process
    libraries: tuple[Loaded, ...] = ()
    failures: tuple[Unresolved, ...] = ()


class Process:
    """What one process has loaded so far, by every name that the loader would know it by."""

    def __init__(self, search: Search) -> None:
        self.search = search
        self.names: dict[str, Loaded] = {}
        self._files: dict[str, Loaded] = {}

    @classmethod
    def started(cls, search: Search) -> Process:
        """A process of the interpreter before it runs anything: its own libraries and those of LD_PRELOAD."""
        process = cls(search)
        if search.main is not None:
            process.names[file_name(search.main.elf.interpreter)] = search.main
            process._bring(search.main)
            for name in search.preloaded():
                found = search.find(name, search.main)
                if isinstance(found, Loaded):
                    process._bring(found)
        return process

    def copy(self) -> Process:
        """Another process with the same libraries."""
        copied = Process(self.search)
        copied.names, copied._files = dict(self.names), dict(self._files)
        return copied

    @property
    def loaded(self) -> tuple[Loaded, ...]:
        return tuple(self._files.values())

    def open(self, path: str) -> Opening:
        """``dlopen`` of the library at ``path`` with all that it needs."""
        elf, main = self.search.elf(path), self.search.main
        if isinstance(elf, Elf) and (main is None or elf.architecture == main.elf.architecture):
            return self._bring(Loaded(path, elf))
        why = str(elf) if isinstance(elf, BrokenElf) else "is no library for this machine"
        return Opening(self, failures=(Unresolved(path, main, path=path, why=why),) if main else ())

    def _bring(self, first: Loaded) -> Opening:
        todo, brought, failures = deque([first]), [first], list[Unresolved]()
        if not self._know(first):
            return Opening(self)
        while todo:
            needer = todo.popleft()
            for name in needer.elf.needed:
                if name in self.names:
                    continue
                found = self.search.find(name, needer)
                if isinstance(found, Unresolved):
                    failures.append(found)
                elif self._know(found, name):
                    todo.append(found)
                    brought.append(found)
        return Opening(self, tuple(brought), tuple(failures))

    def _know(self, library: Loaded, name: str = "") -> bool:
        """Enter ``library``; False where its file is loaded already, and only gets another name."""
        real = os.path.realpath(library.path)
        known = self._files.setdefault(real, library)
        for each in (name, known.elf.soname):
            if each:
                self.names.setdefault(each, known)
        return known is library
