"""What a process has really loaded: whose each library is, and what is wrong with it."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from harness.findings import Evidence, Finding, Loaded, Severity
from harness.pin.doctor.case import Case
from harness.pin.doctor.cuda.families import FAMILIES
from harness.pin.doctor.installed.installation import Distribution
from harness.pin.doctor.linking.foreign import passed_over
from harness.pin.doctor.linking.ldso import file_name
from harness.pin.doctor.linking.maps import LoadedLibrary, is_changed
from harness.pin.doctor.linking.openings import MOST_NAMED, Replay
from harness.pin.doctor.linking.probe import Failure, Probe

MODULES = ("torch", "torchvision", "torchaudio", "triton", "flash_attn", "xformers", "bitsandbytes")
"""What a probe imports: the modules that bring native code to torch, and import without a GPU."""

_STEM = re.compile(r"(lib.+?)(?:[-.][0-9a-f]{8,})?(?:\.alt)?\.so(?:\.|$)")  # auditwheel puts a hash before the ending


def stem(name: str) -> str:
    """A library's name without its version, and without the hash that makes a wheel's private copy its own."""
    found = _STEM.match(name)
    return found[1] if found else name


def _twice() -> dict[str, Severity]:
    severities: dict[str, Severity] = dict.fromkeys(("libgomp", "libomp", "libiomp5", "libopenblas"), "note")
    severities |= dict.fromkeys(("libstdc++", "libcuda", "libc10", "libc10_cuda", "libtorch_cpu"), "dangerous")
    severities |= dict.fromkeys(("libtorch_cuda", "libtorch_python"), "dangerous")
    for family in FAMILIES.values():
        harm: Severity = "dangerous" if family.search else "note"  # a second CUPTI, as Triton has, waits to be asked
        for member in family.members.values():
            severities |= {stem(name): harm for name in member.libraries}
    return severities


TWICE = _twice()
"""How bad two copies of one library in one process are. Those of CUDA, torch and the C++ runtime keep state that must
be one: handles of the one mean nothing to the other. Two OpenMP runtimes only start twice the threads."""


def describe(case: Case, libraries: Iterable[LoadedLibrary]) -> tuple[Loaded, ...]:
    """Each of ``libraries`` with the digest of its bytes, its owner, and what the lock says of that."""
    replay = Replay(case)
    return tuple(_described(case, library, replay.owner(library.path)) for library in libraries)


def _described(case: Case, library: LoadedLibrary, owner: Distribution | None) -> Loaded:
    pin = case.pins.get(owner.name) if owner else None
    return Loaded(
        library.path,
        library.name,
        library.build_id,
        _sha256(case, library),
        owner.name if owner else "",
        owner.version if owner else "",
        (pin is not None and pin.version == owner.version) if owner and case.lock else None,
    )


def _sha256(case: Case, library: LoadedLibrary) -> str | None:
    """Of the file that is mapped; what the doctor has hashed already is not read again."""
    if is_changed(library):
        return None
    if spelled := case.digests.get((library.path, "sha256")):
        return base64.urlsafe_b64decode(f"{spelled}=").hex()
    try:
        with Path(library.place).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def check_loaded(case: Case, libraries: Sequence[LoadedLibrary]) -> Iterator[Finding]:
    """What is wrong with the libraries that one process has."""
    replay = Replay(case)
    yield from _foreign(replay, libraries)
    yield from _loaded_twice(replay, libraries)
    yield from _changed(replay, libraries)


def check_probe(case: Case, found: Probe) -> Iterator[Finding]:
    """What failed when a process imported modules, and what is wrong with what it loaded."""
    for failure in found.failures:
        yield _import_failed(case, failure)
    yield from check_loaded(case, found.libraries)


def _import_failed(case: Case, failure: Failure) -> Finding:
    name = failure.module.replace("_", "-")
    subject = name if name in case.installation.by_name else "python"
    summary = f"{failure.module} cannot be imported: {failure.error}"
    evidence: dict[str, Evidence] = {"module": failure.module, "error": failure.error, "output": failure.output}
    fix = case.reinstall(subject) if subject != "python" else ""
    return Finding("link.unresolved", "broken", subject, summary, evidence, fix)


def _foreign(replay: Replay, libraries: Sequence[LoadedLibrary]) -> Iterator[Finding]:
    groups: dict[str, dict[str, tuple[LoadedLibrary, str]]] = {}
    for library in libraries:
        meant = passed_over(replay, library.path, library.name, None)
        if meant is not None and not library.deleted:
            groups.setdefault(meant[0], {})[library.name] = (library, meant[1])
    shown = replay.case.installation.shown
    for subject, found in groups.items():
        name, (library, _) = next(iter(found.items()))
        summary = f"{subject}'s {name} is not what was loaded: the process has {shown(library.path)}"
        evidence: dict[str, Evidence] = {
            "count": len(found),
            "loaded": {name: shown(library.path) for name, (library, _) in list(found.items())[:MOST_NAMED]},
            "expected": {name: shown(path) for name, (_, path) in list(found.items())[:MOST_NAMED]},
            "build_ids": {name: library.build_id for name, (library, _) in list(found.items())[:MOST_NAMED]},
        }
        fix = _without(replay, library)
        yield Finding("loaded.foreign", "dangerous", subject, summary, evidence, fix)


def _without(replay: Replay, library: LoadedLibrary) -> str:
    owner = replay.owner(library.path)
    if owner is not None:
        return replay.case.uninstall(owner.name)
    return "unset LD_LIBRARY_PATH LD_PRELOAD"


def _loaded_twice(replay: Replay, libraries: Sequence[LoadedLibrary]) -> Iterator[Finding]:
    groups: dict[str, dict[tuple[str, int], LoadedLibrary]] = {}
    for library in libraries:
        groups.setdefault(stem(library.name), {}).setdefault((library.device, library.inode), library)
    shown = replay.case.installation.shown
    for name, copies in groups.items():
        severity = TWICE.get(name)
        if len(copies) < 2 or severity is None:
            continue
        owners = {library.path: replay.owner(library.path) for library in copies.values()}
        subject = next((owner.name for owner in owners.values() if owner is not None), "python")
        paths = tuple(shown(path) for path in owners)
        summary = f"{subject}'s {name} is loaded twice by one process: {' and '.join(paths[:2])}"
        evidence: dict[str, Evidence] = {
            "paths": paths,
            "owners": {shown(path): owner.name for path, owner in owners.items() if owner is not None},
            "build_ids": {shown(library.path): library.build_id for library in copies.values()},
        }
        strangers = [library for library in copies.values() if owners[library.path] is None]
        fix = "" if severity == "note" else _without(replay, (strangers or list(copies.values()))[-1])
        yield Finding("loaded.twice", severity, subject, summary, evidence, fix)


def _changed(replay: Replay, libraries: Sequence[LoadedLibrary]) -> Iterator[Finding]:
    groups: dict[str, list[LoadedLibrary]] = {}
    for library in libraries:
        owner = replay.owner(library.path)
        # pip moves what it replaces out of the way before it deletes it, and the mapping moves with it.
        moved = passed_over(replay, library.path, library.name, None) if library.deleted else None
        if (owner or moved or stem(library.name) in TWICE) and is_changed(library):
            groups.setdefault(owner.name if owner else moved[0] if moved else "python", []).append(library)
    for subject, changed in groups.items():
        name = file_name(changed[0].path)
        others = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        summary = (
            f"{subject}'s {name}{others} was replaced under a process that goes on with the old one: start it again"
        )
        paths = tuple(replay.case.installation.shown(library.path) for library in changed)
        evidence: dict[str, Evidence] = {"count": len(paths), "paths": paths[:MOST_NAMED]}
        yield Finding("loaded.changed", "broken", subject, summary, evidence)
