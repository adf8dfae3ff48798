"""A real environment as a case: what a check is given, with digests made here and not by the code under test."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.findings import Finding
from harness.pin.doctor.case import Case
from harness.pin.doctor.checks.against_lock import applicable_pins
from harness.pin.doctor.installed.installation import Installation
from harness.pin.doctor.installed.layout import ask
from harness.pin.doctor.installed.read import read
from harness.pin.locks import pins_digest
from harness.records import Lock, Pin
from tests.pin.doctor.wheels import site_packages


def examined(python: Path, lock: Lock | None = None, bytes_read: bool = True, **fields: Any) -> Case:
    """The case of ``python``'s environment; without ``bytes_read`` it is that of the fast form."""
    installation = read(ask(python))
    pins = applicable_pins(lock, installation.layout) if lock else {}
    digests = digests_of(installation) if bytes_read else {}
    return Case(installation, lock, pins, digests=digests, **{"command": "harness doctor x", **fields})


def unpack(python: Path, *wheels: Path) -> None:
    """Put pure wheels where pip would, with the RECORD that they bring: a second of pip is for what pip decides."""
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site_packages(python))


def digests_of(installation: Installation) -> dict[tuple[str, str], str]:
    """The digest of every claimed file that is there, as a RECORD spells it."""
    digests = {}
    for distribution in installation.distributions:
        for claim in distribution.claims:
            if claim.algorithm and Path(claim.path).is_file():
                found = hashlib.new(claim.algorithm, Path(claim.path).read_bytes()).digest()
                digests[claim.path, claim.algorithm] = base64.urlsafe_b64encode(found).rstrip(b"=").decode()
    return digests


def locked(pins: Mapping[str, str], *wheels: Path, markers: Mapping[str, str] = {}) -> Lock:
    """A lock with ``pins`` by name; the hashes are those of the wheels in ``wheels`` with that name, or of none."""
    made = []
    for name, version in pins.items():
        own = [wheel for wheel in wheels if wheel.name.split("-")[0].replace("_", "-") == name]
        hashes = tuple(f"sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}" for wheel in own)
        made.append(Pin(name, version, hashes or (f"sha256:{'0' * 64}",), markers.get(name)))
    ordered = tuple(sorted(made, key=lambda pin: pin.name))
    return Lock("x", ("3.11", "3.12", "3.13"), pins_digest(ordered), ordered, "envs/x.txt")


def by_kind(findings: tuple[Finding, ...] | list[Finding]) -> dict[str, list[Finding]]:
    kinds: dict[str, list[Finding]] = {}
    for finding in findings:
        kinds.setdefault(finding.kind, []).append(finding)
    return kinds


def listed(finding: Finding, key: str) -> tuple[str, ...]:
    """Evidence that is a list."""
    value = finding.evidence[key]
    assert isinstance(value, tuple)
    return value


def mapped(finding: Finding, key: str) -> Mapping[str, str]:
    """Evidence that is a mapping."""
    value = finding.evidence[key]
    assert isinstance(value, Mapping)
    return value
