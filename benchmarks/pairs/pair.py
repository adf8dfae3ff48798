"""A labelled pair: runs before and after one or two true changes among ten harmless ones, written to disk.

What a seed gives is fixed. Even seeds are for development; odd ones are set aside and scored once.
"""

from __future__ import annotations

import math
import random
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.pairs import gpu, host, software, work
from benchmarks.pairs.bases import base
from benchmarks.pairs.harmless import HARMLESS, Harmless
from benchmarks.pairs.plan import Plan, bottleneck
from benchmarks.pairs.ways import Patterns, Way
from benchmarks.pairs.write import write_run

KINDS: Mapping[str, tuple[Way, ...]] = {
    "cache": software.CACHE,
    "recompiles": software.RECOMPILES,
    "dense": (*gpu.DENSE, software.UNCOMPILED),
    "throttle": gpu.THROTTLE,
    "neighbour": (gpu.NEIGHBOUR, host.NEIGHBOUR),
    "cpu": host.CPU,
    "data": host.DATA,
    "padding": work.PADDED,
    "shape": work.SHAPES,
    "batch": work.BATCHES,
    "package": software.PACKAGES,
    "topology": gpu.TOPOLOGY,
    "interval": software.INTERVALS,
    "memory": (host.SWAP, host.LIMIT, gpu.RETRIES),
    "patch": software.PATCHES,
    "dataset": work.DATASETS,
}
"""The kinds that the rules are to know, and the ways in which each comes about here."""

NONE = "no change"
SEEDS = 20
"""Pairs of each kind, in both halves together."""

SEEDS_NONE = 100
HARMLESS_CHANGES = 10
TWO = 0.3
"""Share of pairs with two true changes."""

TURNED = 0.125
"""Share of pairs in which the bad run came first, so that the question is what made it faster."""

ASSUMED = 0.05
"""What one must allow for from run to run where nothing is known of it: this much, as a standard deviation."""

DAY = 86_400.0
BEGIN = 1_790_000_000.0  # unix seconds


@dataclass(frozen=True)
class Pair:
    """Two sides of run folders, and the truth about them.

    history  earlier runs of what ran before, where there are any
    truth    for each true change, the facts of which any is a right answer
    """

    kind: str
    seed: int
    name: str  # of the ways
    base: str
    before: tuple[Path, ...]
    after: tuple[Path, ...]
    history: tuple[Path, ...]
    truth: tuple[Patterns, ...]
    synthetic: bool
    turned: bool = False
    size: float = 1.0


def seeds(kind: str, half: str) -> range:
    """The seeds of a kind in one half, "dev" or "held"."""
    count = SEEDS_NONE if kind == NONE else SEEDS
    return range({"dev": 0, "held": 1}[half], count, 2)


def fresh_seeds(kind: str, first: int) -> range:
    """Seeds from ``first`` on, of neither half: as many as both have of a kind, and half as many without a change."""
    return range(first, first + (SEEDS_NONE // 2 if kind == NONE else SEEDS))


def pair(kind: str, seed: int, into: Path) -> Pair:
    """Write the runs of one pair under ``into`` and say what is true of them."""
    dice = random.Random(f"{kind} {seed}")
    numbers = np.random.default_rng([zlib.crc32(kind.encode()), seed])
    way = None if kind == NONE else _way(KINDS[kind], seed)
    name = dice.choice(("toy", "tiny", "box", "box") if way is None else way.bases)
    runs, history = _runs(dice)
    good = base(name, dice)
    ways = [] if way is None else [way, *_second(kind, way, name, dice)]
    sizes = _sizes(ways, good, runs, history, dice)
    bad, truth = _changed(good, ways, sizes, dice)
    if len(truth) < len(ways):
        ways, sizes = ways[:1], sizes[:1]
    turned = bool(ways) and dice.random() < TURNED
    columns = seed % 8 < 2  # writing them takes longer than all the rest
    first, then = (bad, good) if turned else (good, bad)
    counts = ((first, history, 0.0), (first, runs, 0.5), (then, runs, 1.5))
    written = [
        tuple(write_run(p.copy(), into, BEGIN + (day + n / 40) * DAY, numbers, columns) for n in range(count))
        for p, count, day in counts
    ]
    return Pair(
        kind, seed, " and ".join(w.name for w in ways), name, written[1], written[2], written[0],
        truth, good.synthetic, turned, math.prod(sizes),
    )  # fmt: skip


def _way(ways: tuple[Way, ...], seed: int) -> Way:
    """Both halves go through the ways in turn, so that each has all of them."""
    return ways[seed // 2 % len(ways)]


def _runs(dice: random.Random) -> tuple[int, int]:
    """Runs a side, and earlier runs of the side before."""
    runs = dice.choices((1, 2, 3, 4), (4, 2, 1, 3))[0]
    return runs, dice.choice((0, 4)) if runs < 4 else 0


def _second(kind: str, way: Way, name: str, dice: random.Random) -> list[Way]:
    """A second true change, of another kind, that makes other phases grow."""
    if dice.random() >= TWO:
        return []
    others = [
        w
        for k, ways in KINDS.items()
        for w in ways
        if k != kind and name in w.bases and not w.first and not way.first and not w.grows & way.grows
    ]
    return [dice.choice(others)] if others else []


def least_visible(good: Plan, runs: int, history: int) -> float:
    """The smallest slowdown that so many runs can show, whoever looks: four standard errors of what runs spread.

    Where too few runs say how they spread, ``ASSUMED`` has to be taken for it; three standard errors of that.
    """
    spread, errors = (good.noise.between, 4.0) if runs >= 4 or history >= 4 else (ASSUMED, 3.0)
    return math.exp(errors * spread * math.sqrt(1 / runs + 1 / max(runs, 1)))


def _sizes(ways: list[Way], good: Plan, runs: int, history: int, dice: random.Random) -> list[float]:
    """How many times as slow each change makes it: log-uniform from what can be seen to the most that it can do."""
    found: list[float] = []
    for way in ways:
        least, most = max(way.least, least_visible(good, runs, history)), way.most
        if found:  # the second is neither dwarfed by the first nor dwarfs it
            least, most = max(least, found[0] ** 0.5), min(most, max(found[0], least))
        least = min(least, most)
        found.append(math.exp(dice.uniform(math.log(least), math.log(max(least, most)))))
    return found


def _changed(good: Plan, ways: list[Way], sizes: list[float], dice: random.Random) -> tuple[Plan, tuple[Patterns, ...]]:
    """The plan with its changes, and the truth about them.

    A second change that makes another role the bottleneck hides the first, which then makes no difference any more:
    such a one is left out.
    """
    bad = good.copy()
    for change in _harmless(bad, ways, dice):
        change.apply(bad, dice)
    truth: list[Patterns] = []
    for way, size in zip(ways, sizes, strict=True):
        tried = bad.copy()
        found = way.apply(tried, size, dice)
        if truth and bottleneck(tried) != bottleneck(bad):
            break
        bad = tried
        truth.append(found)
    return bad, tuple(truth)


def _harmless(plan: Plan, ways: list[Way], dice: random.Random) -> list[Harmless]:
    """Ten changes that did nothing and that cannot be taken for what the true ones did, unless those left a mark."""
    decisive = all(way.decisive for way in ways)
    overlaps = not ways or (decisive and dice.random() < 0.3)
    grown = frozenset[str]() if overlaps else frozenset().union(*(way.grows for way in ways))
    fitting = [h for h in HARMLESS if h.fits(plan, grown)]
    return dice.sample(fitting, HARMLESS_CHANGES)
