"""Fetch locked distributions into a folder beside the environment, file for file as they will lie in it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from packaging.version import InvalidVersion, Version

from harness.errors import EnvironmentFault
from harness.pin import venvs
from harness.pin.aside import Say
from harness.pin.doctor.case import Case, is_husk
from harness.pin.doctor.installed.digests import ALGORITHMS, digests
from harness.pin.doctor.installed.installation import Claim, Distribution, Installation, Layout
from harness.pin.doctor.installed.read import read
from harness.pin.doctor.installed.stat_cache import StatCache
from harness.records import Pin


def stage(case: Case, pins: Sequence[Pin], folder: Path, uv: Path, lock_fd: int, say: Say) -> Installation:
    """Install ``pins`` under ``folder``, which is empty, and check every byte against their RECORDs.

    uv's cache is asked first. It may be damaged: an environment that uv has hard-linked from it shares its files.
    Raises EnvironmentFault where it cannot be done.
    """
    target = _target(case, pins)
    layout = _moved(case.installation.layout, folder)
    wrong: str | None = None
    for options in ((), ("--no-cache",)):
        shutil.rmtree(folder)
        folder.mkdir()
        arguments = (*options, *_place(target, folder), "-r", _wanted(pins, folder.with_name("wanted.txt")))
        if not venvs.install(target, case.environment, uv, lock_fd, *arguments):
            what = ", ".join(pin.name for pin in pins[:5]) + (" ..." if len(pins) > 5 else "")
            raise EnvironmentFault(f"uv could not fetch {what}: its own words are above; nothing was changed")
        staged = read(layout)
        wrong = next(faults(staged, {pin.name: pin for pin in pins}, pins), None)
        if wrong is None:
            return staged
        if not options:
            say(f"{wrong}: what uv keeps in its cache may be damaged; fetching it again")
    raise EnvironmentFault(f"{wrong}, fetched again or not; nothing was changed")


def _target(case: Case, pins: Sequence[Pin]) -> venvs.Built:
    """The environment as its builder sees it, with a lock of ``pins`` alone."""
    assert case.lock is not None
    layout, name = case.installation.layout, case.environment.name if case.environment else ""
    version = ".".join(layout.version.split(".")[:2])
    lock = replace(case.lock, pins=tuple(pins))
    return venvs.Built(name, Path(layout.prefix), layout.python, Path(layout.purelib), version, lock)


def _moved(layout: Layout, folder: Path) -> Layout:
    """``layout`` with ``folder`` in place of its prefix."""
    moved = [str(folder / Path(site).relative_to(layout.prefix)) for site in (layout.purelib, layout.platlib)]
    sites = tuple(dict.fromkeys(moved))
    return replace(layout, prefix=str(folder), sites=sites, purelib=moved[0], platlib=moved[1], path=())


def _wanted(pins: Sequence[Pin], path: Path) -> Path:
    """The requirements file for uv."""
    lines = [f"{pin.name}=={pin.version} {' '.join(f'--hash={h}' for h in pin.hashes)}\n" for pin in pins]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def _place(target: venvs.Built, folder: Path) -> tuple[str | Path, ...]:
    """The arguments that make uv install under ``folder`` the very bytes that it would install in ``target``."""
    if (lib64 := target.folder / "lib64").is_symlink():
        (folder / "lib64").symlink_to(lib64.readlink())
    if not _is_relocatable(target.folder):
        return "--prefix", folder, "--python", target.python
    # Scripts that find their Python beside them are written only in a virtual environment that says so of itself.
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(target.python)
    shutil.copyfile(target.folder / "pyvenv.cfg", folder / "pyvenv.cfg")
    return "--python", folder / "bin" / "python"


def _is_relocatable(folder: Path) -> bool:
    try:
        lines = (folder / "pyvenv.cfg").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return False
    settings = {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in lines)}
    return settings.get("relocatable") == "true"


def faults(installation: Installation, locked: Mapping[str, Pin], pins: Sequence[Pin]) -> Iterator[str]:
    """What is wrong with the distributions of ``pins``: absent, another version, or bytes that their RECORD denies.

    Where two of ``locked`` claim a path with different bytes, either's are right: the lock does not say whose.
    """
    names = {pin.name for pin in pins}
    concerned = tuple(d for d in installation.distributions if d.name in names)
    known = digests(replace(installation, distributions=concerned), StatCache()).known
    for pin in pins:
        found = [d for d in concerned if d.name == pin.name and not is_husk(installation, d)]
        if len(found) != 1 or not _same_version(found[0].version, pin.version) or not found[0].claims:
            what = " and ".join(f"{d.name} {d.version or 'without a version'}" for d in found) or "nothing"
            yield f"where {pin.name} {pin.version} should be is {what}"
            continue
        wrong = [claim for claim in found[0].claims if not _is_right(claim, installation, known, locked)]
        if wrong:
            shown = installation.shown(wrong[0].path)
            yield f"{len(wrong)} files of {pin.name} {pin.version} are not what its RECORD says, {shown} for one"


def _same_version(found: str, locked: str) -> bool:
    try:
        return Version(found) == Version(locked)
    except InvalidVersion:
        return found == locked


def _is_right(
    claim: Claim, installation: Installation, known: Mapping[tuple[str, str], str], locked: Mapping[str, Pin]
) -> bool:
    if not claim.algorithm:
        return claim.path in installation.files or claim.path.endswith(".pyc")
    if claim.algorithm not in ALGORITHMS:
        return False
    owners: tuple[tuple[Distribution, Claim], ...] = installation.owners.get(claim.path, ())
    right = {theirs.digest for owner, theirs in owners if owner.name in locked}
    return known.get((claim.path, claim.algorithm)) in {claim.digest, *right}
