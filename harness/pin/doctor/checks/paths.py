"""Whether Python finds what is installed: split folders, shadows, ``.pth`` files, and the dist-info folders."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from harness.findings import Evidence, Finding
from harness.pin.doctor.case import Case, names
from harness.pin.doctor.checks import pth, shadows
from harness.pin.doctor.checks.contests import is_own
from harness.pin.doctor.cuda.families import family_of
from harness.pin.doctor.installed.installation import Distribution
from harness.pin.doctor.spelling import printable, quoted


def check(case: Case) -> Iterator[Finding]:
    """Findings of the kinds ``python.*``."""
    yield from _split(case)
    yield from pth.check(case)
    yield from shadows.check(case)
    yield from _broken(case)
    yield from _duplicates(case)
    yield from _left_over(case)


def _split(case: Case) -> Iterator[Finding]:
    """Pure packages in one folder and native ones in another, which the libraries' relative paths do not bridge.

    torch finds NVIDIA's libraries by $ORIGIN/../../nvidia: https://github.com/pytorch/pytorch/issues/165812
    """
    layout = case.installation.layout
    if layout.purelib == layout.platlib:
        return
    placed: dict[str, list[Distribution]] = defaultdict(list)
    for distribution in case.installation.by_name.values():
        if distribution.name == "torch" or family_of(distribution.name):
            placed[distribution.site].append(distribution)
    torch = case.installation.by_name.get("torch")
    here = torch.site if torch else max(placed, key=lambda site: len(placed[site]), default="")
    away = [d for site, some in placed.items() if site != here for d in some]
    if not away:
        return
    who = names(away)
    more = f" and {len(who) - 1} more" if len(who) > 1 else ""
    them = "torch" if torch else names(placed[here])[0]
    summary = f"{who[0]}{more} and {them} are in two folders, so that their libraries do not find each other"
    evidence: dict[str, Evidence] = {"folder": here, "elsewhere": {d.name: d.site for d in away}}
    yield Finding("python.split", "dangerous", them, summary, evidence, _joined(here, away) or case.reinstall(*who))


def _joined(here: str, away: list[Distribution]) -> str:
    """Links in ``here`` to the folders of the libraries that are elsewhere."""
    folders = {(d.site, member.folder) for d in away if (member := family_of(d.name))}
    links = [
        f"mkdir -p {quoted([str(Path(here, folder).parent)])}"
        f" && ln -sn {quoted([f'{site}/{folder}', f'{here}/{folder}'])}"
        for site, folder in sorted(folders)
        if not Path(here, folder).exists()
    ]
    return " && ".join(links)


def _broken(case: Case) -> Iterator[Finding]:
    """A dist-info that cannot be read as one, so that no tool knows what is installed."""
    for distribution in case.installation.distributions:
        problems = distribution.problems or (() if distribution.version else ("no version is known",))
        if not problems:
            continue
        shown = printable(case.installation.shown(distribution.info))
        more = f" ({len(problems) - 1} more)" if len(problems) > 1 else ""
        summary = f"what {distribution.name} says of itself in {shown} is broken: {printable(problems[0])}{more}"
        evidence: dict[str, Evidence] = {"folder": shown, "problems": tuple(map(printable, problems))}
        fix = case.reinstall(distribution.name)
        if case.is_husk(distribution) and _is_sound(case, distribution.name):
            fix = f"rm -r -- {quoted([distribution.info])}"
        yield Finding("python.dist-info", "dangerous", distribution.name, summary, evidence, fix)


def _is_sound(case: Case, name: str) -> bool:
    """Whether a dist-info of that name is more than an empty folder."""
    return any(d.name == name and not case.is_husk(d) for d in case.installation.distributions)


def _duplicates(case: Case) -> Iterator[Finding]:
    """Two versions of one name in one place: Python's metadata gives the one whose folder it comes to first.

    In another site, the system's under an environment that is open to it, a second one is only hidden.
    """
    layout = case.installation.layout
    several: dict[tuple[str, str], list[Distribution]] = defaultdict(list)
    for distribution in (d for d in case.installation.distributions if not case.is_husk(d)):
        place = "" if distribution.site in (layout.purelib, layout.platlib) else distribution.site
        several[distribution.name, place].append(distribution)
    for found in several.values():
        if len({distribution.version for distribution in found}) > 1:
            yield _recorded_twice(case, found)


def _recorded_twice(case: Case, found: list[Distribution]) -> Finding:
    """``found``: dist-infos of one name, in the order in which Python comes to them."""
    first, name = found[0], found[0].name
    hashed = {d.info: sum(bool(claim.algorithm) for claim in d.claims) for d in found}
    borne_out = {d.info: sum(is_own(case, claim) is True for claim in d.claims) for d in found}
    summary = f"{name} is recorded as {' and '.join(d.version or 'no version' for d in found)}; "
    summary += f"Python says {first.version or 'none'}"
    real = first
    if any(borne_out.values()):
        real = max(found, key=lambda d: borne_out[d.info] / (hashed[d.info] or 1))
        summary += f", and the files are those of {real.version}"
    shown = {d.info: printable(case.installation.shown(d.info)) for d in found}
    evidence: dict[str, Evidence] = {
        "python_finds": shown[first.info],
        "versions": {shown[d.info]: d.version for d in found},
        "files_borne_out": {shown[d.info]: f"{borne_out[d.info]} of {hashed[d.info]}" for d in found},
    }
    stale = [d.info for d in found if d is not real]
    by_version = case.lock is None and real.version  # the metadata's first may be the stale one
    again = case.install(f"{name}=={real.version}") if by_version else case.reinstall(name)
    fix = f"rm -r {quoted(stale)} && {again}"
    return Finding("python.duplicate", "dangerous", name, summary, evidence, fix)


def _left_over(case: Case) -> Iterator[Finding]:
    """What pip had moved aside, as ``~orch``, when an uninstall or an upgrade was interrupted."""
    for site in case.installation.layout.sites:
        inside = (path.removeprefix(f"{site}/") for path in case.installation.files if path.startswith(f"{site}/~"))
        counts = Counter(path.partition("/")[0] for path in inside)
        if not counts:
            continue
        folders = sorted(counts)
        more = f" and {len(folders) - 1} more" if len(folders) > 1 else ""
        summary = f"an interrupted pip left {printable(folders[0])}{more} in {printable(case.installation.shown(site))}"
        fix = f"rm -r {quoted([f'{site}/{folder}' for folder in folders])}"
        evidence: dict[str, Evidence] = {"folders": tuple(map(printable, folders[:20])), "files": counts.total()}
        yield Finding("python.dist-info", "drift", "python", summary, evidence, fix)
