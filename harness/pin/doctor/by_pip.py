"""The pip commands of the doctor: for the Python that a distribution is installed in, by a pip that can run.

An environment that uv made has no pip, and one whose pip is damaged has none that could be trusted to mend it. The
harness's own then works on it from outside (``--python``).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from harness.pin.doctor.installed.installation import Distribution, Installation, Layout
from harness.pin.doctor.spelling import quoted

_SITE = re.compile(r"(?P<prefix>/.*)/lib(64)?/python[\d.]+/site-packages")
"""The site of a Python, and where that Python is."""

Digests = Mapping[tuple[str, str], str]


class Place(NamedTuple):
    """A folder that pip installs into: a Python, and the options that name another folder than that Python's own."""

    python: str
    into: tuple[str, ...] = ()
    managed: bool = False  # by the system's installer, or by uv: pip asks to be told that it is meant

    @property
    def options(self) -> tuple[str, ...]:
        """Of ``pip install`` and ``pip uninstall`` both."""
        return ("--break-system-packages",) if self.managed else ()

    @property
    def has_uninstall(self) -> bool:
        """pip uninstalls nothing from a folder that is no Python's."""
        return "--target" not in self.into


def own_place(layout: Layout) -> Place:
    """The environment itself."""
    return Place(str(layout.python), managed=not layout.is_venv and _is_managed(layout))


def place_of(layout: Layout, site: str, variables: Mapping[str, str]) -> Place:
    """Where a distribution of the folder ``site`` is to be installed again.

    An environment that is open to others sees what its base has, and the user's own folder; by its own Python pip
    would put a copy into the environment, and leave what is there as it is.
    """
    if site in (layout.purelib, layout.platlib) or site.startswith(layout.prefix.rstrip("/") + "/"):
        return own_place(layout)
    managed = _is_managed(layout)
    version = ".".join(layout.version.split(".")[:2])
    if site == _users_site(version, variables):
        return Place(_base_python(layout, version), ("--user",), managed)
    if site.startswith(layout.base_prefix.rstrip("/") + "/"):
        return Place(_base_python(layout, version), managed=managed)
    match = _SITE.fullmatch(site)
    if match and (python := _python_in(match["prefix"], version)):
        return Place(python)
    return Place(str(layout.python), ("--upgrade", "--target", site))


def pip(installation: Installation, place: Place, names: Collection[str], digests: Digests) -> str:
    """How to call a pip for ``place`` that is not among ``names``, which it is to change."""
    layout = installation.layout
    own = place.python == str(layout.python)
    pips = (d for d in installation.distributions if d.name == "pip")
    there = next((d for d in pips if own or place_of(layout, d.site, {}).python == place.python), None)
    if there is not None and "pip" not in names and _is_whole(installation, there, digests):
        return f"{quoted([place.python])} -m pip"
    return f"{quoted([sys.executable])} -m pip --python {quoted([place.python])}"


def apart(installation: Installation, names: Collection[str]) -> list[list[str]]:
    """Those of ``names`` that pip can uninstall, and those that it refuses to: it knows of no file of theirs."""
    mute = [n for n in names if n in installation.by_name and _is_mute(installation.by_name[n])]
    return [group for group in ([name for name in names if name not in mute], mute) if group]


def _is_mute(distribution: Distribution) -> bool:
    return distribution.info.endswith(".dist-info") and not distribution.claims


def install(installation: Installation, place: Place, wanted: Mapping[str, str], digests: Digests) -> str:
    """The command that installs the requirements ``wanted``, by name, over what is there, and not what they need.

    ``wanted`` is one of the groups of ``apart``.
    """
    by_name = installation.by_name
    over = "--ignore-installed" if any(n in by_name and _is_mute(by_name[n]) for n in wanted) else "--force-reinstall"
    options = " ".join([over, "--no-deps", *place.options, quoted(place.into)]).rstrip()
    return f"{pip(installation, place, wanted, digests)} install {options} {quoted(list(wanted.values()))}"


def uninstall(installation: Installation, place: Place, names: Collection[str], digests: Digests) -> str:
    """The command that takes ``names`` away."""
    return " ".join([pip(installation, place, names, digests), "uninstall", "-y", *place.options, *names])


def _is_whole(installation: Installation, distribution: Distribution, digests: Digests) -> bool:
    """Whether the files of ``distribution`` are there, and as they should be as far as they were read."""
    claims = [c for c in distribution.claims if c.algorithm and c.path.startswith(distribution.site + "/")]
    right = (c.path in installation.files and digests.get((c.path, c.algorithm)) in (None, c.digest) for c in claims)
    return bool(claims) and all(right)


def _users_site(version: str, variables: Mapping[str, str]) -> str:
    base = variables.get("PYTHONUSERBASE") or f"{variables.get('HOME') or Path.home()}/.local"
    return os.path.realpath(f"{base}/lib/python{version}/site-packages")


def _base_python(layout: Layout, version: str) -> str:
    found = _python_in(layout.base_prefix, version) if layout.is_venv else None
    return found or (os.path.realpath(layout.python) if layout.is_venv else str(layout.python))


def _python_in(prefix: str, version: str) -> str | None:
    candidates: Iterable[Path] = (Path(prefix, "bin", name) for name in (f"python{version}", "python3", "python"))
    return next((str(path) for path in candidates if path.exists()), None)


def _is_managed(layout: Layout) -> bool:
    """https://packaging.python.org/en/latest/specifications/externally-managed-environments/"""
    return Path(layout.stdlib, "EXTERNALLY-MANAGED").exists()
