"""Read a compiled lock. Standard library only: the bootstrap reads one before anything is installed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from harness.errors import EnvironmentFault
from harness.records import Lock, Pin, digest

_PIN = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?==(?P<version>[^\s;]+)\s*(?:;(?P<marker>.*))?")
_HASH = re.compile(r"--hash=(sha256:[0-9a-f]{64})(?!\S)")

_WRITE = "write it anew: nox -s lock"


def normalise(name: str) -> str:
    """A distribution's name as PEP 503 spells it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Requirement lines with their continuations joined and comments dropped, each with its first line's number."""
    start, parts = 0, list[str]()
    for number, line in enumerate(text.splitlines(), start=1):
        content = re.sub(r"(^|\s)#.*$", "", line).rstrip()
        if not parts:
            start = number
        parts.append(content.removesuffix("\\").strip())
        if not content.endswith("\\"):
            joined = " ".join(parts).strip()
            parts.clear()
            if joined:
                yield start, joined


def parse_pins(text: str, where: str, mend: str = _WRITE) -> tuple[Pin, ...]:
    """The pins of a lock's text, sorted by name.

    Raises EnvironmentFault, naming ``where`` and the line, for anything but a pin with at least one SHA-256:
    an option, an address, a path or an unpinned requirement has no place in a lock.
    """
    pins = list[Pin]()
    for number, line in _logical_lines(text):
        requirement, *rest = re.split(r"\s(?=--)", line, maxsplit=1)
        match = _PIN.fullmatch(requirement.strip())
        options = rest[0] if rest else ""
        hashes = tuple(sorted(set(_HASH.findall(options))))
        if match is None or not hashes or _HASH.sub("", options).strip():
            raise EnvironmentFault(f"{where} line {number} is not a pin with SHA-256 hashes: {line[:60]!r}; {mend}")
        marker = match["marker"].strip() if match["marker"] else None
        pins.append(Pin(normalise(match["name"]), match["version"], hashes, marker))
    return tuple(sorted(pins, key=lambda pin: (pin.name, pin.marker or "")))


def pins_digest(pins: tuple[Pin, ...]) -> str:
    """SHA-256 over what is pinned, so that comments and order change nothing."""
    return digest([[pin.name, pin.version, list(pin.hashes), pin.marker] for pin in pins])


def read_lock(path: Path, env: str, python: tuple[str, ...], mend: str = _WRITE) -> Lock:
    """The lock at ``path``, for the environment ``env`` and the Python versions it holds for.

    Raises EnvironmentFault where there is none, or none that ``parse_pins`` takes; ``mend`` is what it advises then.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise EnvironmentFault(f"{env} has no lock at {path}; compile it: nox -s lock -- {env}") from None
    except UnicodeDecodeError:
        raise EnvironmentFault(f"{path.name} is not a lock: it is not text; {mend}") from None
    pins = parse_pins(text, path.name, mend)
    return Lock(env=env, python=python, digest=pins_digest(pins), pins=pins, path=str(path))
