"""What an environment was when it was built from its lock: a digest of each distribution's RECORD, kept beside it.

A lock pins wheels and an installed file does not say which wheel it came from. So the builder, which has checked the
wheels' hashes, writes down what their RECORDs were; a wheel of the same version and other bytes is then found, though
it agrees with its own RECORD. Standard library only: the builder runs before anything is installed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

from harness.findings import Finding
from harness.pin.aside import replace_text
from harness.pin.doctor.case import Case
from harness.pin.doctor.installed.dist_info import distributions_in
from harness.pin.doctor.installed.installation import Distribution

FILE = "harness-records.json"

_INSTALLERS_OWN = ("INSTALLER", "REQUESTED", "RECORD", "direct_url.json", "uv_cache.json")


def record_digest(distribution: Distribution) -> str:
    """SHA-256 over what the RECORD says of the files in the site folder, whoever installed them."""
    site, info = distribution.site + "/", distribution.info + "/"
    own = {info + name for name in _INSTALLERS_OWN}
    rows = sorted(
        f"{claim.path.removeprefix(site)},{claim.algorithm}={claim.digest}"
        for claim in distribution.claims
        if claim.algorithm and claim.path.startswith(site) and claim.path not in own  # scripts differ by installer
    )
    return hashlib.sha256("\n".join(rows).encode("utf-8", "surrogateescape")).hexdigest()


def write(folder: Path, site_packages: Path) -> None:
    """Write down what the environment ``folder`` holds, just built from its lock."""
    found = distributions_in(str(site_packages.resolve()), str(folder.resolve()))
    records = {distribution.name: record_digest(distribution) for distribution in found}
    replace_text(folder / FILE, json.dumps(dict(sorted(records.items())), indent=1) + "\n")


def check(case: Case) -> Iterator[Finding]:
    """lock.file: a pinned distribution that is not, file for file, the one that the lock's wheel gave."""
    built = _read(Path(case.installation.layout.prefix) / FILE)
    for name, distribution in case.installation.by_name.items():
        pin, before, now = case.pins.get(name), built.get(name), record_digest(distribution)
        if pin is None or before in (None, now) or distribution.version != pin.version or not distribution.claims:
            continue  # another version is a finding of its own
        yield Finding(
            "lock.file",
            "dangerous",
            name,
            f"{name} {pin.version} is not from the file that its lock pins: the same version with other contents",
            {"records_when_built": str(before), "records_now": now, "installer": distribution.installer},
            case.reinstall(name),
        )


def _read(path: Path) -> dict[str, str]:
    """Nothing for an environment that was built elsewhere, or before this was written down."""
    try:
        records = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return {}
    return records if isinstance(records, dict) else {}
