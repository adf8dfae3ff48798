"""One diagnosis: read the environment, hash what changed, ask every check, and remember the answer.

The answer is remembered beside what it depends on (``_key``): the stat of every file, the lock, what the process
would be started with, and the doctor itself. As long as none of it moves, the environment is walked and nothing else.
"""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.findings import Diagnosis, Finding
from harness.pin.aside import replace_text
from harness.pin.doctor import (
    against_lock,
    as_built,
    cuda,
    digests,
    files,
    known,
    linkage,
    loaded,
    mend,
    ownership,
    paths,
    read,
    tree,
)
from harness.pin.doctor.case import Case, Check
from harness.pin.doctor.digests import Digests, Progress
from harness.pin.doctor.installation import Installation, Layout, Stat
from harness.pin.doctor.layout import ask
from harness.pin.doctor.stat_cache import StatCache, moment, settled
from harness.pin.driver import driver_versions
from harness.pin.fingerprint import variable_facts
from harness.places import Places
from harness.records import Environment, Lock, digest

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
class Question:
    """What to diagnose, and against what.

    command    what asks it, for the mending commands: "harness doctor cu130"
    variables  and cwd: of the process that would run in the environment
    """

    python: Path
    lock: Lock | None = None
    environment: Environment | None = None
    command: str = "harness doctor"
    variables: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    cwd: str = field(default_factory=os.getcwd)

    @property
    def name(self) -> str:
        return self.environment.name if self.environment else ""


@dataclass(frozen=True)
class Examined:
    """A diagnosis and the case that it was made of, for whoever mends."""

    case: Case
    diagnosis: Diagnosis


def diagnose(
    question: Question, where: Places, progress: Progress | None = None, limit: int | None = None
) -> Diagnosis:
    """Everything that is wrong with the environment; from memory where nothing has changed since.

    ``limit``: hash at most so many bytes; what is left over is named in ``unchecked``.
    Raises EnvironmentFault where the Python does not start.
    """
    begun, at = time.perf_counter(), moment()
    layout = ask(question.python)
    walked = tree.walk(layout)
    memory = _memory(question.name, layout.prefix, where) / "diagnosis.json"
    if remembered := _recall(memory, question, layout, walked.files):
        return replace(remembered, hashed_bytes=0, seconds=time.perf_counter() - begun)
    installation = read.read(layout, walked)
    examined = _examine(question, installation, where, progress, limit)
    diagnosis = replace(examined.diagnosis, seconds=time.perf_counter() - begun)
    if not diagnosis.unchecked and all(settled(stat, at) for stat in installation.files.values()):
        elsewhere = sorted(installation.files.keys() - walked.files.keys())
        key = _key(question, layout, walked.files, elsewhere)
        data = {"key": key, "elsewhere": elsewhere, "diagnosis": diagnosis.to_json()}
        replace_text(memory, json.dumps(data))
    return diagnosis


def examine(question: Question, where: Places, progress: Progress | None = None) -> Examined:
    """The same, not from memory, with the case that the checks saw."""
    return _examine(question, read.read(ask(question.python)), where, progress, None)


def _examine(
    question: Question, installation: Installation, where: Places, progress: Progress | None, limit: int | None
) -> Examined:
    index = _memory(question.name, installation.layout.prefix, where) / "index"
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


def known_sha256(diagnosis: Diagnosis, where: Places) -> dict[str, str]:
    """path -> SHA-256 in hexadecimal, of the files whose bytes were read for ``diagnosis`` or before it."""
    index = StatCache.load(_memory(diagnosis.env, diagnosis.prefix, where) / "index")
    found = ((path, spelled) for (path, algorithm), spelled in index.digests.items() if algorithm == "sha256")
    return {path: base64.urlsafe_b64decode(f"{spelled}=").hex() for path, spelled in found}


def _memory(name: str, prefix: str, where: Places) -> Path:
    """The folder that remembers this environment; one for each, wherever it is."""
    folder = where.state / "doctor" / f"{name or Path(prefix).name}-{digest(prefix)[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _recall(memory: Path, question: Question, layout: Layout, found: Mapping[str, Stat]) -> Diagnosis | None:
    try:
        data = json.loads(memory.read_text(encoding="utf-8"))
        unchanged = data["key"] == _key(question, layout, found, data["elsewhere"])
        return Diagnosis.from_json(data["diagnosis"]) if unchanged else None
    except (FileNotFoundError, json.JSONDecodeError, KeyError, TypeError):
        return None  # none yet, or another version's: it is made anew


def _key(question: Question, layout: Layout, found: Mapping[str, Stat], elsewhere: Sequence[str]) -> str:
    """Everything that the answer depends on; whatever may change it changes this.

    ``elsewhere``: the files that RECORDs claim outside the folders that were walked, scripts for the most part.
    """
    searched = [question.cwd, *known.SYSTEM_FOLDERS]
    for name in ("PYTHONPATH", "LD_LIBRARY_PATH", "LD_PRELOAD"):
        searched += [entry for entry in question.variables.get(name, "").split(os.pathsep) if entry]
    return digest(
        {
            "files": tree.signature(found),
            "elsewhere": tree.signature(tree.stats(elsewhere, {})),
            "python": [str(question.python), layout.version, list(layout.path)],
            "lock": question.lock.digest if question.lock else None,
            "environment": repr(question.environment),
            "command": question.command,
            "variables": {**variable_facts(question.variables), "home": question.variables.get("PYTHONHOME")},
            "searched": [[place, _stamp(place)] for place in searched],
            "linker": _stamp("/etc/ld.so.cache"),
            "driver": driver_versions(),
            "marks": [_stamp(f"{layout.prefix}/{name}") for name in (as_built.FILE, mend.FOLDER)],
            "doctor": _own_version(),
        }
    )


def _stamp(place: str) -> list[int] | None:
    """What tells that a file or a folder's list of names has changed; None where it is not there."""
    try:
        stat = os.stat(place)  # noqa: PTH116 (a string is enough)
    except OSError:
        return None
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]


def _own_version() -> list[list[int] | None]:
    """The doctor's own files: another rule may give another answer."""
    return [_stamp(str(path)) for path in sorted(Path(__file__).parent.iterdir()) if path.is_file()]
