"""What is installed against what the lock says: which distributions, which versions, which builds, which files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from packaging.markers import InvalidMarker, Marker, UndefinedComparison, UndefinedEnvironmentName
from packaging.version import InvalidVersion, Version

from harness.errors import EnvironmentFault
from harness.findings import Evidence, Finding
from harness.pin.doctor.case import Case, names
from harness.pin.doctor.checks import pth
from harness.pin.doctor.checks.requirements import holds, required_by, runnable_tags, tags_of
from harness.pin.doctor.cuda.check import torch_of
from harness.pin.doctor.installed.installation import Distribution, Layout
from harness.pin.doctor.spelling import printable, quoted
from harness.records import Lock, Pin

_OF_EVERY_VENV = frozenset({"pip", "setuptools", "wheel"})
"""What ``python -m venv`` and virtualenv install by themselves."""


def applicable_pins(lock: Lock, layout: Layout) -> dict[str, Pin]:
    """The pins of ``lock`` whose markers hold for the Python of ``layout`` on this machine, by normalised name.

    Raises EnvironmentFault for a marker that cannot be evaluated.
    """
    pins: dict[str, Pin] = {}
    for pin in lock.pins:
        try:
            if pin.marker is None or holds(Marker(pin.marker), layout):
                pins.setdefault(pin.name, pin)
        except (InvalidMarker, UndefinedComparison, UndefinedEnvironmentName) as error:
            where = f"{lock.path}: the marker of {pin.name} cannot be evaluated: {pin.marker!r}"
            raise EnvironmentFault(f"{where} ({str(error).splitlines()[0]}); write it anew: nox -s lock") from None
    return pins


def check(case: Case) -> Iterator[Finding]:
    """lock.missing, lock.version, lock.build, lock.file, lock.extra."""
    for distribution in case.installation.by_name.values():
        yield from _wrong_machine(case, distribution)
    if case.lock is None:
        return
    for name, pin in case.pins.items():
        installed = case.installation.by_name.get(name)
        if installed is None:
            yield _missing(case, pin)
        elif difference := _version(case, pin, installed) or _source(case, pin, installed) or _torch(case, installed):
            yield difference
    yield from _extras(case)


def _missing(case: Case, pin: Pin) -> Finding:
    summary = f"{pin.name} {pin.version} is in the lock and is not installed"
    return Finding("lock.missing", "broken", pin.name, summary, {"locked": pin.version}, case.reinstall(pin.name))


def _version(case: Case, pin: Pin, installed: Distribution) -> Finding | None:
    """Another version, or another build of the same: equal as PEP 440 has it, the local part included."""
    if not installed.version:  # its dist-info is broken, which is a finding of its own
        return None
    found, locked = _parsed(installed.version), _parsed(pin.version)
    if found == locked:
        return None
    evidence: dict[str, Evidence] = {"installed": installed.version, "locked": pin.version}
    if isinstance(found, Version) and isinstance(locked, Version) and found.public == locked.public:
        summary = f"{pin.name} is the build {installed.version} where the lock has {pin.version}"
        return Finding("lock.build", "dangerous", pin.name, summary, evidence, case.reinstall(pin.name))
    summary = f"{pin.name} is at version {installed.version} where the lock has {pin.version}"
    return Finding("lock.version", "dangerous", pin.name, summary, evidence, case.reinstall(pin.name))


def _parsed(version: str) -> Version | str:
    try:
        return Version(version)
    except InvalidVersion:
        return version


def _source(case: Case, pin: Pin, installed: Distribution) -> Finding | None:
    """Another file than the pin allows, or none, where the installer noted what it installed (PEP 610, PEP 710)."""
    url = _shown_url(installed.direct_url.get("url"))
    evidence: dict[str, Evidence] = {"url": url}
    if installed.editable:
        summary = f"{pin.name} is an editable install of {url or 'a folder'}, not the locked file"
        return Finding("lock.build", "dangerous", pin.name, summary, evidence, case.reinstall(pin.name))
    if "vcs_info" in installed.direct_url or "dir_info" in installed.direct_url:
        summary = f"{pin.name} was built here from {url}, and is not the locked file"
        return Finding("lock.build", "dangerous", pin.name, summary, evidence, case.reinstall(pin.name))
    digest = _recorded_sha256(installed.direct_url)
    if digest is None or f"sha256:{digest}" in pin.hashes:
        return None
    summary = f"{pin.name} was installed from a file that the lock does not allow: {url}"
    evidence |= {"sha256": printable(digest)}
    return Finding("lock.file", "dangerous", pin.name, summary, evidence, case.reinstall(pin.name))


def _recorded_sha256(direct_url: Mapping[str, object]) -> str | None:
    archive = direct_url.get("archive_info")
    if not isinstance(archive, Mapping):
        return None
    hashes = archive.get("hashes")
    if isinstance(hashes, Mapping) and isinstance(digest := hashes.get("sha256"), str):
        return digest.lower()
    algorithm, _, digest = str(archive.get("hash", "")).partition("=")
    return digest.lower() if algorithm == "sha256" else None


def _shown_url(url: object) -> str:
    """An address without the name and password that it may carry."""
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
    except ValueError:  # "http://[": whoever wrote it
        return ""
    return printable(parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl())


def _torch(case: Case, installed: Distribution) -> Finding | None:
    """torch built for another CUDA than the environment's: on PyPI its version does not say."""
    if installed.name != "torch" or case.environment is None:
        return None
    torch, wanted = torch_of(case), case.environment.cuda or ""
    if torch is None or torch.cuda == wanted:
        return None
    built, meant = (f"for CUDA {cuda}" if cuda else "without CUDA" for cuda in (torch.cuda, wanted))
    summary = f"torch is built {built}, and the environment {case.environment.name} is {meant}"
    evidence = {"torch": torch.version, "torch.cuda": torch.cuda, "environment.cuda": wanted}
    return Finding("lock.build", "dangerous", "torch", summary, evidence, case.reinstall("torch"))


