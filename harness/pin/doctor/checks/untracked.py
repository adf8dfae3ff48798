"""Files that no distribution claims: what could be imported or loaded from there, and what installers leave behind."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from harness.findings import Evidence, Finding
from harness.pin.doctor.case import Case
from harness.pin.doctor.checks import pth
from harness.pin.doctor.installed.installation import Distribution, Installation
from harness.pin.doctor.spelling import printable, quoted

_EXPECTED = re.compile(
    r"_virtualenv\.(py|pth)"  # virtualenv's and uv's patch of distutils
    r"|distutils-precedence\.pth|easy-install\.pth|setuptools\.pth|[^/]+-nspkg\.pth|[^/]+\.egg-link"
    r"|README(\.txt)?|harness-[^/]+\.json"
    r"|[~-][^/]+(/.*)?",  # of an uninstall that was broken off: "paths" says so
    re.DOTALL,
)
"""By its path from the site: what Python, its installers and we ourselves put there."""

BOOKKEEPING = frozenset(
    {"INSTALLER", "REQUESTED", "RECORD", "RECORD.jws", "RECORD.p7s"}
    | {"direct_url.json", "provenance_url.json", "uv_cache.json", "uv_build.json"}
)
"""Files of a dist-info that installers write, rewrite and take away as they see fit."""

_MOST_PATHS = 20


def check(case: Case) -> Iterator[Finding]:
    """file.untracked: drift where Python could import it or the loader find it, else a note; one for each owner."""
    installation = case.installation
    told_of = pth.told_of(case)
    stray = {path: site for path, site in _unclaimed(installation).items() if path not in told_of}
    if not stray:
        return
    claimants = _claimants(installation)
    by_conda = Path(installation.layout.prefix, "conda-meta").is_dir()  # its lists name files that no RECORD does
    grouped: dict[tuple[str, bool], list[str]] = defaultdict(list)
    for path, site in stray.items():
        live = _is_live(path.removeprefix(f"{site}/")) and not (is_apts(site) or by_conda)
        grouped[_subject(path, site, claimants), live].append(path)
    used = {folder for path in claimants for folder in (path, *map(str, PurePosixPath(path).parents))}
    for (subject, live), paths in sorted(grouped.items()):
        yield _finding(case, subject, live, sorted(paths), used)


def _unclaimed(installation: Installation) -> dict[str, str]:
    """Each file that nobody claims and nobody should, with its site."""
    sites = sorted(installation.layout.sites, key=len, reverse=True)
    silent = _unlisted(installation.distributions)
    infos = {distribution.info for distribution in installation.distributions}
    stray = {}
    for path in installation.files.keys() - installation.owners.keys():
        site = next((site for site in sites if path.startswith(f"{site}/")), None)
        if site is None:
            continue
        inside = path.removeprefix(f"{site}/")
        folder, _, name = path.rpartition("/")
        bookkeeping = folder in infos and name in BOOKKEEPING
        if not (bookkeeping or _EXPECTED.fullmatch(inside) or f"{site}/{inside.partition('/')[0]}" in silent):
            stray[path] = site
    return stray


def _unlisted(distributions: Iterable[Distribution]) -> set[str]:
    """What stands in a site for the distributions that list no files: eggs, Debian's packages, a lost RECORD."""
    found = set()
    for distribution in distributions:
        if distribution.claims:
            continue
        info = Path(distribution.info)
        try:
            modules = (info / "top_level.txt").read_text(encoding="utf-8").split()
        except (OSError, UnicodeDecodeError):
            modules = [distribution.name.replace("-", "_")]
        standing = info.parent if info.name == "EGG-INFO" else info
        found.add(str(standing))
        found |= {f"{distribution.site}/{module}{ending}" for module in modules for ending in ("", ".py")}
    return found


def is_library(name: str) -> bool:
    """Whether a file's name is that of a shared library."""
    return re.fullmatch(r".+\.so(\.\d+)*", name, re.DOTALL) is not None


def _is_live(inside: str) -> bool:
    """Whether Python could import it, run it at its start, or the loader find it. ``inside``: the path in its site."""
    path = PurePosixPath(inside)
    if is_library(path.name):
        return True
    if path.suffix == ".pth":
        return len(path.parts) == 1
    return path.suffix in (".py", ".pyc") and all(part.isidentifier() for part in (*path.parts[:-1], path.stem))


def is_apts(site: str) -> bool:
    """Whether apt fills the folder: it strips, moves and patches files, and checks them by its own lists."""
    return PurePosixPath(site).name == "dist-packages" and not site.startswith("/usr/local/")


def _claimants(installation: Installation) -> dict[str, set[str]]:
    """The distributions that claim a file in each folder."""
    claimants: dict[str, set[str]] = defaultdict(set)
    for path, owners in installation.owners.items():
        claimants[path.rpartition("/")[0]] |= {distribution.name for distribution, _ in owners}
    return claimants


def _subject(path: str, site: str, claimants: Mapping[str, set[str]]) -> str:
    """The distribution into whose folder the file was put; "python" where it is nobody's or several have it."""
    folder = path.rpartition("/")[0]
    while folder != site:
        if names := claimants.get(folder):
            return next(iter(names)) if len(names) == 1 else "python"
        folder = folder.rpartition("/")[0]
    return "python"


def _finding(case: Case, subject: str, live: bool, paths: Sequence[str], used: Container[str]) -> Finding:
    shown = [printable(case.installation.shown(path)) for path in paths]
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    evidence: dict[str, Evidence] = {"paths": tuple(shown[:_MOST_PATHS]), "count": len(paths)}
    whose = "no distribution claims" if subject == "python" else f"{subject} does not claim"
    where = "python" if subject == "python" else f"{subject}'s folder"
    if not live:
        summary = f"{where} has files beside it that {whose}: {shown[0]}{more}"
        return Finding("file.untracked", "note", subject, summary, evidence)
    summary = f"{where} has code in it that {whose}: {shown[0]}{more}"
    roots = dict.fromkeys(_highest(path, case.installation.layout.sites, used) for path in paths)
    fix = f"rm -r -- {quoted(list(roots)[:_MOST_PATHS])}"
    return Finding("file.untracked", "drift", subject, summary, evidence, fix)


def _highest(path: str, sites: Sequence[str], used: Container[str]) -> str:
    """The highest folder above ``path`` in which nobody claims anything, or the file itself."""
    while (folder := path.rpartition("/")[0]) not in used and folder not in sites:
        path = folder
    return path
