"""``judge`` over simulated runs: how often nothing is called something, what is found, and whether intervals hold."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.calibration.series import RUNS, Floats
from benchmarks.calibration.tables import Table, percent
from harness.comparison import Judgement
from harness.explain.judging.judge import ASSUMED, MARGIN, judge

SIDES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
HISTORY = 14
"""Earlier runs where a side has too few to be tested."""

SHORT_HISTORY = 5


@dataclass(frozen=True)
class Cell:
    """Pairs without a difference: of one family, with so many runs a side and in the history."""

    family: str
    side: int
    history: int
    pairs: int
    called: float  # share called SLOWER or FASTER
    same: float
    covered: float  # share of intervals that hold the truth
    found: float  # the slowdown, ln, that 9 in 10 pairs would have been called SLOWER at


def abba(values: Floats, side: int) -> tuple[Floats, Floats]:
    """The runs of two sides that took turns: A B B A A B B A ..."""
    turns = np.array([(i % 4) in (1, 2) for i in range(2 * side)])
    return values[~turns], values[turns]


def rates(slowness: Floats) -> list[float]:
    """Units a second, from ln(seconds a unit)."""
    return [float(rate) for rate in 1000 * np.exp(-slowness)]


def pairs(family: str, side: int, history: int, count: int) -> Iterator[Judgement]:
    """``count`` pairs of sides in which nothing differs, judged. The same seed gives the same pairs."""
    dice = np.random.default_rng([11, side, history, sum(map(ord, family))])
    for _ in range(count):
        values = RUNS[family](dice, history + 2 * side)
        a, b = abba(values[history:], side)
        yield judge("throughput", rates(a), rates(b), history=[rates(values[:history])])


def found_at(judged: Judgement) -> float:
    """The least slowdown, on logarithms, at which this pair would be SLOWER: intervals move with what they are of."""
    assert judged.ratio is not None
    return max(math.log(judged.ratio.high), math.log(judged.ratio.low) + math.log1p(MARGIN))


def cell(family: str, side: int, history: int, count: int) -> Cell:
    """One cell: everything but ``found`` is exact counting."""
    judged = list(pairs(family, side, history, count))
    called = [j.verdict in ("SLOWER", "FASTER") for j in judged]
    covered = [j.ratio is not None and j.ratio.low <= 1 <= j.ratio.high for j in judged]
    same = [j.verdict == "SAME" for j in judged]
    found = float(np.quantile([found_at(j) for j in judged], 0.9))
    shares = [float(np.mean(each)) for each in (called, same, covered)]
    return Cell(family, side, history, count, shares[0], shares[1], shares[2], found)


def cells(count: int) -> list[Cell]:
    """Every family with 1 to 10 runs a side, few runs with a history and none, many runs without."""
    found = []
    for family in RUNS:
        for side in SIDES:
            for history in {1: (0, SHORT_HISTORY, HISTORY), 2: (0, HISTORY), 3: (0, HISTORY)}.get(side, (0,)):
                found.append(cell(family, side, history, count if side < 8 else count // 5))
    return found


def tables(found: list[Cell]) -> list[Table]:
    """False alarms, coverage and what is found, a row a family and the mean of all."""
    kinds = list(dict.fromkeys((c.side, c.history) for c in found))
    header = ("runs in which nothing changed", *(_kind(side, history) for side, history in kinds))
    notes = {
        "called": "Share of pairs without a difference called SLOWER or FASTER: at most 5 % is meant. "
        f"{found[0].pairs} pairs a cell, a fifth of that from 8 runs a side on. h: runs in the history.",
        "covered": "Share of intervals that hold the true ratio; 95 % is meant.",
        "found": "The smallest slowdown (of the logarithm) that 9 in 10 pairs are called SLOWER for. With 1 or 2 runs "
        f"a side and no history a spread of {percent(ASSUMED['throughput'])} is assumed.",
    }
    titles = {"called": "False alarms", "covered": "Coverage", "found": "The smallest slowdown found 9 times in 10"}
    made = []
    for figure, note in notes.items():
        by = {(c.family, c.side, c.history): getattr(c, figure) for c in found}
        rows = [(family, *(percent(by[family, *kind]) for kind in kinds)) for family in RUNS]
        means = tuple(percent(float(np.mean([by[family, *kind] for family in RUNS]))) for kind in kinds)
        made.append(Table(titles[figure], note, header, (*rows, ("all", *means))))
    return made


def _kind(side: int, history: int) -> str:
    return f"{side}, h {history}" if history else str(side)
