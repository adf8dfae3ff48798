"""From the figure before to the figure after, phase by phase: the numbers of the waterfall, for terminal and report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from harness import figures
from harness.comparison import UNACCOUNTED, Contribution, Judgement

LEAST, MOST = 3, 10
"""Phases that are shown one by one, however small or many they are."""

NEGLIGIBLE = 0.002
"""Of a log ratio: phases that gave less are added up."""

ROUNDING = 1e-6
"""Of a log ratio: what is more than that was left out of the split, and said."""


@dataclass(frozen=True)
class Fall:
    """One step of the waterfall: the figure is at ``start``, and this phase takes it to ``end``.

    cost_before, cost_after  what the phase costs, in ``figures.cost_unit`` (of the time to the first step: seconds)
    """

    name: str
    start: float
    end: float
    share: float | None
    cost_before: float
    cost_after: float

    @property
    def change(self) -> float:
        return self.end - self.start


def falls(figure: Judgement, contributions: Sequence[Contribution], unit: str) -> tuple[Fall, ...]:
    """The steps, the greatest first; () where there is no split. The last ends on the measured figure after.

    A contribution is of ln(after / before). Times the logarithmic mean of the two figures it is one of after - before
    (Ang 2004, the additive form): the steps do not depend on their order, and two equal shares are equally long.
    """
    if figure.before is None or figure.after is None or not contributions:
        return ()
    factor = 1.0 if figure.figure == "first step" else figures.cost_unit(unit)[1]
    parts = _few([_costed(c, contributions, factor) for c in contributions])
    missing = math.log(figure.after / figure.before) - math.fsum(part.log_ratio for part in parts)
    if abs(missing) > ROUNDING:
        parts.append(Contribution("not in the split", missing, None, 0.0, 0.0))
    mean = _log_mean(figure.before, figure.after)
    ends = [figure.before + mean * sofar for sofar in accumulate(part.log_ratio for part in parts)]
    ends[-1] = figure.after  # but for rounding it is that
    starts = [figure.before, *ends]
    return tuple(
        Fall(part.phase, start, end, part.share, part.before, part.after)
        for part, start, end in zip(parts, starts, ends, strict=False)
    )


def _log_mean(a: float, b: float) -> float:
    return a if math.isclose(a, b, rel_tol=1e-9) else (a - b) / math.log(a / b)


def _costed(part: Contribution, parts: Sequence[Contribution], factor: float) -> Contribution:
    """``part`` with costs that add up to the cost of a useful unit: padding costs what was computed for nothing."""
    before, after = part.before, part.after
    if part.phase == "padding":
        before, after = (
            (ratio - 1) * math.fsum(getattr(p, side) for p in parts if p.phase != "padding")
            for side, ratio in (("before", before), ("after", after))
        )
    return Contribution(part.phase, part.log_ratio, part.share, factor * before, factor * after)


def _few(parts: Sequence[Contribution]) -> list[Contribution]:
    """The greatest first; the smallest, where they are several, as one."""
    ordered = sorted(parts, key=lambda part: -abs(part.log_ratio))
    told = sum(abs(part.log_ratio) >= NEGLIGIBLE for part in ordered)
    count = min(max(told, LEAST), MOST)
    kept, rest = (ordered, []) if len(ordered) <= count + 1 else (ordered[:count], ordered[count:])
    kept += [part for part in rest if part.phase == UNACCOUNTED]  # always said, never hidden in others
    rest = [part for part in rest if part.phase != UNACCOUNTED]
    if len(rest) == 1:
        kept += rest
    elif rest:
        shares = [part.share for part in rest if part.share is not None]
        log_ratio, before, after = (math.fsum(getattr(p, n) for p in rest) for n in ("log_ratio", "before", "after"))
        share = math.fsum(shares) if shares else None
        kept.append(Contribution(f"{len(rest)} others", log_ratio, share, before, after))
    return kept
