"""The signatures of ``failures.toml``: read once, and what their templates say. The file's head tells the fields."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

Level = Literal["cause", "consequence", "end", "exception", "said", "unknown"]
Patterns = tuple[re.Pattern[str], ...]

_OPTIONAL = re.compile(r"\[([^\[\]]*)\]")
_NAME = re.compile(r"\{(\w+)\}")
_SIZE = re.compile(r"([\d.]+) ?([KMGT]?)i?B")


@dataclass(frozen=True)
class Signature:
    """One way to fail. Its position in the table is its precedence among those that fit one error."""

    id: str
    title: str
    level: Level
    report: str
    sentence: str
    advice: str
    see: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)  # glob of a fact: why its change can bring it
    text: Patterns = ()
    beside: Patterns = ()
    within: Patterns = ()
    more: Patterns = ()
    greater: tuple[str, ...] = ()
    signal: frozenset[str] = frozenset()
    reason: Patterns = ()
    cache_hides: bool = False
    compiling: bool = False
    memory: bool = False
    sizes: bool = False

    def larger(self, groups: Mapping[str, str]) -> bool:
        """Whether the sizes that it compares stand as it says; True where it compares none."""
        if not self.greater:
            return True
        sizes = [_bytes(groups.get(name, "")) for name in self.greater]
        return sizes[0] > sizes[1]


@dataclass(frozen=True)
class Table:
    """All signatures, in the order of precedence, and the exceptions that only follow another failure."""

    signatures: tuple[Signature, ...]
    consequences: frozenset[str]

    def __getitem__(self, signature: str) -> Signature:
        return next(each for each in self.signatures if each.id == signature)


@cache
def table() -> Table:
    """What the data file beside this module says."""
    data = tomllib.loads(Path(__file__).with_name("failures.toml").read_text("utf-8"))
    return Table(tuple(_signature(entry) for entry in data["signature"]), frozenset(data["consequences"]))


def _signature(entry: dict[str, Any]) -> Signature:
    patterns = {
        name: tuple(re.compile(each) for each in entry.get(name, ()))
        for name in ("text", "beside", "within", "more", "reason")
    }
    lists = {"see": tuple(entry.get("see", ())), "greater": tuple(entry.get("greater", ()))}
    return Signature(**{**entry, **patterns, **lists, "signal": frozenset(entry.get("signal", ()))})


def fill(template: str, known: Mapping[str, str]) -> str:
    """``template`` with each {name} from ``known``; a part in [ ] is left out where a name in it is not known."""

    def part(match: re.Match[str]) -> str:
        return match[1] if all(known.get(name) for name in _NAME.findall(match[1])) else ""

    return _NAME.sub(lambda match: known[match[1]], _OPTIONAL.sub(part, template)).strip()


def groups(patterns: Iterable[re.Pattern[str]], lines: Iterable[str]) -> dict[str, str]:
    """The named groups of the first line that each pattern fits; the first value of a name counts."""
    found: dict[str, str] = {}
    kept = tuple(lines)
    for pattern in patterns:
        match = next((hit for line in kept if (hit := pattern.search(line))), None)
        if match is not None:
            found |= {name: value for name, value in match.groupdict().items() if value and name not in found}
    return found


def any_fits(patterns: Patterns, lines: Iterable[str]) -> bool:
    """Whether a pattern fits a line; True where there are no patterns."""
    return not patterns or any(pattern.search(line) for line in lines for pattern in patterns)


def _bytes(text: str) -> float:
    size = _SIZE.search(text)
    return float(size[1]) * 1024.0 ** " KMGT".index(size[2] or " ") if size else 0.0
