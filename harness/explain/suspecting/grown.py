"""What grew between two sides, as the rules see it: the parts of a figure that moved the way the whole figure did.

A run that got faster is the same with the signs turned: what "grew" is then what shrank.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from harness.comparison import BETWEEN, UNACCOUNTED, Contribution, Interruption, Judgement, Suspect

Figure = Literal["throughput", "interruptions", "first step"]
"""What can differ of two sides."""

FIRST = "first step: "
"""Before the name of a part of the time to the first step."""

LEAST_SHARE = 0.04
"""Of all growth, below which a part is left to chance."""


@dataclass(frozen=True)
class Part:
    """One phase of the steady state, or one part of the time to the first step.

    share   of all growth; 0 for a part that did not grow
    growth  |ln(after / before)| of its own seconds; infinite where there was none of it before (or after)
    weight  of the figure's time, on the side where the part is longer
    """

    phase: str
    share: float
    growth: float
    weight: float
    before: float
    after: float


@dataclass(frozen=True)
class Growth:
    """What grew of one figure. ``slower``: the later side is the slower one."""

    figure: Figure
    slower: bool
    parts: tuple[Part, ...]

    @property
    def grown(self) -> tuple[Part, ...]:
        """The parts that grew by more than chance, the greatest first."""
        return tuple(sorted((p for p in self.parts if p.share >= LEAST_SHARE), key=lambda p: -p.share))

    @property
    def unsplit(self) -> bool:
        """Whether nothing says which phase it was, as in a log that has none: then it may have been any of them."""
        return [part.phase for part in self.parts] == [UNACCOUNTED]


def differs(judged: Judgement) -> bool:
    """Whether the figure really differs: not called the same, and its interval without 1."""
    ratio = judged.ratio
    return ratio is not None and judged.verdict != "SAME" and not ratio.low <= 1 <= ratio.high


def growth(judged: Judgement, contributions: Sequence[Contribution]) -> Growth | None:
    """What grew of the figure; None where it does not differ, or is not split."""
    if not differs(judged) or not contributions or judged.ratio is None:
        return None
    more_is_slower = judged.figure == "first step"
    slower = (judged.ratio.value > 1) == more_is_slower
    total = sum(c.log_ratio for c in contributions)
    moved = {c.phase: max(0.0, math.copysign(1.0, total) * c.log_ratio) for c in contributions}
    whole = sum(moved.values())
    if whole <= 0:
        return None
    weights = _weights(contributions)
    parts = tuple(
        Part(c.phase, moved[c.phase] / whole, _own(c, slower), weights[c.phase], c.before, c.after)
        for c in contributions
    )
    return Growth(judged.figure, slower, parts)


def interrupted(found: Sequence[Interruption]) -> Growth | None:
    """What interrupted training more (or less), as the greatest of them did, each by its share of the difference."""
    moved = [each for each in found if each.more is found[0].more]
    whole = sum(abs(each.after - each.before) for each in moved)
    parts = tuple(
        Part(i.name, abs(i.after - i.before) / whole, i.growth, max(i.before, i.after), i.before, i.after)
        for i in moved
    )
    return Growth("interruptions", found[0].more, parts) if parts else None


def told_by(suspect: Suspect) -> set[Figure]:
    """The figures that a suspect can explain; one that names no phase, as of a failure, is about the run itself."""
    return {_figure_of(phase) for phase in suspect.phases} or {"throughput"}


def _figure_of(phase: str) -> Figure:
    if phase == BETWEEN:
        return "interruptions"
    return "first step" if phase.startswith(FIRST) else "throughput"


def _own(c: Contribution, slower: bool) -> float:
    """How much the part grew by itself, against its own size; 0 where it moved the other way."""
    low, high = (c.before, c.after) if slower else (c.after, c.before)
    if high <= low:
        return 0.0
    return math.log(high / low) if low > 0 else math.inf


def _weights(contributions: Sequence[Contribution]) -> Mapping[str, float]:
    """Shares of the time. Padding is no time of its own: it has the weight of what it made the others longer."""
    times = {c.phase: max(c.before, c.after) for c in contributions if c.phase != "padding"}
    total = sum(times.values()) or 1.0
    return {c.phase: times.get(c.phase, 0.0) / total for c in contributions}
