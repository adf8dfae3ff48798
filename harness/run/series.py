"""``telemetry.jsonl`` as series: each number of a sample by its dotted name, ``cpu.use_pct``, ``gpu.0.clock_sm_mhz``.

What throttled a card is a list of reasons in a sample, and a series of 0 and 1 for each reason here:
``gpu.0.throttle.power_cap``. "idle" is always among them where a card says what holds it back.
"""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from harness.evidence import Floats, Series
from harness.run.lines import parsed

MOST = 5_000
"""Samples of a run that are read: of a longer run, one of every so many. That is a dozen for each point of a curve."""


class _Growing:
    """Series while they are read."""

    def __init__(self) -> None:
        self.numbers: defaultdict[str, tuple[array[float], array[float]]] = defaultdict(
            lambda: (array("d"), array("d"))
        )
        self.reasons: defaultdict[str, list[tuple[float, frozenset[str]]]] = defaultdict(list)

    def add(self, sample: dict[str, Any]) -> None:
        t = float(sample["t"])
        if not math.isfinite(t):
            raise ValueError("a sample has a time")
        for group, part in sample.items():
            if group == "gpus":
                for place, card in enumerate(part):
                    self._take(f"gpu.{card.get('index', place)}.", card, t)
            elif isinstance(part, dict):
                self._take(f"{group}.", part, t)

    def _take(self, prefix: str, part: dict[str, Any], t: float) -> None:
        """The numbers of one object, and the reasons that are given as a text."""
        for key, value in part.items():
            name = prefix + key
            if isinstance(value, str):
                self.reasons[name].append((t, frozenset(value.split(",")) if value else frozenset()))
            elif isinstance(value, int | float) and key != "index":
                columns = self.numbers.get(name)
                if columns is None:
                    columns = self.numbers[name] = (array("d"), array("d"))
                columns[0].append(t)
                columns[1].append(value)

    def finish(self) -> dict[str, Series]:
        found = {name: Series(*map(_floats, columns)) for name, columns in self.numbers.items()}
        for name, said in self.reasons.items():
            times = np.array([t for t, _ in said])
            for reason in sorted({"idle"}.union(*(reasons for _, reasons in said))):
                found[f"{name}.{reason}"] = Series(times, np.array([float(reason in reasons) for _, reasons in said]))
        return found


def read_series(path: Path) -> tuple[dict[str, Series], int]:
    """The series, and how many complete lines are no sample. Raises OSError where the file cannot be read."""
    growing, skipped = _Growing(), 0
    with path.open("rb") as file:
        first = file.readline()
        file.seek(0)
        every = max(1, math.ceil(path.stat().st_size / max(1, len(first)) / MOST))
        for number, line in enumerate(file):
            if number % every or not line.endswith(b"\n"):
                continue
            try:
                growing.add(parsed(line))
            except (ValueError, KeyError, TypeError, AttributeError):
                skipped += 1
    return growing.finish(), skipped


def _floats(column: array[float]) -> Floats:
    return np.frombuffer(column)
