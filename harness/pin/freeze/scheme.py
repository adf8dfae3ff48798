"""Where a wheel's files lie once it is installed, and which installed files are the installer's own.

Both directions: ``key`` gives a wheel's member and an installed path one name, to compare them; ``member`` says where
in a wheel an installed file belongs. Scheme: https://packaging.python.org/specifications/binary-distribution-format/
"""

from __future__ import annotations

import configparser
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from harness.pin.doctor.installed.installation import Claim, Distribution, Layout
from harness.pin.doctor.installed.read import root_of

_INSTALLERS = frozenset(
    {"INSTALLER", "REQUESTED", "RECORD", "RECORD.jws", "RECORD.p7s"}
    | {"direct_url.json", "provenance_url.json", "uv_cache.json", "uv_build.json"}
)

_HEADERS = re.compile(r"include/(?:site/)?python\d[^/]*/[^/]+/(?P<rest>.+)")

_VERSIONED = {"pip": re.compile(r"pip\d+(\.\d+)?"), "setuptools": re.compile(r"easy_install(-\d+\.\d+)?")}
"""Scripts that pip makes for these two beside those that their entry points name."""


@dataclass(frozen=True)
class Scheme:
    """The folders that one distribution was installed into. Paths are absolute, links in them resolved."""

    site: str
    purelib: str
    platlib: str
    root: str  # what holds bin and share: the virtual environment
    info: str  # the dist-info folder's name

    @property
    def data(self) -> str:
        """The name of the wheel's folder for what lies outside the site."""
        return self.info.removesuffix(".dist-info") + ".data"

    @property
    def scripts(self) -> str:
        return f"{self.root}/bin"

    def key(self, member: str) -> str:
        """The name, from the root, of what the wheel's ``member`` becomes."""
        top, _, rest = member.partition("/")
        kind, _, rest = rest.partition("/")
        if not top.endswith(".data") or not rest:
            return self.key_of_path(f"{self.site}/{member}")
        if kind == "headers":
            return f"headers:{rest}"
        folders = {"purelib": self.purelib, "platlib": self.platlib, "scripts": self.scripts, "data": self.root}
        return self.key_of_path(f"{folders.get(kind, self.root)}/{rest}")

    def key_of_path(self, path: str) -> str:
        """The name of an installed file. Headers are told by what follows the distribution's own folder."""
        relative = os.path.relpath(os.path.normpath(path), self.root)
        header = _HEADERS.fullmatch(relative)
        return f"headers:{header['rest']}" if header else relative

    def member(self, path: str) -> str | None:
        """Where in a wheel the installed file belongs; None for one outside every folder that a wheel can fill."""
        for folder, prefix in (
            (self.site, ""),
            (self.purelib, f"{self.data}/purelib/"),
            (self.platlib, f"{self.data}/platlib/"),
            (self.scripts, f"{self.data}/scripts/"),
            (self.root, f"{self.data}/data/"),
        ):
            if path.startswith(folder + "/"):
                rest = path.removeprefix(folder + "/")
                header = _HEADERS.fullmatch(rest) if folder == self.root else None
                return f"{self.data}/headers/{header['rest']}" if header else prefix + rest
        return None


def scheme(distribution: Distribution, layout: Layout) -> Scheme:
    """The folders of ``distribution``: its site's own, for one outside a virtual environment may be the user's."""
    root = root_of(distribution.site, layout)
    return Scheme(distribution.site, layout.purelib, layout.platlib, root, Path(distribution.info).name)


def claims(distribution: Distribution, layout: Layout) -> tuple[Claim, ...]:
    """What the distribution's wheel brought: its claims without what its installer, or Python, wrote beside them."""
    place = scheme(distribution, layout)
    generated = generated_scripts(distribution, place, [claim.path for claim in distribution.claims])
    return tuple(
        claim
        for claim in distribution.claims
        if not is_bytecode(claim.path)
        and claim.path not in generated
        and not (claim.path.startswith(distribution.info + "/") and Path(claim.path).name in _INSTALLERS)
    )


def is_bytecode(path: str) -> bool:
    """Whether Python makes the file again from its source."""
    return path.endswith(".pyc") and "__pycache__/" in path


def is_installers(member: str) -> bool:
    """Whether the wheel's member is one that an installer writes anew."""
    folder, _, name = member.rpartition("/")
    return folder.endswith(".dist-info") and "/" not in folder and name in _INSTALLERS


def generated_scripts(distribution: Distribution, place: Scheme, paths: Iterable[str]) -> frozenset[str]:
    """Those of ``paths`` that an installer makes from ``entry_points.txt``."""
    names = entry_points(Path(distribution.info) / "entry_points.txt")
    versioned = _VERSIONED.get(distribution.name)

    def is_generated(path: str) -> bool:
        folder, name = os.path.split(path)
        return folder == place.scripts and (name in names or bool(versioned and versioned.fullmatch(name)))

    return frozenset(path for path in paths if is_generated(path))


def entry_points(path: Path) -> frozenset[str]:
    """The names of the scripts in an ``entry_points.txt``; none where there is no such file, or it is not one."""
    parser = configparser.RawConfigParser(delimiters=("=",), strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names keep their case
    try:
        parser.read_string(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, configparser.Error):
        return frozenset()
    sections = [name for name in ("console_scripts", "gui_scripts") if parser.has_section(name)]
    return frozenset(name for section in sections for name in parser.options(section))
