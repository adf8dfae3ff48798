"""Every check, asked of one environment. ``diagnose`` loads this only where it does not remember the answer."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from harness.findings import Diagnosis, Finding
from harness.pin.doctor import memory
from harness.pin.doctor.case import Case, Check, Question
from harness.pin.doctor.checks import against_lock, as_built, files, known, ownership, paths
from harness.pin.doctor.cuda import check as cuda
from harness.pin.doctor.installed import digests
from harness.pin.doctor.installed.digests import Digests, Progress
from harness.pin.doctor.installed.installation import Installation
from harness.pin.doctor.installed.layout import ask
from harness.pin.doctor.installed.read import read
from harness.pin.doctor.installed.stat_cache import StatCache
from harness.pin.doctor.linking import linkage, loaded
from harness.pin.doctor.linking.probe import probe
from harness.pin.doctor.mending import mend
from harness.pin.driver import driver_versions
from harness.places import Places

OF_BYTES: tuple[Check, ...] = (files.check, ownership.check)
OF_STRUCTURE: tuple[Check, ...] = (
    mend.check,
    against_lock.check,
    as_built.check,
    paths.check,
    cuda.check,
    linkage.check,
    known.check,
)
"""These ask for the bytes of contested files alone, so they are made while the others are hashed."""


@dataclass(frozen=True)
class Examined:
    """A diagnosis and the case that it was made of, for whoever mends."""

    case: Case
    diagnosis: Diagnosis


def examine(
    question: Question,
    where: Places,
    progress: Progress | None = None,
    installation: Installation | None = None,
    limit: int | None = None,
) -> Examined:
    """Hash what changed since the last time, and ask every check.

    ``installation``: what was read of the environment already. ``limit``: hash at most so many bytes; what is left
    over is named in ``unchecked``. Raises EnvironmentFault where the Python does not start.
    """
    installation = installation or read(ask(question.python))
    index = memory.index(question.name, installation.layout.prefix, where)
    first = digests.digests(_contested(installation), StatCache.load(index))
    case = _case(question, installation, first)
    with ThreadPoolExecutor(1) as beside:
        structure = beside.submit(_findings, case, OF_STRUCTURE)
        hashed = digests.digests(installation, StatCache.load(index).with_more(first.remembered), progress, limit)
        findings = structure.result()
    case = _case(question, installation, hashed)
    diagnosis = _diagnosis(question, case, (*findings, *_findings(case, OF_BYTES)), hashed)
    try:
        hashed.remembered.save(index)
    except OSError as error:
        diagnosis = replace(diagnosis, unchecked=(*diagnosis.unchecked, memory.not_written(error)))
    return Examined(case, diagnosis)


def _contested(installation: Installation) -> Installation:
    """Only the claims of files that several distributions claim."""
    contested = {path for path, claims in installation.owners.items() if len(claims) > 1}
    claimed = (replace(d, claims=tuple(c for c in d.claims if c.path in contested)) for d in installation.distributions)
    return replace(installation, distributions=tuple(claimed))


def _case(question: Question, installation: Installation, hashed: Digests) -> Case:
    driver, driver_cuda = driver_versions()
    return Case(
        installation=replace(installation, unreadable={**installation.unreadable, **hashed.unreadable}),
        lock=question.lock,
        pins=against_lock.applicable_pins(question.lock, installation.layout) if question.lock else {},
        environment=question.environment,
        digests=hashed.known,
        command=question.command,
        variables=question.variables,
        cwd=question.cwd,
        driver=driver,
        driver_cuda=driver_cuda,
    )


def _findings(case: Case, checks: Sequence[Check]) -> tuple[Finding, ...]:
    return tuple(finding for check in checks for finding in check(case))


def _diagnosis(question: Question, case: Case, findings: tuple[Finding, ...], hashed: Digests) -> Diagnosis:
    left = f"{hashed.left:,} files: their bytes were not read; {question.command} reads them"
    paths = {path for path, _ in hashed.known}
    return Diagnosis(
        python=str(question.python),
        prefix=case.installation.layout.prefix,
        env=question.name,
        lock=question.lock.digest if question.lock else None,
        findings=findings,
        files=len(paths),
        bytes=sum(case.installation.files[path].size for path in paths),
        hashed_bytes=hashed.read_bytes,
        unchecked=(left,) if hashed.left else (),
    ).sorted()


def deepened(question: Question, where: Places, progress: Progress | None = None) -> Diagnosis:
    """The diagnosis with what a process loads: torch, and what is installed of its kind, are imported there once."""
    begun = time.perf_counter()
    examined = examine(question, where, progress)
    case = examined.case
    found = probe(case.installation.layout.python, loaded.MODULES, case.variables, case.cwd or "/")
    return replace(
        examined.diagnosis,
        findings=(*examined.diagnosis.findings, *loaded.check_probe(case, found)),
        loaded=loaded.describe(case, found.libraries),
        seconds=time.perf_counter() - begun,
    ).sorted()
