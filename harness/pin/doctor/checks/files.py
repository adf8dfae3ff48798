"""The bytes as they are against what each RECORD says: missing, changed, unreadable, outside, and not known at all.

What several distributions claim is ``ownership``'s to explain; what none claims is ``untracked``'s.
"""

from __future__ import annotations

import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from harness.findings import Evidence, Finding, Severity
from harness.pin.doctor.case import Case
from harness.pin.doctor.checks import untracked
from harness.pin.doctor.checks.contests import is_own, lost_to_uninstalled
from harness.pin.doctor.checks.launchers import only_launcher_differs
from harness.pin.doctor.installed.digests import ALGORITHMS
from harness.pin.doctor.installed.installation import Claim, Distribution
from harness.pin.doctor.installed.read import is_compiled
from harness.pin.doctor.spelling import printable, quoted

_PACKAGERS = frozenset(("conda", "debian", "rpm"))
_MOST_PATHS = 20


def check(case: Case) -> Iterator[Finding]:
    """file.missing, file.changed, file.unreadable, file.outside, file.unhashed, file.untracked."""
    elsewhere = {claim.path for claims in lost_to_uninstalled(case).values() for claim in claims}
    copies = Counter(distribution.name for distribution in case.installation.distributions)
    for distribution in case.installation.distributions:
        suspects = _Suspects([], [], []) if _is_packagers(distribution) else _suspects(case, distribution)
        if copies[distribution.name] > 1:
            suspects = _without_copies(case, distribution, suspects)
        yield from _missing(case, distribution, [c for c in suspects.missing if c.path not in elsewhere])
        yield from _changed(case, distribution, suspects.changed)
        yield from _unreadable(case, distribution, suspects.unreadable)
        yield from _outside(case, distribution)
    yield from _unreadable_folders(case)
    yield from _unhashed(case)
    yield from untracked.check(case)


def _is_packagers(distribution: Distribution) -> bool:
    """Whether another kind of installer put it there, whose changes to the files no RECORD knows."""
    return distribution.installer in _PACKAGERS or untracked.is_apts(distribution.site)


class _Suspects(NamedTuple):
    """Claims of one distribution that do not hold."""

    missing: list[Claim]
    changed: list[Claim]
    unreadable: list[Claim]


def _suspects(case: Case, distribution: Distribution) -> _Suspects:
    files, owners, unreadable = case.installation.files, case.installation.owners, case.installation.unreadable
    found = _Suspects([], [], [])
    for claim in distribution.claims:
        if is_compiled(claim) or _is_bookkeeping(claim.path, distribution):
            continue
        now = files.get(claim.path)
        if now is not None and claim.path not in unreadable and not _differs(case, claim, now.mode):
            continue
        if len(owners[claim.path]) > 1 and len({d.name for d, c in owners[claim.path] if c.algorithm}) > 1:
            continue
        if now is not None and (_is_odd(now.mode) or claim.path not in unreadable):
            found.changed.append(claim)
        elif claim.path in unreadable or _is_hidden(case, claim.path):
            found.unreadable.append(claim)
        else:
            found.missing.append(claim)
    return found


def _is_bookkeeping(path: str, distribution: Distribution) -> bool:
    folder, _, name = path.rpartition("/")
    return name in untracked.BOOKKEEPING and folder == distribution.info


def _differs(case: Case, claim: Claim, mode: int) -> bool:
    """Whether something else than the claimed bytes is there, as far as was read."""
    if stat.S_ISDIR(mode) and not claim.algorithm:  # a row for a folder: some builders write them
        return False
    return is_own(case, claim) is False or _is_odd(mode)


def _is_odd(mode: int) -> bool:
    """Whether it is neither a file nor a link to one."""
    return not (stat.S_ISREG(mode) or stat.S_ISLNK(mode))


def _is_hidden(case: Case, path: str) -> bool:
    """Whether a folder on the way to ``path`` could not be listed, so that nobody knows what is there."""
    unreadable = case.installation.unreadable
    return bool(unreadable) and any(str(folder) in unreadable for folder in PurePosixPath(path).parents)


def _without_copies(case: Case, distribution: Distribution, suspects: _Suspects) -> _Suspects:
    """Of two dist-infos of one name, the stale one claims what the other has replaced: that is ``paths``' to say."""
    names = [d for d in case.installation.distributions if d.name == distribution.name]
    others = [claim for d in names if d is not distribution for claim in d.claims]
    held = {claim.path for claim in others if is_own(case, claim) is not False}
    claimed = {claim.path for claim in others}
    return _Suspects(
        [claim for claim in suspects.missing if claim.path in claimed],
        [claim for claim in suspects.changed if claim.path not in held],
        suspects.unreadable,
    )


def _missing(case: Case, distribution: Distribution, claims: Sequence[Claim]) -> Iterator[Finding]:
    if claims:
        summary = f"{distribution.name} lacks {_counted(case, claims)}"
        evidence = _evidence(case, distribution, claims)
        yield Finding("file.missing", "broken", distribution.name, summary, evidence, case.reinstall(distribution.name))


