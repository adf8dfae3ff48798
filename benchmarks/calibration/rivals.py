"""The same series through others' methods: Mann-Whitney on steps, a t-test on steps, Otava on runs and on steps.

Each pair is two sides of runs, each run a level (of a family of ``RUNS``) and its steps (of a family of ``STEPS``).
``judge`` sees a figure a run; Mann-Whitney (as asv does on samples) and Student's t (as pyperf does) see all steps of
each side; Otava sees the runs, or the steps in blocks, first all of A and then all of B, and calls a pair different
that has a change point where B begins. Each method gets the sign of the difference for nothing: a difference either
way counts, and no margin.

A method's own threshold says little, so each is also set to the threshold at which it finds the slowdown as often as
``judge`` does, and its false alarms are counted there. Nobody who uses it has that threshold: it comes from the truth.
The slowdown is of one size for all pairs, or as many times the run-to-run spread of each pair's workload: which
difference means anything depends on the workload, and a threshold that suits one does not suit the next. The last
table is the fair one: a method has one threshold, whatever it is used on.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import stats

from benchmarks.calibration.runs import HISTORY, abba, rates
from benchmarks.calibration.series import RUNS, STEPS, Floats
from benchmarks.calibration.tables import Table, percent
from harness.explain.judging.judge import judge
from harness.pin import venvs

N_STEPS = 200
BLOCK = 20  # steps that Otava sees as one value: its time grows with the square of what it sees
SLOWDOWN = 0.05
SPREADS = 4.0  # a slowdown, in run-to-run spreads of the workload
PVALUES = (1e-8, 1e-4, 0.001, 0.01, 0.05, 0.2, 0.4)
OTAVA_DEFAULT = 0.001


class Pair(NamedTuple):
    """ln(seconds a step) of each side, (runs, steps), in which nothing differs; and the history's run levels."""

    a: Floats
    b: Floats
    history: Floats
    slowdown: float  # ln, to be put on b


class Rival(NamedTuple):
    """A method and, for every pair, a score that is greater the surer it is of a difference."""

    name: str
    usual: float  # the score from which on it says so by itself
    same: Floats
    slower: Floats


class Scores(NamedTuple):
    """What ``judge`` calls different, and how sure the rivals are, in one setting."""

    setting: str
    same: Floats
    slower: Floats
    rivals: tuple[Rival, ...]

    @property
    def names(self) -> set[str]:
        return {rival.name for rival in self.rivals}


