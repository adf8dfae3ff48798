"""``telemetry.jsonl`` as series: each number of a sample by its dotted name, ``cpu.use_pct``, ``gpu.0.clock_sm_mhz``.

What throttled a card is a list of reasons in a sample, and a series of 0 and 1 for each reason here:
``gpu.0.throttle.power_cap``. "idle" is always among them where a card says what holds it back.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from harness.evidence import Floats, Series, Whole
from harness.run.lines import parsed

MOST = 4_000
"""Samples of a long run that are read: ten for each point of a curve. Of a run of twice as many, all are."""

Part = Mapping[str, Any]


def read_series(path: Path) -> tuple[dict[str, Series], int]:
    """The series, and how many complete lines are no sample. Raises OSError where the file cannot be read."""
    times: list[float] = []
    parts: defaultdict[str, list[tuple[int, Part]]] = defaultdict(list)  # by prefix: sample, and its numbers there
    skipped = 0
    with path.open("rb") as file:
        for line in _lines(file, path.stat().st_size):
            try:
                t, found = _sample(parsed(line))
            except (ValueError, KeyError, TypeError, AttributeError):
                skipped += 1
                continue
            for prefix, part in found.items():
                parts[prefix].append((len(times), part))
            times.append(t)
    return _series(np.array(times), parts), skipped


def _lines(file: BinaryIO, size: int) -> Iterator[bytes]:
    """The complete lines; of a long file, the next one from each of ``MOST`` places that are equally far apart."""
    apart = size // MOST
    length = max(1, len(file.readline()))
    file.seek(0)
    if apart < 2 * length:
        yield from (line for line in file if line.endswith(b"\n"))
        return
    reached = 0
    for place in range(0, size, apart):
        if place > reached:
            file.seek(place)
            file.readline()  # the rest of a line
        line = file.readline()
        if not line.endswith(b"\n"):
            return
        reached = file.tell()
        yield line


def _sample(data: Any) -> tuple[float, dict[str, Part]]:
    """A sample's time and its objects of numbers. Raises one of the errors above where it is none."""
    t = float(data["t"])
    if not math.isfinite(t):
        raise ValueError("a sample has a time")
    found: dict[str, Part] = {f"{name}.": part for name, part in data.items() if isinstance(part, dict)}
    for place, card in enumerate(data.get("gpus", ())):
        found[f"gpu.{card.get('index', place)}."] = card
    return t, found


def _series(times: Floats, parts: Mapping[str, Sequence[tuple[int, Part]]]) -> dict[str, Series]:
    found: dict[str, Series] = {}
    for prefix, samples in parts.items():
        at = np.array([number for number, _ in samples], dtype=np.int64)
        for key in dict.fromkeys(chain.from_iterable(part for _, part in samples)):
            column = [part.get(key) for _, part in samples]
            try:
                values = np.array(column, dtype=np.float64)  # NaN where there was none
            except (ValueError, TypeError):
                found |= _reasons(prefix + key, times, at, column)
                continue
            known = np.isfinite(values)
            if key != "index" and known.any():
                found[prefix + key] = Series(times[at[known]], values[known])
    return found


def _reasons(name: str, times: Floats, at: Whole, column: Sequence[Any]) -> dict[str, Series]:
    """A series of 0 and 1 for each of the reasons that texts list; none where there are no texts."""
    said = [(number, value.split(",")) for number, value in zip(at, column, strict=True) if isinstance(value, str)]
    if not said:
        return {}
    t = times[[number for number, _ in said]]
    names = {"idle"}.union(*(reasons for _, reasons in said)) - {""}
    flags = {reason: np.array([float(reason in reasons) for _, reasons in said]) for reason in sorted(names)}
    return {f"{name}.{reason}": Series(t, values) for reason, values in flags.items()}
