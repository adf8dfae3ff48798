"""A case of named versions, and what the check of CUDA finds in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.findings import Finding
from harness.pin.doctor.case import Case
from harness.pin.doctor.cuda import check as cuda
from tests.pin.doctor.placed import place, reading


def case_of(folder: Path, *installed: tuple[str, str], requires: Sequence[str] = (), **fields: Any) -> Case:
    """A case of ``installed`` (name, version); ``requires`` is torch's."""
    site = folder / "site-packages"
    site.mkdir(parents=True)
    for name, version in installed:
        nccl = {"nvidia/nccl/lib/libnccl.so.2": version.encode()} if name.startswith("nvidia-nccl-") else {}
        place(site, name, version, nccl, requires=requires if name == "torch" else ())
    return Case(reading(site), command="harness doctor x", **fields)


def found(case: Case, kind: str) -> list[Finding]:
    return [finding for finding in cuda.check(case) if finding.kind == f"cuda.{kind}"]


def severe(case: Case) -> list[str]:
    return [finding.summary for finding in cuda.check(case) if finding.severity != "note"]
