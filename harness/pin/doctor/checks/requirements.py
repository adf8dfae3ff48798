"""What installed distributions ask for, as the examined Python reads it, not the one that the harness runs in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import cast

from packaging import tags
from packaging.markers import InvalidMarker, Marker, UndefinedComparison, UndefinedEnvironmentName, default_environment
from packaging.requirements import InvalidRequirement, Requirement

from harness.pin.doctor.installed.installation import Distribution, Installation, Layout
from harness.pin.locks import normalise

_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")
_UNREADABLE = (InvalidMarker, InvalidRequirement, UndefinedComparison, UndefinedEnvironmentName, ValueError)


def holds(marker: Marker, layout: Layout, extra: str = "") -> bool:
    """Whether ``marker`` is true of the examined Python on this machine, with one ``extra`` asked for.

    Raises UndefinedComparison or UndefinedEnvironmentName for a marker that compares nonsense.
    """
    short = ".".join(layout.version.split(".")[:2])
    environment = {
        **cast("dict[str, str]", default_environment()),
        "python_version": short,
        "python_full_version": layout.version,
        "implementation_version": layout.version,
        "extra": extra,
    }
    return marker.evaluate(environment)


def required_by(installation: Installation, name: str) -> tuple[Distribution, ...]:
    """The installed distributions that ask for ``name`` (normalised) here: theirs is what breaks without it."""
    found = (
        distribution
        for distribution in installation.distributions
        if distribution.name != name
        and any(_applies(installation, distribution, need, ()) for need in _naming(distribution, name))
    )
    return tuple({distribution.name: distribution for distribution in found}.values())


def _applies(installation: Installation, asking: Distribution, need: Requirement, before: tuple[str, ...]) -> bool:
    """Whether ``asking`` really has the ``need``: always, or by an extra that is asked of it."""
    if need.marker is None or _holds(need.marker, installation.layout, ""):
        return True
    if "extra" not in str(need.marker):
        return False
    extras = _extras_asked(installation, asking.name, before)
    return any(_holds(need.marker, installation.layout, extra) for extra in extras)


def _extras_asked(installation: Installation, name: str, before: tuple[str, ...]) -> set[str]:
    """The extras of ``name`` that installed ones ask for: torch asks for cuda-toolkit[cublas].

    ``before``: the names on the way here, which are not asked again, or two that ask each other would never end.
    """
    found: set[str] = set()
    own = []
    for distribution in installation.distributions:
        for need in _naming(distribution, name):
            if distribution.name == name:
                own.append(need)  # "name[torch]; extra == 'all'"
            elif need.extras and distribution.name not in before:
                found |= need.extras if _applies(installation, distribution, need, (*before, name)) else set()
    while more := {e for need in own if _by_any(need, installation.layout, found) for e in need.extras} - found:
        found |= more
    return found


def _by_any(need: Requirement, layout: Layout, extras: set[str]) -> bool:
    return need.marker is not None and any(_holds(need.marker, layout, extra) for extra in extras)


def _holds(marker: Marker, layout: Layout, extra: str) -> bool:
    try:
        return holds(marker, layout, extra)
    except _UNREADABLE:  # somebody's metadata: it asks for nothing that an installer could understand either
        return False


def _naming(distribution: Distribution, name: str) -> Iterator[Requirement]:
    """The requirements of ``distribution`` on ``name``; the others are not parsed: there are thousands."""
    for line in distribution.requires:
        match = _NAME.match(line)
        if match is None or normalise(match[1]) != name:
            continue
        try:
            yield Requirement(line)
        except _UNREADABLE:
            continue


def tags_of(distribution: Distribution) -> frozenset[tags.Tag]:
    """The tags in its WHEEL, expanded; anybody may have written them, and what is no tag is left out."""
    found: set[tags.Tag] = set()
    for text in distribution.tags:
        try:
            found |= tags.parse_tag(text)
        except ValueError:
            continue
    return frozenset(found)


def runnable_tags(layout: Layout) -> frozenset[tags.Tag]:
    """Every wheel tag that the examined Python can use on this machine."""
    major, minor = (int(part) for part in layout.version.split(".")[:2])
    free_threaded = Path(layout.stdlib).name.endswith("t")  # lib/python3.13t
    return _tags_of(major, minor, "t" if free_threaded else "")


@cache
def _tags_of(major: int, minor: int, threading: str) -> frozenset[tags.Tag]:
    interpreter, platforms = f"cp{major}{minor}", list(tags.platform_tags())
    native = tags.cpython_tags((major, minor), [interpreter + threading], platforms)
    return frozenset(native) | frozenset(tags.compatible_tags((major, minor), interpreter, platforms))
