"""Files that two distributions claim: whose bytes are there now, who lost, and what an uninstall has taken.

Installers neither ask before they overwrite another distribution's file nor keep it at an uninstall, and no
``pip check`` sees either: https://github.com/pypa/pip/issues/4625
"""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from harness.errors import UsageError
from harness.findings import Evidence, Finding, Severity
from harness.pin.doctor.case import Case, names
from harness.pin.doctor.checks.contests import Names, Rival, contested, is_own, lost_to_uninstalled, siblings
from harness.pin.doctor.checks.requirements import required_by
from harness.pin.doctor.cuda.check import torch_of
from harness.pin.doctor.cuda.families import family_of
from harness.pin.doctor.installed.installation import Claim, Distribution
from harness.pin.doctor.spelling import printable
from harness.pin.locks import normalise

_DOCUMENTS = frozenset({"LICENSE", "LICENCE", "NOTICE", "README", "CHANGELOG"})

_MOST_PATHS = 20
"""How many paths a finding names; it counts them all."""


def check(case: Case) -> Iterator[Finding]:
    """owner.shared, owner.overwritten, owner.lost."""
    contests = contested(case)
    for claimants, paths in contests.shared.items():
        yield _shared(case, claimants, paths)
    for losses in contests.overwritten.values():
        yield _overwritten(case, losses)
    for claimants, paths in contests.changed.items():
        yield _nobodys(case, "file.changed", claimants, paths, "share")
    for claimants, paths in contests.nobodys.items():
        yield _nobodys(case, "owner.overwritten", claimants, paths, "both claim")
    for claimants, paths in contests.undecided.items():
        if not any(set(pair) <= set(claimants) for pair in contests.overwritten):
            yield _undecided(case, claimants, paths)
    for claimants, claims in contests.gone.items():
        yield _lost(case, claimants, claims)
    for name, claims in lost_to_uninstalled(case).items():
        yield _lost(case, (name,), claims)


def _shared(case: Case, claimants: Names, paths: Sequence[str]) -> Finding:
    summary = f"{_listed(claimants)} share {_counted(paths)} with the same bytes; uninstalling one takes from the rest"
    return Finding("owner.shared", "note", claimants[0], summary, {"claimants": claimants, **_paths(case, paths)})


def _overwritten(case: Case, losses: Sequence[tuple[Rival, Rival]]) -> Finding:
    loser, winner = losses[0][0].distribution, losses[0][1].distribution
    paths = [rival.claim.path for rival, _ in losses]
    read = all(case.digest(rival.claim) is not None for rival, _ in losses)
    named = sorted(losses, key=lambda loss: _importance(loss[0].claim.path))[:_MOST_PATHS]

    def shown(rival: Rival) -> str:
        return printable(case.installation.shown(rival.claim.path))

    evidence: dict[str, Evidence] = {
        **_paths(case, paths),
        "winner": winner.name,
        "versions": {loser.name: loser.version, winner.name: winner.version},
        "expected": {shown(rival): rival.claim.digest for rival, _ in named},
        "winner_expected": {shown(rival): rival.claim.digest for _, rival in named},
        "found": {shown(rival): case.digest(rival.claim) or "not read" for rival, _ in named},
        "bytes_read": read,
    }
    now = "the file there now is" if len(paths) == 1 else "the files there now are"
    by = "" if read else " by their size"
    summary = f"{loser.name} lost {_counted(paths)} to {winner.name}: {now} {winner.version}'s{by}"
    severity: Severity = "broken" if belongs(case, loser.name) and not belongs(case, winner.name) else "dangerous"
    if all(_is_document(path) for path in paths):
        severity = "note"
    fix = "" if severity == "note" else _settled(case, loser.name, winner.name)
    return Finding("owner.overwritten", severity, loser.name, summary, evidence, fix)


def _nobodys(case: Case, kind: str, claimants: Names, paths: Sequence[str], claim: str) -> Finding:
    """Somebody changed the files, or a distribution that is not there any more brought them."""
    summary = f"{_listed(claimants)} {claim} {_counted(paths)}, and the bytes there now are none of theirs"
    evidence: dict[str, Evidence] = {"claimants": claimants, **_paths(case, paths)}
    wanted = [name for name in claimants if belongs(case, name)] or claimants
    severity: Severity = "broken" if any(_is_native(path) for path in paths) else "dangerous"
    return Finding(kind, severity, wanted[0], summary, evidence, case.reinstall(*wanted))


def _undecided(case: Case, claimants: Names, paths: Sequence[str]) -> Finding:
    """Two claims that cannot both be true, where sizes do not tell and the bytes were not read."""
    summary = f"{_listed(claimants)} claim {_counted(paths)} with different bytes; whose are there now was not read"
    first, *others = sorted(claimants, key=lambda name: not belongs(case, name))
    severity: Severity = "note" if all(_is_document(path) for path in paths) else "dangerous"
    fix = _settled(case, first, *others) if severity == "dangerous" else ""
    evidence: dict[str, Evidence] = {"claimants": claimants, **_paths(case, paths)}
    return Finding("owner.overwritten", severity, first, summary, evidence, fix)


def _lost(case: Case, claimants: Names, claims: Sequence[Claim]) -> Finding:
    """Files that are gone, though distributions that are still installed claim them."""
    paths = [claim.path for claim in claims]
    member = family_of(claimants[0]) if len(claimants) == 1 else None
    takers = [name for name in siblings(member) if name not in case.installation.by_name] if member else []
    if takers:
        took = f"very likely an uninstall of {takers[0]} (or of another CUDA's package with the same paths) took"
    else:
        took = "an uninstalled distribution with the same paths took"
    them = "it" if len(paths) == 1 else "them"
    severity: Severity = "broken"
    if _only_empty(claims):
        severity, them = "drift", f"{them}; Python does without an empty one"
    summary = f"{_listed(claimants)} lost {_counted(paths)}: {took} {them}"
    wanted = [name for name in claimants if belongs(case, name)] or claimants
    evidence: dict[str, Evidence] = {"claimants": claimants, "takers": tuple(takers), **_paths(case, paths)}
    return Finding("owner.lost", severity, wanted[0], summary, evidence, case.reinstall(*wanted))


