"""The paths that several distributions claim, sorted by what became of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from harness.pin.doctor.case import Case
from harness.pin.doctor.checks.launchers import only_launcher_differs
from harness.pin.doctor.cuda.families import FAMILIES, Member, family_of
from harness.pin.doctor.installed.installation import Claim, Distribution
from harness.pin.doctor.installed.read import is_compiled


class Rival(NamedTuple):
    """One of several distributions that claim a path."""

    distribution: Distribution
    claim: Claim
    own: bool | None  # whether the bytes there are the ones it claims; None where that is not known

    @property
    def name(self) -> str:
        return self.distribution.name


Names = tuple[str, ...]


class Contests(NamedTuple):
    """Every path that distributions of several names claim, by what became of it. Rivals are sorted by name."""

    shared: Mapping[Names, list[str]]  # the same bytes for all of them
    changed: Mapping[Names, list[str]]  # the same bytes for all of them, and others are there
    overwritten: Mapping[tuple[str, str], list[tuple[Rival, Rival]]]  # (loser, winner)
    nobodys: Mapping[Names, list[str]]  # they differ, and what is there is none of theirs
    undecided: Mapping[Names, list[str]]  # they differ, and the bytes were not read
    gone: Mapping[Names, list[Claim]]


def contested(case: Case) -> Contests:
    """Sort the paths that several distributions claim."""
    found = Contests(*(defaultdict(list) for _ in Contests._fields))
    for path, claims in case.installation.owners.items():
        if len(claims) > 1 and len(rivals := _rivals(case, claims)) > 1:
            _sort(case, path, rivals, found)
    return found


def _rivals(case: Case, claims: Iterable[tuple[Distribution, Claim]]) -> list[Rival]:
    """One for each name that says which bytes it means; of two dist-infos of one name, the one that is borne out."""
    rivals: dict[str, Rival] = {}
    for distribution, claim in claims:
        if not claim.algorithm:
            continue
        own = is_own(case, claim)
        rival = Rival(
            distribution, claim, own if own is not False else only_launcher_differs(case, distribution, claim)
        )
        if rival.own or distribution.name not in rivals:
            rivals[distribution.name] = rival
    return [rivals[name] for name in sorted(rivals)]


def is_own(case: Case, claim: Claim) -> bool | None:
    """Whether the bytes are the claimed ones: by digest, or, unread, by a size that rules it out."""
    if (digest := case.digest(claim)) is not None:
        return digest == claim.digest
    stat = case.installation.files.get(claim.path)
    return False if stat and claim.size is not None and claim.size != stat.size else None


def _sort(case: Case, path: str, rivals: Sequence[Rival], found: Contests) -> None:
    names = tuple(rival.name for rival in rivals)
    if path not in case.installation.files:
        if not _hidden(case, path):
            found.gone[names].append(rivals[0].claim)
        return
    if all(r.own for r in rivals) or len({(r.claim.algorithm, r.claim.digest) for r in rivals}) == 1:
        (found.changed if rivals[0].own is False else found.shared)[names].append(path)
        return
    unread = [rival for rival in rivals if rival.own is None]
    winner = next((rival for rival in rivals if rival.own), unread[0] if len(unread) == 1 else None)
    if winner:
        for loser in rivals:
            if loser.own is False:
                found.overwritten[loser.name, winner.name].append((loser, winner))
    elif unread:
        found.undecided[names].append(path)
    else:
        found.nobodys[names].append(path)


def _hidden(case: Case, path: str) -> bool:
    """Whether a folder on the way could not be read, so that nobody knows what is in it."""
    unreadable = case.installation.unreadable
    return path in unreadable or any(str(parent) in unreadable for parent in PurePosixPath(path).parents)


def lost_to_uninstalled(case: Case) -> dict[str, list[Claim]]:
    """Missing files of a CUDA library whose other builds have the same paths, claimed by one distribution alone.

    That is how an uninstall of the other build leaves it: the RECORD that said so is gone with it.
    """
    lost = defaultdict(list)
    for distribution in case.installation.by_name.values():
        member = family_of(distribution.name)
        if member is None or not siblings(member):
            continue
        folder = f"{distribution.site}/{member.folder}/"
        for claim in distribution.claims:
            path = claim.path
            if path in case.installation.files or not path.startswith(folder) or is_compiled(claim):
                continue
            if len({d.name for d, _ in case.installation.owners[path]}) == 1 and not _hidden(case, path):
                lost[distribution.name].append(claim)
    return lost


def siblings(member: Member) -> list[str]:
    """The builds for other CUDAs that install into the same paths, the newest first."""
    others = FAMILIES[member.family].members
    return [others[major].name for major in sorted(others, reverse=True) if member.shares_folder(others[major])]
