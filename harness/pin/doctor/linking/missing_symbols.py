"""Whether the libraries that are found have what is needed of them: symbol versions, and the symbols of CUDA and torch.

A missing version stops the load of a library at once. A missing symbol without one stops it too, or, where it is bound
when it is first called, stops the program there: both are "undefined symbol" to who trains a model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement

from harness.findings import Evidence, Finding
from harness.pin.doctor.cuda.families import family_of
from harness.pin.doctor.installed.installation import Distribution
from harness.pin.doctor.linking.elf_file import BrokenElf
from harness.pin.doctor.linking.foreign import way_around
from harness.pin.doctor.linking.ldso import Loaded, Opening, Process, file_name
from harness.pin.doctor.linking.openings import MOST_NAMED, Replay
from harness.pin.doctor.linking.symbols import Symbols, read_symbols
from harness.pin.locks import normalise

WHOSE = {
    "nccl": "libnccl",
    "cudnn": "libcudnn",
    "cublas": "libcublas",
    "cublasLt": "libcublasLt",
    "cusparse": "libcusparse",
    "cusparseLt": "libcusparseLt",
    "cusolver": "libcusolver",
    "cufft": "libcufft",
    "curand": "libcurand",
    "nvshmem": "libnvshmem",
    "nvJitLink": "libnvJitLink",
    "__nvJitLink": "libnvJitLink",
    "_ZN3c10": "libc10",
    "_ZNK3c10": "libc10",
    "_ZN2at": "libtorch",
    "_ZNK2at": "libtorch",
    "_ZN5torch": "libtorch",
    "_ZNK5torch": "libtorch",
}
"""The beginning of a symbol's name -> that of the library's; the longest that fits. The C++ ones are the namespaces
c10, at and torch, mangled: an extension that was built for another torch asks for them in vain."""


@dataclass(frozen=True)
class _Gap:
    """Something that one library needs of another, which that one does not define."""

    what: str  # a version, or a symbol
    needer: str
    provider: str


def undefined(replay: Replay) -> Iterator[Finding]:
    """One finding for each distribution with a library that needs what another lacks."""
    groups: dict[str, dict[_Gap, None]] = {}
    tables = _Tables()
    for opening in replay.openings:
        for library in opening.libraries:
            owner = replay.owner(library.path) if replay.is_inside(library.path) else None
            if owner is not None:
                gaps = (*_versions(opening.process, library), *_symbols(opening, library, tables))
                groups.setdefault(owner.name, {}).update(dict.fromkeys(gaps))
    for subject, found in groups.items():
        if found:
            yield _finding(replay, subject, list(found))


class _Tables(dict[str, Symbols | None]):
    """The symbols of each library that anybody could lack, read once; None where they cannot be read."""

    def __missing__(self, path: str) -> Symbols | None:
        try:
            self[path] = read_symbols(path, tuple(WHOSE))
        except (BrokenElf, OSError):  # damaged further in than its loading shows: the bytes' own check says so
            self[path] = None
        return self[path]


def _versions(process: Process, library: Loaded) -> Iterator[_Gap]:
    """As ld.so checks them: a library without any versions satisfies every need."""
    for name, versions in library.elf.needed_versions.items():
        provider = process.names.get(name)
        if provider is not None and provider.elf.defined_versions:
            for version in versions:
                if version not in provider.elf.defined_versions:
                    yield _Gap(version, library.path, provider.path)


def _symbols(opening: Opening, library: Loaded, tables: _Tables) -> Iterator[_Gap]:
    """Only where all that was needed was found, and where a library of the family is there to be blamed.

    Every library of the process is asked, though the loader asks fewer: a gap is one beyond doubt.
    """
    own = tables[library.path]
    if opening.failures or own is None or not own.undefined:
        return
    left = own.undefined
    for each in opening.process.loaded:
        table = tables[each.path]
        if table is None:
            return
        left -= table.defined
    for family, names in _by_family(left).items():
        blamed = (each for each in opening.process.loaded if file_name(each.path).startswith(family))
        provider = next(blamed, None)
        if provider is not None:
            yield from (_Gap(name, library.path, provider.path) for name in sorted(names))


def _by_family(names: frozenset[str]) -> dict[str, frozenset[str]]:
    prefixes = sorted(WHOSE, key=len, reverse=True)
    families: dict[str, set[str]] = {}
    for name in names:
        families.setdefault(WHOSE[next(prefix for prefix in prefixes if name.startswith(prefix))], set()).add(name)
    return {family: frozenset(found) for family, found in families.items()}


def _finding(replay: Replay, subject: str, gaps: list[_Gap]) -> Finding:
    shown, first = replay.case.installation.shown, gaps[0]
    owner = replay.owner(first.provider)
    whose = f"{owner.name}'s {file_name(first.provider)}" if owner else shown(first.provider)
    missing = tuple(dict.fromkeys(gap.what for gap in gaps))
    others = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    summary = f"{subject} needs {first.what}{others}, which {whose} does not have"
    evidence: dict[str, Evidence] = {
        "count": len(missing),
        "missing": missing[:MOST_NAMED],
        "needed_by": {gap.what: shown(gap.needer) for gap in gaps[:MOST_NAMED]},
        "looked_in": {gap.what: shown(gap.provider) for gap in gaps[:MOST_NAMED]},
    }
    return Finding("link.symbol-version", "broken", subject, summary, evidence, _fix(replay, subject, gaps))


def _fix(replay: Replay, subject: str, gaps: list[_Gap]) -> str:
    """Without a lock, what the subject itself requires is right: torch names its NCCL to the last digit.

    A provider from outside the environment is no better for an installation: the loader has to pass it by.
    """
    case = replay.case
    strangers = dict.fromkeys(gap.provider for gap in gaps if not replay.is_inside(gap.provider))
    if strangers:
        return " && ".join(dict.fromkeys(filter(None, (way_around(replay, path) for path in strangers))))
    files = {file_name(gap.provider) for gap in gaps}
    if case.lock is None:
        exact = list(_exact_needs(case.installation.by_name[subject], files))
        if exact:
            return case.install(*sorted(exact))
    owners = (replay.owner(gap.provider) for gap in gaps)
    return case.reinstall(*sorted({subject, *(owner.name for owner in owners if owner is not None)}))


def _exact_needs(subject: Distribution, files: set[str]) -> Iterator[str]:
    """ "nvidia-nccl-cu13==2.30.7": the pinned requirements of ``subject`` whose family brings one of ``files``."""
    for line in subject.requires:
        try:
            need = Requirement(line)
        except InvalidRequirement:  # that its metadata is broken is another check's
            continue
        member = family_of(normalise(need.name))
        pinned = [each for each in need.specifier if each.operator == "=="]
        if member is not None and member.libraries & files and pinned:
            yield f"{normalise(need.name)}=={pinned[0].version}"