def make(count: int, side: int, relative: bool) -> list[Pair]:
    """``count`` pairs over all families, which take turns."""
    dice = np.random.default_rng([13, side])
    families, inner = list(RUNS.values()), list(STEPS.values())
    spreads = [float(np.diff(family(dice, 20_000)).std() / np.sqrt(2)) for family in families]
    pairs = []
    for i in range(count):
        levels = families[i % len(families)](dice, HISTORY + 2 * side)
        steps = np.array([inner[i // len(families) % len(inner)](dice, N_STEPS) for _ in levels])
        a, b = abba(np.arange(2 * side, dtype=np.float64), side)
        rows = levels[HISTORY:, None] + steps[HISTORY:]
        history = levels[:HISTORY] + np.log(np.exp(steps[:HISTORY]).mean(axis=1))
        slowdown = SPREADS * spreads[i % len(families)] if relative else SLOWDOWN
        pairs.append(Pair(rows[a.astype(int)], rows[b.astype(int)], history, slowdown))
    return pairs


def score(count: int, side: int, relative: bool) -> Scores:
    """Every method on the same pairs, ``side`` runs a side, slowed by one size or ``relative`` to each one's spread."""
    pairs = make(count, side, relative)
    same, slower = (np.array([_ours(p, by * p.slowdown) for p in pairs]) for by in (0, 1))
    rivals = [_on_steps("Mann-Whitney on steps", _mann_whitney, pairs), _on_steps("t-test on steps", _t_test, pairs)]
    if side > 1:
        rivals.append(_otava("Otava on runs", pairs, lambda x: np.log(np.exp(x).mean(axis=1)), near=0))
    rivals.append(_otava("Otava on steps", pairs, _in_blocks, near=N_STEPS // BLOCK // 4))
    size = f"{SPREADS:.0f} run-to-run spreads of the workload" if relative else percent(SLOWDOWN)
    return Scores(f"{side} run{'s' if side > 1 else ''} a side, slowed by {size}", same, slower, tuple(rivals))


def tables(found: Sequence[Scores]) -> list[Table]:
    """One for each setting, and one of all of them, for which each method has one threshold."""
    return [*(_table(each.setting, [each]) for each in found), _table("all of these together", found)]


def _table(name: str, found: Sequence[Scores]) -> Table:
    """A rival that is not in every setting is held against ``judge`` in those in which it is."""
    rows: list[tuple[str, ...]] = [_of_judge("judge", found)]
    for rival in dict.fromkeys(r.name for each in found for r in each.rivals):
        those = [(each, next(r for r in each.rivals if r.name == rival)) for each in found if rival in each.names]
        if len(those) < len(found):
            rows.append(_of_judge(f"judge, where {rival}", [each for each, _ in those]))
        same, slower = (np.concatenate([getattr(r, which) for _, r in those]) for which in ("same", "slower"))
        power = float(np.mean(np.concatenate([each.slower for each, _ in those])))
        rows.append(_row(Rival(rival, those[0][1].usual, same, slower), power))
    count = sum(len(each.same) for each in found)
    return Table(
        title=f"Others on the same series: {name}",
        note=f"{count} pairs over all families, {N_STEPS} steps a run; judge has {HISTORY} runs of history where a "
        "side has fewer than 4. At equal power: with the threshold at which it finds the slowdown as often as judge, "
        "as nearly as its thresholds go (the power reached is given); nobody who uses it knows that threshold.",
        header=("method", "false alarms", "finds", "false alarms at equal power", "power reached"),
        rows=tuple(rows),
    )


def _of_judge(name: str, found: Sequence[Scores]) -> tuple[str, ...]:
    same, slower = (float(np.mean(np.concatenate([getattr(e, which) for e in found]))) for which in ("same", "slower"))
    return (name, percent(same), percent(slower), percent(same), percent(slower))


def _ours(pair: Pair, slowdown: float) -> bool:
    a, b = (np.log(np.exp(side).mean(axis=1)) for side in (pair.a, pair.b + slowdown))
    history = [rates(pair.history)] if len(a) < 4 else []
    return judge("throughput", rates(a), rates(b), history=history, margin=0.0).verdict in ("SLOWER", "FASTER")


def _row(rival: Rival, power: float) -> tuple[str, ...]:
    """The threshold is the greatest at which it finds as much as ``power``, or where it finds most."""
    thresholds = np.unique(np.concatenate([rival.slower, rival.same]))
    found = np.array([np.mean(rival.slower >= t) for t in thresholds])
    enough = np.flatnonzero(found >= power)
    at = thresholds[enough[-1]] if len(enough) else thresholds[int(np.argmax(found * (thresholds > 0)))]
    own = (float(np.mean(scores >= rival.usual)) for scores in (rival.same, rival.slower))
    equal = (float(np.mean(scores >= at)) for scores in (rival.same, rival.slower))
    return (rival.name, *map(percent, own), *map(percent, equal))


def _on_steps(name: str, score: Callable[[Floats, Floats], float], pairs: Sequence[Pair]) -> Rival:
    same, slower = (
        np.array([score(np.exp(p.a).ravel(), np.exp(p.b + by * p.slowdown).ravel()) for p in pairs]) for by in (0, 1)
    )
    return Rival(name, float(stats.norm.ppf(0.975)), same, slower)


def _mann_whitney(a: Floats, b: Floats) -> float:
    """|z| of the U statistic: a p-value that small is 0 as a number."""
    u = float(stats.mannwhitneyu(a, b).statistic)
    n, m = len(a), len(b)
    return abs(u - n * m / 2) / float(np.sqrt(n * m * (n + m + 1) / 12))


def _t_test(a: Floats, b: Floats) -> float:
    return abs(float(stats.ttest_ind(a, b).statistic))


def _in_blocks(side: Floats) -> Floats:
    return np.asarray(np.log(np.exp(side).reshape(-1, BLOCK).mean(axis=1)))


def _otava(name: str, pairs: Sequence[Pair], seen: Callable[[Floats], Floats], near: int) -> Rival:
    """The score is -log10 of the smallest p-value at which a change point stands where B begins; -inf for none."""
    scores = []
    for by in (0, 1):
        series = [np.exp(np.concatenate([seen(p.a), seen(p.b + by * p.slowdown)])) for p in pairs]
        begins = [len(seen(p.a)) for p in pairs]
        found = otava(series, PVALUES)
        scores.append(np.array([_score(each, begin, near) for each, begin in zip(found, begins, strict=True)]))
    return Rival(name, -float(np.log10(OTAVA_DEFAULT)), scores[0], scores[1])


def _score(found: Sequence[Sequence[int]], begin: int, near: int) -> float:
    hits = [p for p, points in zip(PVALUES, found, strict=True) if any(abs(i - begin) <= near for i in points)]
    return -float(np.log10(min(hits))) if hits else -np.inf


def otava(series: Sequence[Floats], pvalues: Sequence[float]) -> list[list[list[int]]]:
    """For each series and p-value, the change points by Otava's library, in its own environment."""
    python = venvs.ensure("otava").python
    child = Path(__file__).with_name("otava_child.py")
    asked = json.dumps({"series": [list(map(float, each)) for each in series], "pvalues": list(pvalues)})
    done = subprocess.run([python, child], input=asked, text=True, stdout=subprocess.PIPE, check=True)
    answer: list[list[list[int]]] = json.loads(done.stdout)
    return answer
