"""The native libraries of a run's processes, looked at while they live, for the fingerprint.

They are facts about the run's state, not about its environment: a process may load and drop a library between two
looks, or end before the first, so an absent fact is unknown. In the environment's digest they would make two runs
differ that do not.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from harness.errors import EnvironmentFault
from harness.pin.doctor.installed.layout import ask
from harness.pin.doctor.installed.read import read
from harness.pin.doctor.linking.ldso import file_name, folder_of
from harness.pin.doctor.linking.loaded import TWICE, stem
from harness.pin.doctor.linking.maps import LoadedLibrary, Mapped, identified, is_changed, mapped_by, root_of
from harness.records import Value

FIRST_LOOK_S, LONGEST_WAIT_S = 0.5, 60.0
HASHING_S = 30.0  # the record of a run waits no longer for digests that nobody knew before
DIGITS = 12

OwnerOf = Callable[[str], str | None]
"""Given a path: "torch 2.14.1", or None where no distribution claims it."""

_SYSTEM = ("/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/", "/usr/local/lib/")
_ALSO_OUTSIDE = re.compile(r"lib(cuda|nvidia-[\w-]+|nvcuvid|stdc\+\+|gomp|iomp5|c)\.so\.[\d.]+")


def owners(python: Path) -> OwnerOf:
    """Which distribution claims a path, by the RECORDs of the environment of ``python`` as they are now."""
    try:
        claimed = read(ask(python)).owners
    except EnvironmentFault:  # it went while the run had it; what was loaded is worth recording all the same
        claimed = {}

    def owner_of(path: str) -> str | None:
        claims = claimed.get(path)
        return f"{claims[0][0].name} {claims[0][0].version}" if claims else None

    return owner_of


class LoadedWatch:
    """The libraries of one run: of its environment, of CUDA and its driver, and of the C, C++ and OpenMP runtimes.

    sites  the environment's site-packages
    known  path -> SHA-256 in hexadecimal, of files whose bytes are known; others are hashed beside the run, once each
    """

    def __init__(self, sites: Sequence[str], known: Mapping[str, str] | None = None) -> None:
        self._sites = tuple(f"{site.rstrip('/')}/" for site in sites)
        self._known = dict(known or {})
        self._libraries: dict[tuple[str, str, int], LoadedLibrary | None] = {}  # None: not one to tell of
        self._digests: dict[str, Future[str | None]] = {}
        self._twice: set[str] = set()
        self._hashing = ThreadPoolExecutor(1, thread_name_prefix="loaded", initializer=_give_way)
        self._wait, self._due = FIRST_LOOK_S, FIRST_LOOK_S

    def due(self, now: float) -> bool:
        """Whether to look again ``now``, in seconds since the child began: after 0.5, 1.5, 3.5, ... then every 60."""
        return now >= self._due

    def sample(self, pids: Iterable[int], now: float = 0.0) -> None:
        """Look at the processes ``pids``; one that has ended is passed over. 3 ms for one that has imported torch."""
        for pid in pids:
            copies: dict[str, set[tuple[str, int]]] = {}
            root = root_of(pid)
            for each in mapped_by(pid):
                library = self._library(each, pid, root)
                if library is not None:
                    copies.setdefault(stem(library.name), set()).add((each.device, each.inode))
            self._twice |= {name for name, files in copies.items() if len(files) > 1 and name in TWICE}
        self._wait = min(2 * self._wait, LONGEST_WAIT_S)
        self._due = now + self._wait

    def _library(self, each: Mapped, pid: int, root: str) -> LoadedLibrary | None:
        key = (each.path, each.device, each.inode)
        if key not in self._libraries:
            library = identified(each, pid, root)
            wanted = self._is_of_the_environment(library) or self._is_of_cuda(library)
            self._libraries[key] = library if wanted else None
            if wanted and library.path not in self._known and library.path not in self._digests:
                self._digests[library.path] = self._hashing.submit(_sha256, library)
        return self._libraries[key]

    def _is_of_the_environment(self, library: LoadedLibrary) -> bool:
        return library.path.startswith(self._sites)

    def _is_of_cuda(self, library: LoadedLibrary) -> bool:
        return stem(library.name) in TWICE or _ALSO_OUTSIDE.fullmatch(library.name) is not None

    def facts(self, owner_of: OwnerOf) -> dict[str, Value]:
        """``state.loaded.<library>``: whose file it is, and the beginning of its SHA-256.

        "torch 2.14.1 sha256:0123456789ab"; "system sha256:..."; "outside /usr/local/cuda/lib64 sha256:...". What one
        process has had twice is named in ``state.loaded.twice``. Waits for digests, half a minute at most.
        """
        found: dict[str, Value] = {}
        for library in (library for library in self._libraries.values() if library is not None):
            text = f"{self._origin(library, owner_of)} {self._digest(library)}"
            name = f"state.loaded.{self._name(library)}"
            known = found.get(name)
            found[name] = text if known is None or known == text else f"{known}; {text}"
        if self._twice:
            found["state.loaded.twice"] = ", ".join(sorted(self._twice))
        return dict(sorted(found.items()))

    def close(self) -> None:
        """Give up what is not hashed yet."""
        self._hashing.shutdown(wait=False, cancel_futures=True)

    def _name(self, library: LoadedLibrary) -> str:
        """The soname; of an extension module, whose file name says little, the path from site-packages."""
        if library.name.startswith("lib"):
            return library.name
        site = next((site for site in self._sites if library.path.startswith(site)), "")
        return library.path.removeprefix(site) if site else file_name(library.path)

    def _origin(self, library: LoadedLibrary, owner_of: OwnerOf) -> str:
        owner = owner_of(library.path)
        if owner is not None:
            return owner
        return "system" if library.path.startswith(_SYSTEM) else f"outside {folder_of(library.path)}"

    def _digest(self, library: LoadedLibrary) -> str:
        if is_changed(library):
            return "replaced while it ran"
        digest = self._known.get(library.path)
        if digest is None and library.path in self._digests:
            try:
                digest = self._digests[library.path].result(timeout=HASHING_S)
            except TimeoutError:
                digest = None
        return f"sha256:{digest[:DIGITS]}" if digest else "not read"


def _give_way() -> None:
    """Hash when nobody else wants the processor: on Linux, a thread has a priority of its own."""
    os.nice(19)


def _sha256(library: LoadedLibrary) -> str | None:
    """The digest of the file that is mapped; None where it is gone, replaced, or closed to us."""
    if is_changed(library):
        return None
    try:
        with Path(library.place).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
