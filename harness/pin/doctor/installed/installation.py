"""What an environment's files say of themselves: the records that every check of the doctor reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple


class Stat(NamedTuple):
    """What ``lstat`` says of a file; equal for one that nobody touched."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    mode: int


class Claim(NamedTuple):
    """One row of a RECORD: a file that a distribution says is its own."""

    path: str  # absolute and normalised
    algorithm: str  # "sha256"; "" where the row carries no hash
    digest: str  # as RECORD spells it: URL-safe base64 without padding
    size: int | None


@dataclass(frozen=True)
class Layout:
    """Where a Python keeps what is installed. Paths are absolute; links in the folders are resolved."""

    python: Path
    version: str  # "3.11.7"
    prefix: str  # of the virtual environment, or of the interpreter itself
    base_prefix: str
    sites: tuple[str, ...]  # purelib, then platlib where it is another folder, then others on sys.path with packages
    purelib: str
    platlib: str
    stdlib: str
    path: tuple[str, ...]  # sys.path of an isolated start, PYTHONPATH and the current folder left out

    @property
    def is_venv(self) -> bool:
        return self.prefix != self.base_prefix


@dataclass(frozen=True)
class Distribution:
    """One ``dist-info`` folder (or egg-info), as it stands."""

    name: str  # normalised; from the folder's name where METADATA has none
    version: str  # "" where neither says
    info: str  # the folder, absolute
    site: str  # the site folder that it stands in
    claims: tuple[Claim, ...] = ()
    requires: tuple[str, ...] = ()  # Requires-Dist, as written
    tags: tuple[str, ...] = ()  # of WHEEL: "cp311-cp311-manylinux_2_28_x86_64"
    build: str = ""  # the wheel's build tag
    installer: str = ""  # "uv", "pip", "conda"; "" where it is not recorded
    direct_url: Mapping[str, object] = field(default_factory=dict)  # direct_url.json or provenance_url.json
    editable: bool = False
    outside: tuple[str, ...] = ()  # rows whose path leaves the environment, as RECORD spells them
    problems: tuple[str, ...] = ()  # "METADATA is missing", "RECORD is not UTF-8: read as Latin-1"


@dataclass(frozen=True)
class Installation:
    """An environment as its files tell it; nothing of it was imported."""

    layout: Layout
    distributions: tuple[Distribution, ...]  # sorted by name
    files: Mapping[str, Stat]  # every file under the sites but for __pycache__, and every claimed file elsewhere
    unreadable: Mapping[str, str] = field(default_factory=dict)  # path -> why it could not be listed or read

    @cached_property
    def by_name(self) -> Mapping[str, Distribution]:
        """Each distribution by its normalised name; of several with one name, the one that Python would find."""
        found: dict[str, Distribution] = {}
        for distribution in self.distributions:
            found.setdefault(distribution.name, distribution)
        return found

    @cached_property
    def owners(self) -> Mapping[str, tuple[tuple[Distribution, Claim], ...]]:
        """Who claims each path: almost always one distribution."""
        owners: dict[str, list[tuple[Distribution, Claim]]] = {}
        for distribution in self.distributions:
            for claim in distribution.claims:
                owners.setdefault(claim.path, []).append((distribution, claim))
        return {path: tuple(claims) for path, claims in owners.items()}

    def shown(self, path: str) -> str:
        """``path`` as a person wants it: from the environment's root."""
        return path.removeprefix(self.layout.prefix.rstrip("/") + "/")
