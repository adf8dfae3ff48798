"""What a race gave: its tries as they happen, in a folder of its own, and the count of each cell."""

from __future__ import annotations

import json
import re
import secrets
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harness.records import SCHEMA, Value
from harness.run.race.grid import Cell, Grid
from harness.run.race.outcome import Outcome, Verdict

TRIES = "tries.jsonl"


@dataclass(frozen=True)
class Try:
    """One try of a cell, numbered from 1. Times in seconds; ``began_at`` since the epoch."""

    cell: Cell
    number: int
    verdict: Verdict
    seconds: float
    began_at: float

    def to_json(self) -> dict[str, Any]:
        """Flat, for programs: the cell by its key."""
        times = {"seconds": round(self.seconds, 3), "began_at": round(self.began_at, 3)}
        return {"cell": self.cell.key, "number": self.number, **asdict(self.verdict), **times}


@dataclass
class Tally:
    """The tries of one cell so far. ``seen``: the tries in which the seeds' error was seen, whatever they ended in."""

    cell: Cell
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    seen: int = 0
    seconds: float = 0.0

    def add(self, made: Try) -> None:
        self.outcomes[made.verdict.outcome] += 1
        self.seen += made.verdict.seen > 0
        self.seconds += made.seconds

    @property
    def tries(self) -> int:
        return self.outcomes.total()

    @property
    def passed(self) -> int:
        return self.outcomes["passed"]

    def to_json(self) -> dict[str, Any]:
        counts = {"tries": self.tries, "passed": self.passed, "outcomes": dict(self.outcomes), "seen": self.seen}
        return {"key": self.cell.key, **asdict(self.cell), **counts}


def tallies(cells: Sequence[Cell], made: Iterable[Try]) -> list[Tally]:
    """The count of each cell, also of those that were not tried (any more)."""
    by_cell = {cell: Tally(cell) for cell in cells}
    for each in made:
        by_cell[each.cell].add(each)
    return list(by_cell.values())


@dataclass
class Race:
    """A race while it goes, and its record. Every try is in ``tries.jsonl`` before the next one starts."""

    folder: Path
    grid: Grid
    machine: Mapping[str, Value]
    began_at: float = field(default_factory=time.time)
    made: list[Try] = field(default_factory=list)
    interrupted: bool = False

    @classmethod
    def begin(cls, races: Path, grid: Grid, machine: Mapping[str, Value]) -> Race:
        """A new, empty folder under ``races``, named for the time (UTC)."""
        while True:
            folder = races / f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"
            try:
                folder.mkdir(parents=True)
            except FileExistsError:
                continue
            return cls(folder, grid, machine)

    @property
    def id(self) -> str:
        return self.folder.name

    def add(self, made: Try) -> None:
        """Keep a try, on disk first."""
        with (self.folder / TRIES).open("a", encoding="utf-8") as file:
            file.write(json.dumps(made.to_json(), ensure_ascii=False) + "\n")
        self.made.append(made)

    def tallies(self) -> list[Tally]:
        return tallies(self.grid.cells(), self.made)

    @property
    def passed(self) -> bool:
        """Whether every try that was asked for was made, and passed."""
        asked = len(self.grid.cells()) * self.grid.tries
        return len(self.made) == asked and all(each.verdict.outcome == "passed" for each in self.made)

    def to_json(self) -> dict[str, Any]:
        """Everything, in one object."""
        return {
            "schema": SCHEMA,
            "id": self.id,
            "folder": str(self.folder),
            "began_at": self.began_at,
            "interrupted": self.interrupted,
            "grid": self.grid.to_json(),
            "machine": dict(self.machine),
            "cells": [tally.to_json() for tally in self.tallies()],
            "tries": [each.to_json() for each in self.made],
        }


def metric_key(cell: str) -> str:
    """A cell's key as a metric that MLflow takes."""
    return f"passed/{re.sub(r'[^A-Za-z0-9_.-]', '_', cell)}"
