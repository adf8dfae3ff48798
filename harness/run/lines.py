"""``events.jsonl`` read fast, whether the run has ended or goes on: the steps as columns, the rest as records.

Steps are nearly all of the lines. Where their columns are on disk already their lines are not parsed: the recorder
writes the kind first, so that one look at a line's beginning tells.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import orjson

from harness.records import Event, event_from_json
from harness.run.growing import GrowingSteps

E = TypeVar("E")

STEP = b'{"kind":"step"'
BLOCK = 1 << 18
NUMBERS = ("t", "seconds", "step", "hits", "misses", "bypasses")
TEXTS = ("name", "text", "path", "reason", "level")


@dataclass
class Lines:
    """What the lines say. ``skipped``: complete lines that are no event; ``torn``: the last one has no end."""

    steps: GrowingSteps = field(default_factory=GrowingSteps)
    others: list[Event] = field(default_factory=list)
    skipped: int = 0
    torn: bool = False

    def all_of(self, kind: type[E]) -> tuple[E, ...]:
        """The events of one kind, in order."""
        return tuple(event for event in self.others if isinstance(event, kind))


def read_lines(path: Path, steps: bool) -> Lines:
    """The events of a file; without its steps where ``steps`` is False. Raises OSError where it cannot be read."""
    found = Lines()
    with path.open("rb", buffering=0) as file:
        rest = b""
        while block := file.read(BLOCK):
            whole, end, rest = (rest + block).rpartition(b"\n")
            if steps or not _steps_alone(whole + end):
                _take_all(found, whole.split(b"\n") if end else [], steps)
    found.torn = bool(rest) and (steps or not rest.startswith(STEP))
    return found


def _steps_alone(lines: bytes) -> bool:
    """Whether each of the lines is a step's: counting bytes takes a tenth of the time of looking at lines."""
    return lines.count(b"\n") == lines.count(b"\n" + STEP) + lines.startswith(STEP)


def _take_all(found: Lines, lines: Sequence[bytes], steps: bool) -> None:
    for line in lines:
        if line.startswith(STEP) and not steps:
            continue
        try:
            _take(found, parsed(line), steps)
        except (ValueError, KeyError, TypeError, AttributeError):
            found.skipped += 1


def parsed(line: bytes) -> Any:
    """One line's JSON. Raises ValueError where it is none. Python's own reader takes the NaN that orjson refuses."""
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return json.loads(line)


def _take(found: Lines, data: Any, steps: bool) -> None:
    if data["kind"] == "step":
        if steps:
            found.steps.add(data)
        return
    event = event_from_json(data)
    if event is not None:
        _check(event)
        found.others.append(event)


def _check(event: Event) -> None:
    """Raises ValueError for a field that is not what its name says: nobody who reads it should have to ask."""
    for name, value in vars(event).items():
        if name in NUMBERS and not (isinstance(value, int | float) and math.isfinite(value)):
            raise ValueError(f"{name} is no number")
        if name in TEXTS and not isinstance(value, str):
            raise ValueError(f"{name} is no text")
        if name == "facts" and not isinstance(value, dict):
            raise ValueError("facts are an object")
