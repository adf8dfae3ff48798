"""Every native library of an environment, opened as its Python would: the replay that the checks of linkage read."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from harness.pin.doctor.case import Case
from harness.pin.doctor.checks.requirements import required_by
from harness.pin.doctor.cuda.families import family_of
from harness.pin.doctor.installed.installation import Claim, Distribution, Stat
from harness.pin.doctor.linking.elf import Elf
from harness.pin.doctor.linking.elf_file import BrokenElf
from harness.pin.doctor.linking.ldso import Opening, Process, Search, file_name
from harness.pin.doctor.linking.torch_process import imported

MOST_NAMED = 20
"""How many libraries a finding of linkage names; it counts them all."""

_LIBRARY = re.compile(r"\.so(\.[\w.-]+)?$")
_OF_TORCH = ("libtorch", "libc10")


@dataclass(frozen=True)
class Replay:
    """What the loader would do with the libraries of ``case``."""

    case: Case

    @cached_property
    def search(self) -> Search:
        case = self.case
        return Search(os.path.realpath(case.installation.layout.python), case.variables, case.cwd or "/")

    @cached_property
    def libraries(self) -> tuple[str, ...]:
        """The paths of all native libraries that are installed, links left out."""
        files = self.case.installation.files
        return tuple(sorted(path for path in files if _LIBRARY.search(path) and not _is_link(files[path])))

    @cached_property
    def damaged(self) -> dict[str, str]:
        """What is wrong with each library that cannot be loaded at all."""
        elves = ((path, self.search.elf(path)) for path in self.libraries)
        return {path: str(elf) for path, elf in elves if isinstance(elf, BrokenElf)}

    @cached_property
    def by_file_name(self) -> dict[str, tuple[str, ...]]:
        """The paths of the installed libraries by file name, which for all but links is what others ask for."""
        found: dict[str, tuple[str, ...]] = {}
        for path in self.libraries:
            found[file_name(path)] = (*found.get(file_name(path), ()), path)
        return found

    @cached_property
    def openings(self) -> tuple[Opening, ...]:
        """One for each library that is not there already: torch first, then what needs torch, each in its own process.

        Extension modules come before plain libraries: those are mostly brought by them, and not opened again.
        """
        start = Process.started(self.search)
        torch_folder = self._torch_folder()
        torch = imported(start, torch_folder, self._sys_path()) if torch_folder else None
        openings = list(torch.openings) if torch else []
        seen = {library.path for opening in openings for library in opening.libraries}
        for path in sorted(self.libraries, key=lambda path: (file_name(path).startswith("lib"), path)):
            elf = self.search.elf(path)
            if path in seen or not isinstance(elf, Elf):
                continue
            process = torch.process if torch and self._wants_torch(path, elf) else start
            opening = process.copy().open(path)
            openings.append(opening)
            seen |= {library.path for library in opening.libraries}
        return tuple(openings)

    def owners(self, path: str) -> tuple[Distribution, ...]:
        """The distributions that claim ``path``."""
        return tuple(distribution for distribution, _ in self._claims(path))

    def owner(self, path: str) -> Distribution | None:
        """The one that ``path`` is counted to: of several, whose bytes are there, else one that the lock has."""
        claims = self._claims(path)
        digests = [(distribution, claim.digest == self.case.digest(claim)) for distribution, claim in claims]
        of_bytes = (distribution for distribution, is_there in digests if is_there)
        of_lock = (distribution for distribution, _ in claims if distribution.name in self.case.pins)
        return next(of_bytes, None) or next(of_lock, None) or next((found for found, _ in claims), None)

    def _claims(self, path: str) -> tuple[tuple[Distribution, Claim], ...]:
        owners = self.case.installation.owners
        return owners.get(path) or owners.get(os.path.realpath(path), ())

    def is_inside(self, path: str) -> bool:
        """Whether the environment holds ``path``."""
        real = os.path.realpath(path)
        return path in self.case.installation.files or real in self.case.installation.files or bool(self.owners(path))

    def _torch_folder(self) -> Path | None:
        folders = (Path(site) / "torch" for site in self.case.installation.layout.sites)
        return next((folder for folder in folders if str(folder / "__init__.py") in self.case.installation.files), None)

    def _sys_path(self) -> tuple[str, ...]:
        before = self.case.variables.get("PYTHONPATH", "")
        return (*(entry for entry in before.split(":") if entry), *self.case.installation.layout.path)

    def _wants_torch(self, path: str, elf: Elf) -> bool:
        """Whether ``path`` is opened in a process that has torch: what is linked to it, and whose owner asks for it."""
        return any(name.startswith(_OF_TORCH) for name in elf.needed) or self.goes_with_torch(path)

    def goes_with_torch(self, path: str) -> bool:
        """Whether ``path`` is of torch, of NVIDIA, or of a distribution that requires torch."""
        owner = self.owner(path)
        return owner is not None and (owner.name in self._with_torch or family_of(owner.name) is not None)

    @cached_property
    def _with_torch(self) -> frozenset[str]:
        return frozenset({"torch", "triton", *(each.name for each in required_by(self.case.installation, "torch"))})


def _is_link(found: Stat) -> bool:
    return stat.S_ISLNK(found.mode)
