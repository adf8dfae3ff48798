"""Every check, asked of one environment. ``diagnose`` loads this only where it does not remember the answer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from harness.findings import Diagnosis, Finding
from harness.pin.doctor import (
    against_lock,
    as_built,
    cuda,
    digests,
    files,
    known,
    linkage,
    loaded,
    memory,
    mend,
    ownership,
    paths,
)
from harness.pin.doctor.case import Case, Check, Question
from harness.pin.doctor.digests import Digests, Progress
from harness.pin.doctor.installation import Installation
from harness.pin.doctor.layout import ask
from harness.pin.doctor.read import read
from harness.pin.doctor.stat_cache import StatCache
from harness.pin.driver import driver_versions
from harness.places import Places

CHECKS: tuple[Check, ...] = (
    mend.check,
    against_lock.check,
    as_built.check,
    files.check,
    ownership.check,
    paths.check,
    cuda.check,
    linkage.check,
    known.check,
)


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
    index = memory.folder(question.name, installation.layout.prefix, where) / "index"
    cache = StatCache.load(index)
    hashed = digests.digests(installation, cache, progress, limit)
    hashed.remembered.save(index)
    driver, driver_cuda = driver_versions()
    case = Case(
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
    return Examined(case, _diagnosis(question, case, tuple(_findings(case)), hashed))


def _findings(case: Case) -> Iterator[Finding]:
    for check in CHECKS:
        yield from check(case)


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


def deepened(diagnosis: Diagnosis, question: Question, where: Places) -> Diagnosis:
    """``diagnosis`` and what a process loads: torch, and what is installed of its kind, are imported there once."""
    begun = time.perf_counter()
    case = examine(question, where).case
    deep = tuple(loaded.check_probe(case))
    seconds = diagnosis.seconds + time.perf_counter() - begun
    return replace(diagnosis, findings=(*diagnosis.findings, *deep), seconds=seconds).sorted()
