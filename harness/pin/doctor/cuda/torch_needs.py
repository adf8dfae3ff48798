"""What the installed torch asks for, by the Requires-Dist of torch itself and of the CUDA wheels that it names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from packaging.markers import default_environment
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from harness.pin.doctor.cuda.families import family_of
from harness.pin.doctor.installed.installation import Distribution, Installation

_OF_AN_EXTRA = re.compile(r"\bextra\s*==")


@dataclass(frozen=True)
class Need:
    """One requirement that holds here."""

    name: str  # normalised
    specifier: SpecifierSet
    by: str  # who asks: "torch", "cuda-toolkit"

    def met_by(self, version: str) -> bool:
        """``version`` is one that is asked for; a version that cannot be read is not."""
        parsed = parse(version)
        return parsed is not None and self.specifier.contains(parsed, prereleases=True)


def parse(version: str) -> Version | None:
    """``version`` as PEP 440 reads it; None where it does not."""
    try:
        return Version(version)
    except InvalidVersion:
        return None


def torch_needs(installation: Installation) -> tuple[Need, ...]:
    """What torch requires of CUDA wheels and Triton, straight or through another CUDA wheel; () without torch."""
    found: dict[tuple[str, str, str], Need] = {}
    todo: list[tuple[str, frozenset[str]]] = [("torch", frozenset())]
    seen = set(todo)
    while todo:
        name, extras = todo.pop()
        distribution = installation.by_name.get(name)
        if distribution is None:
            continue
        for requirement in _holding(distribution, extras, installation.layout.version):
            needed = canonicalize_name(requirement.name)
            if family_of(needed) is None and needed not in ("cuda-toolkit", "triton", "pytorch-triton"):
                continue
            need = Need(needed, requirement.specifier, name)
            found[needed, str(need.specifier), name] = need
            step = (needed, frozenset(requirement.extras))
            if step not in seen:
                seen.add(step)
                todo.append(step)
    return tuple(found.values())


def _holding(distribution: Distribution, extras: frozenset[str], python: str) -> Iterator[Requirement]:
    """The requirements of ``distribution`` whose markers hold for ``python`` on this machine with ``extras``.

    One that cannot be parsed asks for nothing that could be checked; ``paths`` reports the broken METADATA.
    """
    version = {"python_version": ".".join(python.split(".")[:2]), "python_full_version": python}
    environment = {**{key: str(value) for key, value in default_environment().items()}, **version}
    for text in distribution.requires:
        named = [extra for extra in extras if f'"{extra}"' in text or f"'{extra}'" in text]
        if _OF_AN_EXTRA.search(text) and not named:
            continue  # most lines of cuda-toolkit are of other extras: parsing them is what takes the time
        requirement = _requirement(text)
        if requirement is None:
            continue
        marker = requirement.marker
        if marker is None or any(marker.evaluate({**environment, "extra": extra}) for extra in named or ("",)):
            yield requirement


@lru_cache(maxsize=1024)
def _requirement(text: str) -> Requirement | None:
    """``text`` as PEP 508 reads it; None where it does not."""
    try:
        return Requirement(text)
    except InvalidRequirement:
        return None
