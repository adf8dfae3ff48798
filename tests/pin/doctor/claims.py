"""An environment held against what its RECORDs claim, and the edits that make it differ."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from harness.findings import Finding
from harness.pin.doctor.case import Case
from harness.pin.doctor.checks import files
from harness.pin.doctor.installed.digests import digests
from harness.pin.doctor.installed.layout import ask
from harness.pin.doctor.installed.read import read
from harness.pin.doctor.installed.stat_cache import StatCache

_layout = functools.cache(ask)  # it does not change while files do


def case_of(python: Path, bytes_read: bool = True) -> Case:
    installation = read(_layout(python))
    found = digests(installation, StatCache(), limit_bytes=None if bytes_read else 0)
    installation = replace(installation, unreadable={**installation.unreadable, **found.unreadable})
    return Case(installation, digests=found.known)


def found(python: Path, bytes_read: bool = True) -> list[Finding]:
    """What the check says, once it was seen that all of it can be written as JSON and printed."""
    findings = list(files.check(case_of(python, bytes_read)))
    for finding in findings:
        json.dumps(finding.evidence).encode()
        assert finding.summary.isprintable()
        assert finding.summary.startswith(finding.subject)
        assert bool(finding.fix) == (finding.severity != "note")
    return findings


Change = Callable[[Path], object]


def edit(name: str, data: bytes) -> Change:
    return lambda site: (site / name).write_bytes(data)


def remove(name: str) -> Change:
    return lambda site: (site / name).unlink()