def if_uninstalled(case: Case, name: str) -> tuple[Finding, ...]:
    """What an uninstall of ``name``, in any spelling, would take from others, and what would go with it.

    Raises UsageError, naming what comes close, where it is not installed.
    """
    known, name = case.installation.by_name, normalise(name)
    if name not in known:
        near = difflib.get_close_matches(name, known, n=3)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise UsageError(f"{printable(name)} is not installed in {case.installation.layout.prefix}{hint}")
    asking = names(required_by(case.installation, name))
    needing = (
        Finding("owner.required", "dangerous", other, f"{other} asks for {name} and would be without it")
        for other in asking
    )
    return (*_would_lose(case, name), *needing, _would_go(case, known[name]))


def _would_lose(case: Case, name: str) -> Iterator[Finding]:
    """An installer deletes every file in the RECORD of what it uninstalls, whoever else claims it."""
    taken: dict[str, list[Claim]] = defaultdict(list)
    for claim in case.installation.by_name[name].claims:
        if claim.path in case.installation.files and not claim.path.endswith(".pyc"):
            for owner, theirs in case.installation.owners[claim.path]:
                taken[owner.name].append(theirs)
    taken.pop(name, None)
    for other, claims in sorted(taken.items()):
        paths = [claim.path for claim in claims]
        severity: Severity = "drift" if _only_empty(claims) or all(map(_is_document, paths)) else "broken"
        summary = f"{other} would lose {_counted(paths)}: an uninstall of {name} deletes what both claim"
        yield Finding("owner.would-lose", severity, other, summary, _paths(case, paths), case.uninstall(name))


def _would_go(case: Case, going: Distribution) -> Finding:
    """What is deleted, and whether it is the distribution's own."""
    files, sites = case.installation.files, case.installation.layout.sites
    claims = [claim for claim in going.claims if claim.path in files]
    scripts = [
        PurePosixPath(claim.path) for claim in claims if not claim.path.startswith(tuple(f"{s}/" for s in sites))
    ]
    commands = tuple(sorted(printable(path.name) for path in scripts if path.parent.name == "bin"))
    foreign = [claim.path for claim in claims if is_own(case, claim) is False]
    says = f"an uninstall of {going.name} {going.version} deletes {len(claims)} file{'s' * (len(claims) != 1)}"
    says += f" and the command{'s' * (len(commands) != 1)} {', '.join(commands)}" if commands else ""
    says += f"; {len(foreign)} of them hold other bytes than its own" if foreign else ""
    evidence: dict[str, Evidence] = {
        "files": len(claims),
        "bytes": sum(files[claim.path].size for claim in claims),
        "commands": commands,
        "not_its_own": _paths(case, foreign)["paths"],
        "bytes_read": bool(case.digests),
    }
    return Finding("owner.would-go", "note", going.name, says, evidence)


def belongs(case: Case, name: str) -> bool:
    """Whether ``name`` is meant to be here: in the lock; without one, of torch's CUDA, or asked for by another."""
    if case.lock is not None:
        return name in case.pins
    member, torch = family_of(name), torch_of(case)
    if member and torch and torch.major:
        return member.major == torch.major
    return bool(required_by(case.installation, name))


def _settled(case: Case, first: str, *others: str) -> str:
    """The command after which the files are those of who belongs here; ``first`` where that says nothing."""
    claimants = (first, *others)
    staying = [name for name in claimants if belongs(case, name)] or [first]
    leaving = [name for name in claimants if name not in staying]
    if not leaving:
        return case.reinstall(*staying)
    return case.uninstall(*leaving)


def _only_empty(claims: Sequence[Claim]) -> bool:
    """Whether all of it marks folders as packages, which Python does without."""
    return all(claim.path.endswith("/__init__.py") and claim.size == 0 for claim in claims)


def _paths(case: Case, paths: Sequence[str]) -> dict[str, Evidence]:
    named = sorted(paths, key=_importance)[:_MOST_PATHS]
    return {"paths": tuple(printable(case.installation.shown(path)) for path in named), "count": len(paths)}


def _listed(claimants: Names) -> str:
    if len(claimants) > 3:
        return f"{claimants[0]} and {len(claimants) - 1} others"
    return " and ".join([", ".join(claimants[:-1]), claimants[-1]]) if len(claimants) > 1 else claimants[0]


def _counted(paths: Sequence[str]) -> str:
    """The path that says most, and how many more there are."""
    first, more = PurePosixPath(min(paths, key=_importance)), len(paths) - 1
    shown = f"{first.parent.name}/{first.name}" if first.name == "__init__.py" else first.name
    return printable(shown) + (f" and {more} more file{'s' * (more > 1)}" if more else "")


def _importance(path: str) -> tuple[int, int, str]:
    """For sorting: native libraries first, then code, then the rest; the shorter path before the longer."""
    return (0 if _is_native(path) else 1 if path.endswith(".py") else 2, len(path), path)


def _is_native(path: str) -> bool:
    return ".so" in path.rpartition("/")[2]


def _is_document(path: str) -> bool:
    """A text beside the packages that no code reads: LICENSE and README.md are in the root of many wheels."""
    name = PurePosixPath(path)
    return name.suffix in (".md", ".rst") or name.stem.upper() in _DOCUMENTS
