"""Whether a figure of two sides differs: FASTER, SLOWER, SAME or UNKNOWN, and what that rests on.

The sample is the run, never the step: steps of one run are alike, and the next run may differ from all of them. The
figures are compared on logarithms, as a ratio of geometric means. Three methods, the first that applies:

- *tested*: the permutation test of ``permutation.py``, where the runs are enough for it to reach 0.05 (4 against 4);
- *judged*: Student's t with the spread from run to run, pooled within the sides and within the workload's history,
  never less than that within the sides alone or than the standard errors within the runs, from 3 degrees of freedom
  on. Where a side is a single run the 99 % quantile stands in for the 95 % one: runs spread with heavier tails than
  the normal law's, which a mean of several runs hides and a single run does not. In simulation
  (``benchmarks/calibration``) 95 % called 7 to 8 of 100 unchanged pairs different, and 99 % calls 3 to 4;
- *assumed*: the normal quantile with a stated spread, or the one seen where that is greater.

The verdict is read off the interval. It leaves out "no change" and reaches beyond the margin: SLOWER or FASTER. It
lies within the margin: SAME. Else UNKNOWN, with how many more runs a side would likely settle it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import ndtri, stdtrit

from harness.comparison import Basis, Judgement, Verdict
from harness.evidence import Floats
from harness.explain.judging.permutation import can_reject, permuted
from harness.explain.judging.spread import spread, without_gross
from harness.figures import counted_text, digits
from harness.records import Interval

Figure = Literal["throughput", "first step"]

MARGIN = 0.02
LEVEL = 0.05
"""How often a pair of sides without a difference may be called different."""

ASSUMED = {"throughput": 0.05, "first step": 0.15}
"""Relative spread from run to run where nothing is known of it: set-up reads disks and caches, and varies more."""

FEWEST_FREEDOM = 3
MOST_RUNS = 50
"""Runs a side beyond which nobody would go to settle a question."""


@dataclass(frozen=True)
class _Rest:
    """What a verdict rests on: the interval on logarithms, and how it was come by."""

    basis: Basis
    low: float
    high: float
    sigma: float
    p: float | None = None
    others: int = 0  # runs of the history that gave the spread


def judge(
    figure: Figure,
    before: Sequence[float],
    after: Sequence[float],
    *,
    history: Sequence[Sequence[float]] = (),
    within: Sequence[float] = (),
    margin: float = MARGIN,
    looks: int = 1,
    interleaved: bool | None = None,
) -> Judgement:
    """``after`` against ``before``: one value a run, positive, in units a second or in seconds to the first step.

    history      the values of other runs, on neither side, in groups within which nothing was changed
    within       relative standard errors of the sides' values within their runs, in any order
    margin       the relative difference below which it is the same
    looks        how often one looks in all, if one looks while runs are added: each at 0.05 / looks (Bonferroni)
    interleaved  whether the sides took turns; None where nobody knows

    Raises ValueError for a value that is not positive, a negative margin, or fewer than one look.
    """
    if margin < 0 or looks < 1:
        raise ValueError(f"margin {margin} must not be negative, and looks {looks} at least 1")
    a, b, others = _logs(before), _logs(after), [without_gross(_logs(group)) for group in history]
    runs = (len(a), len(b))
    if not len(a) or not len(b):
        side = "either side" if not len(a) and not len(b) else f"the {'first' if not len(a) else 'second'} side"
        return Judgement(figure, "UNKNOWN", "none", runs=runs, margin=margin, words=f"no run on {side} has a {figure}")
    rest = _rest(figure, a, b, others, within, LEVEL / looks)
    change = float(b.mean() - a.mean())
    levels = [float(v[0]) if len(v) == 1 else math.exp(np.log(v).mean()) for v in (before, after)]
    verdict = _verdict(rest.low, rest.high, math.log1p(margin), more_is_faster=figure == "throughput")
    more = _more_runs(rest, change, math.log1p(margin), runs, LEVEL / looks) if verdict == "UNKNOWN" else None
    return Judgement(
        figure=figure,
        verdict=verdict,
        basis=rest.basis,
        ratio=Interval(levels[1] / levels[0], math.exp(rest.low), math.exp(rest.high)),
        before=levels[0],
        after=levels[1],
        runs=runs,
        margin=margin,
        spread=rest.sigma,
        p=rest.p,
        more_runs=more,
        words=_words(rest, runs, looks, interleaved),
    )


def _logs(values: Sequence[float]) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if not np.all(np.isfinite(array) & (array > 0)):
        raise ValueError(f"a run's value must be a positive number, not {[v for v in values if not 0 < v < math.inf]}")
    return np.log(array)


def _rest(
    figure: Figure, a: Floats, b: Floats, others: Sequence[Floats], within: Sequence[float], level: float
) -> _Rest:
    own, pooled = spread([a, b]), spread([a, b, *others])
    if can_reject(len(a), len(b), level):
        p, low, high = permuted(a, b, level)
        return _Rest("tested", low, high, own.sigma, p)
    sigma = max(own.sigma, pooled.sigma, math.sqrt(sum(w * w for w in within) / len(within)) if within else 0.0)
    if pooled.freedom >= FEWEST_FREEDOM:
        tail = level / (5 if min(len(a), len(b)) == 1 else 1)
        basis: Basis = "judged"
        quantile = float(stdtrit(pooled.freedom, 1 - tail / 2))
    else:
        basis, sigma = "assumed", max(sigma, ASSUMED[figure])
        quantile = float(ndtri(1 - level / 2))
    half = quantile * sigma * math.sqrt(1 / len(a) + 1 / len(b))
    change = float(b.mean() - a.mean())
    return _Rest(
        basis, change - half, change + half, sigma, others=sum(len(group) for group in others if len(group) > 1)
    )


def _verdict(low: float, high: float, margin: float, more_is_faster: bool) -> Verdict:
    """``low`` to ``high``: of ln(after / before)."""
    if -margin <= low and high <= margin:
        return "SAME"
    if low > 0 or high < 0:
        return "FASTER" if (low > 0) == more_is_faster else "SLOWER"
    return "UNKNOWN"


def _more_runs(rest: _Rest, change: float, margin: float, runs: tuple[int, int], level: float) -> int | None:
    """How many more runs a side would likely (4 times in 5) settle it, if the difference and the spread stay.

    None where none would: the difference lies at the margin, or is lost in the spread. Where the spread is assumed,
    the runs that measure it: what they will show is not known.
    """
    fewest = next(n for n in range(2, MOST_RUNS) if can_reject(n, n, level))
    if rest.basis == "assumed":
        return max(1, fewest - min(runs))
    aim = abs(change) if abs(change) > margin else margin - abs(change)
    for n in range(max(fewest, min(runs) + 1), MOST_RUNS + 1):
        quantiles = float(stdtrit(2 * n - 2, 1 - level / 2)) + float(ndtri(0.8))
        if quantiles * rest.sigma * math.sqrt(2 / n) <= aim:
            return n - min(runs)
    return None


def _words(rest: _Rest, runs: tuple[int, int], looks: int, interleaved: bool | None) -> str:
    """One sentence for a person who knows no statistics."""
    sides = _sides(runs)
    percent = f"{digits(100 * rest.sigma, 2)} %"
    if rest.basis == "tested":
        order = {True: ", interleaved", False: ", one side after the other", None: ""}[interleaved]
        text = f"tested: {sides}{order}; if nothing had changed, a difference this large would come up {_odds(rest.p)}"
        if interleaved is False:
            text += ", and a change of the machine in between would look the same"
    elif rest.basis == "judged":
        of = f" of {rest.others} earlier runs" if rest.others > 1 else " among them"
        text = f"judged: {sides} against the run-to-run spread of {percent}{of}"
    else:
        text = f"assumed: {sides} and too few others, so a spread of {percent} from run to run is assumed"
    return text + (f" (corrected for {looks} looks)" if looks > 1 else "")


def _sides(runs: tuple[int, int]) -> str:
    if runs[0] == runs[1]:
        return "one run a side" if runs[0] == 1 else f"{runs[0]} runs a side"
    return f"{counted_text(runs[0], 'run')} against {runs[1]}"


def _odds(p: float | None) -> str:
    assert p is not None
    if p >= 0.995:
        return "every time"
    if p >= 0.01:
        times = round(100 * p)
        return f"{'once' if times == 1 else f'{times} times'} in 100"
    times = round(1000 * p)
    return f"{'once' if times == 1 else f'{times} times'} in 1000" if times else "less than once in 1000"
