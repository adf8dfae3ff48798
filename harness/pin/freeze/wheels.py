"""The wheel that stands for each installed distribution: the index's, where it is proven, else one made again."""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from harness.errors import EnvironmentFault
from harness.frozen import Kept, LeftOut
from harness.pin.aside import Say
from harness.pin.doctor.case import Case
from harness.pin.doctor.checks.launchers import only_launcher_differs
from harness.pin.doctor.installed.installation import Distribution, Installation
from harness.pin.freeze import rebuild
from harness.pin.freeze.listing import Listing
from harness.pin.freeze.match import Digests, Match, match
from harness.pin.freeze.pace import Paced
from harness.pin.freeze.rebuild import Origin
from harness.pin.freeze.scheme import generated_scripts, scheme

_ASKERS = 8  # requests at once; an index answers more slowly than we read
_NAMED = 3  # differing files that a reason names


@dataclass(frozen=True)
class Wheels:
    """What stands for the distributions, and what nothing can stand for."""

    kept: tuple[Kept, ...]
    left_out: tuple[LeftOut, ...]


def choose(installation: Installation, digests: Digests, listing: Listing, folder: Path, day: str, say: Say) -> Wheels:
    """A wheel for every distribution; those made again are written into ``folder``."""
    chosen = tuple(installation.by_name.values())
    kept: list[Kept] = []
    second = [one for one in installation.distributions if installation.by_name[one.name] is not one]
    left_out = [LeftOut(one.name, one.version, f"a second copy, in {one.info}: Python finds another") for one in second]
    pace = Paced(say)
    for distribution, found in zip(chosen, _matches(installation, digests, chosen, listing, say), strict=True):
        if found.wheel is not None:
            kept.append(_from_index(distribution, found))
            continue
        pace.say(f"keeping {distribution.name} {distribution.version} as a wheel of its own: {found.why}")
        origin = Origin(_why(distribution, found), day, installation.layout.prefix)
        try:
            kept.append(_rebuilt(distribution, installation, folder, origin, found))
        except (EnvironmentFault, PermissionError) as error:
            left_out.append(LeftOut(distribution.name, distribution.version, str(error)))
    return Wheels(tuple(kept), tuple(left_out))


def changed_scripts(installation: Installation, digests: Digests) -> Iterator[tuple[str, str]]:
    """Scripts that an installer made from an entry point and somebody changed since: (distribution, path).

    No wheel has them, and no index can tell; whoever builds the environment makes them anew.
    """
    case = Case(installation, digests=digests)
    for distribution in installation.by_name.values():
        place = scheme(distribution, installation.layout)
        generated = generated_scripts(distribution, place, [claim.path for claim in distribution.claims])
        for claim in distribution.claims:
            changed = claim.path in generated and case.digest(claim) not in (None, claim.digest)
            if changed and not only_launcher_differs(case, distribution, claim):
                yield distribution.name, claim.path


def _matches(
    installation: Installation, digests: Digests, chosen: Sequence[Distribution], listing: Listing, say: Say
) -> Iterator[Match]:
    """What the index has for each; an editable install is not asked about, for its files are elsewhere."""
    pace = Paced(say)

    def ask(distribution: Distribution) -> Match:
        if distribution.editable:
            return Match(why=f"an editable install of {_folder_of(distribution)}")
        return match(distribution, installation.layout, listing, digests)

    pool = ThreadPoolExecutor(_ASKERS)
    try:
        for number, found in enumerate(pool.map(ask, chosen), start=1):
            pace.say(f"compared {number} of {len(chosen)} distributions with the index")
            yield found
    finally:
        pool.shutdown(cancel_futures=True)


def _folder_of(distribution: Distribution) -> str:
    return urllib.parse.unquote(str(distribution.direct_url.get("url", "?")).removeprefix("file://"))


def _why(distribution: Distribution, found: Match) -> str:
    """The reason, with the first files that differ and where it was installed from, if that is known."""
    files = ", ".join(found.differing[:_NAMED])
    more = len(found.differing) - _NAMED
    reason = f"{found.why} in {files}{f' and {more} more' if more > 0 else ''}" if files else found.why
    comes_from = f"; installed from {_folder_of(distribution)}" if distribution.direct_url else ""
    return reason + ("" if distribution.editable else comes_from)


def _from_index(distribution: Distribution, found: Match) -> Kept:
    assert found.wheel is not None
    parts = urllib.parse.urlsplit(found.wheel.url)
    url = urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    return Kept(distribution.name, distribution.version, "index", found.wheel.filename, found.wheel.sha256, url)


def _rebuilt(
    distribution: Distribution, installation: Installation, folder: Path, origin: Origin, found: Match
) -> Kept:
    made = rebuild.wheel(distribution, installation, folder, origin)
    return Kept(
        name=distribution.name,
        version=distribution.version,
        source="rebuilt",
        wheel=made.path.name,
        sha256=made.sha256,
        why=origin.why,
        bytes=made.bytes,
        unreached=found.unreached,
        differing=found.differing,
        missing=made.missing,
        outside=made.outside,
        links=made.links,
        passed_over=made.passed_over,
    )