def _wrong_machine(case: Case, distribution: Distribution) -> Iterator[Finding]:
    """A wheel for another Python or another machine: --target, a copied folder, a cross-platform download."""
    has = tags_of(distribution)
    if not has or not runnable_tags(case.installation.layout).isdisjoint(has):
        return
    version = case.installation.layout.version
    tag = printable(distribution.tags[0])
    summary = f"{distribution.name} is a wheel for {tag}, which Python {version} on this machine cannot use"
    evidence: dict[str, Evidence] = {"tags": tuple(map(printable, distribution.tags)), "python": version}
    yield Finding("lock.file", "dangerous", distribution.name, summary, evidence, case.reinstall(distribution.name))


def _extras(case: Case) -> Iterator[Finding]:
    """What is installed and not in the lock; what is seen in a folder outside the environment is one finding."""
    extras = [d for name, d in case.installation.by_name.items() if name not in case.pins]
    prefix = case.installation.layout.prefix
    elsewhere: dict[str, list[Distribution]] = {}
    for distribution in extras:
        if distribution.site.startswith(f"{prefix}/"):
            yield _extra(case, distribution)
        else:
            elsewhere.setdefault(distribution.site, []).append(distribution)
    for site, seen in elsewhere.items():
        yield _seen_from_outside(case, site, seen)


def _extra(case: Case, extra: Distribution) -> Finding:
    wanted_by = names(required_by(case.installation, extra.name))
    evidence: dict[str, Evidence] = {"installed": extra.version, "required_by": wanted_by, "installer": extra.installer}
    if extra.name in _OF_EVERY_VENV:
        summary = f"{extra.name} {extra.version} is not in the lock, as in any environment made by venv"
        return Finding("lock.extra", "note", extra.name, summary, evidence)
    reason = f"{', '.join(wanted_by)} asked for it" if wanted_by else "nothing that is installed asks for it"
    summary = f"{extra.name} {extra.version} is installed and not in the lock; {reason}"
    return Finding("lock.extra", "drift", extra.name, summary, evidence, case.uninstall(extra.name))


def _seen_from_outside(case: Case, site: str, seen: list[Distribution]) -> Finding:
    layout = case.installation.layout
    shown = ", ".join(names(seen)[:5]) + (" ..." if len(seen) > 5 else "")
    summary = f"the environment also sees {len(seen)} packages in {printable(site)} that are not in the lock: {shown}"
    evidence: dict[str, Evidence] = {"site": printable(site), "names": names(seen)}
    if file := pth.adding(case, site):
        fix = f"mv {quoted([file])} {quoted([f'{file}.off'])}"
    elif layout.is_venv:
        fix = f"sed -i '/^include-system-site-packages/s/true/false/' {quoted([f'{layout.prefix}/pyvenv.cfg'])}"
    else:
        fix = "export PYTHONNOUSERSITE=1"
    return Finding("lock.extra", "drift", "python", summary, evidence, fix)