def _changed(case: Case, distribution: Distribution, claims: Sequence[Claim]) -> Iterator[Finding]:
    """A note for scripts that were only told of another Python, and one finding for the rest."""
    scripts = [claim for claim in claims if only_launcher_differs(case, distribution, claim)]
    if scripts:
        summary = (
            f"{distribution.name} has {_counted(case, scripts)} with another first line than it was installed with"
        )
        yield Finding("file.changed", "note", distribution.name, summary, _evidence(case, distribution, scripts))
    edited = sorted(set(claims) - set(scripts), key=lambda claim: (not _is_vital(claim, distribution), claim.path))
    if edited:
        severity: Severity = "broken" if _is_vital(edited[0], distribution) else "dangerous"
        summary = f"{distribution.name} is not what was installed: {_counted(case, edited)} changed since"
        evidence = {
            **_evidence(case, distribution, edited),
            "expected": {_shown(case, c.path): _expected(c) for c in edited[:_MOST_PATHS]},
            "found": {_shown(case, c.path): _found(case, c) for c in edited[:_MOST_PATHS]},
        }
        yield Finding("file.changed", severity, distribution.name, summary, evidence, case.reinstall(distribution.name))


def _is_vital(claim: Claim, distribution: Distribution) -> bool:
    """Whether it is native code, or the METADATA that resolvers believe."""
    if claim.path == f"{distribution.info}/METADATA" or untracked.is_library(claim.path):
        return True
    path = Path(claim.path)
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False


def _expected(claim: Claim) -> str:
    return f"{claim.algorithm}={claim.digest}" if claim.algorithm else f"{claim.size} bytes"


def _found(case: Case, claim: Claim) -> str:
    now = case.installation.files[claim.path]
    if _is_odd(now.mode):
        return "not a file"
    digest = case.digest(claim)
    return f"{claim.algorithm}={digest}" if digest else f"{now.size} bytes"


def _unreadable(case: Case, distribution: Distribution, claims: Sequence[Claim]) -> Iterator[Finding]:
    if claims:
        why = case.installation.unreadable.get(claims[0].path, "its folder cannot be listed")
        summary = f"{distribution.name} has {_counted(case, claims)} that cannot be read: {why}"
        evidence = _evidence(case, distribution, claims)
        fix = case.reinstall(distribution.name)
        yield Finding("file.unreadable", "dangerous", distribution.name, summary, evidence, fix)


def _unreadable_folders(case: Case) -> Iterator[Finding]:
    """Folders that were not listed: what is in them is not known, whoever owns it."""
    unreadable = case.installation.unreadable
    folders = sorted(path for path in unreadable if path not in case.installation.owners)
    if folders:
        first = _shown(case, folders[0])
        more = f" and {len(folders) - 1} more" if len(folders) > 1 else ""
        summary = f"python's folder {first}{more} cannot be listed: {unreadable[folders[0]]}"
        shown = tuple(_shown(case, path) for path in folders[:_MOST_PATHS])
        evidence: dict[str, Evidence] = {"paths": shown, "count": len(folders)}
        fix = f"chmod -R u+rX -- {quoted(folders[:_MOST_PATHS])}"
        yield Finding("file.unreadable", "dangerous", "python", summary, evidence, fix)


def _outside(case: Case, distribution: Distribution) -> Iterator[Finding]:
    rows = distribution.outside
    if rows:
        more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
        summary = f"{distribution.name} claims files outside of the environment, which nobody looked at: "
        summary += printable(rows[0]) + more
        shown = tuple(map(printable, rows[:_MOST_PATHS]))
        evidence: dict[str, Evidence] = {"paths": shown, "count": len(rows), "version": distribution.version}
        fix = case.reinstall(distribution.name)
        yield Finding("file.outside", "dangerous", distribution.name, summary, evidence, fix)


def _unhashed(case: Case) -> Iterator[Finding]:
    """One line for all files of which no RECORD has a hash that proves anything: changed or not, nobody can tell."""
    count: Counter[str] = Counter()
    unlisted, algorithms = set(), set()
    for distribution in case.installation.distributions:
        if not distribution.claims or _is_packagers(distribution):
            unlisted.add(distribution.name)
            continue
        for claim in distribution.claims:
            if not (claim.algorithm in ALGORITHMS or is_compiled(claim) or _is_bookkeeping(claim.path, distribution)):
                count[distribution.name] += 1
                algorithms.add(claim.algorithm)
    if count or unlisted:
        parts = [f"{_listed(sorted(unlisted))} keep no list of their files with hashes"] if unlisted else []
        parts += [f"{sum(count.values())} files of {_listed(sorted(count))} have no hash to trust"] if count else []
        summary = f"python cannot vouch for all bytes: {'; '.join(parts)}"
        evidence: dict[str, Evidence] = {
            "distributions": tuple(sorted({*count, *unlisted})),
            "count": sum(count.values()),
            "algorithms": tuple(sorted(algorithms - {""})),
        }
        yield Finding("file.unhashed", "note", "python", summary, evidence)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 3 else f"{', '.join(names[:2])} and {len(names) - 2} more distributions"


def _evidence(case: Case, distribution: Distribution, claims: Sequence[Claim]) -> dict[str, Evidence]:
    shown = tuple(_shown(case, claim.path) for claim in claims[:_MOST_PATHS])
    return {"paths": shown, "count": len(claims), "version": distribution.version}


def _counted(case: Case, claims: Sequence[Claim]) -> str:
    """The first path, and how many more there are."""
    more = f" and {len(claims) - 1} more file{'s' * (len(claims) > 2)}" if len(claims) > 1 else ""
    return _shown(case, claims[0].path) + more


def _shown(case: Case, path: str) -> str:
    return printable(case.installation.shown(path))
