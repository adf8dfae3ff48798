"""Steps from the log lines of a trainer that knows nothing of this harness.

A regular expression says where the figures are, by named groups; without a named group the first is the tokens.

    tokens         tokens of one step; where the step numbers jump by k, k steps went by
    tok_s, ktok_s  a rate, where the trainer prints one instead: the tokens are the rate times the seconds
    step           the step's number; without it, lines are counted from 1
    loss           the loss

A line that matches is the end of a step. Its seconds are those since the line before it that matched, as the harness
saw them; lines seen at once share the time between them. The first step so takes the set-up with it, and the summary
leaves every first step out of the steady state.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from harness.errors import UsageError
from harness.records import Step

COUNTING = ("tokens", "tok_s", "ktok_s")
GROUPS = (*COUNTING, "step", "loss")
EXAMPLE = r"--tokens-regex 'step (?P<step>\d+) .* tokens (?P<tokens>[\d,]+)'"


def compiled(pattern: str, more: Sequence[str] = ()) -> re.Pattern[str]:
    """The expression, checked; it may have the groups ``more`` too, and one of those alone is enough.

    Raises UsageError, in one line that says what would be right.
    """
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise UsageError(f"--tokens-regex {pattern!r} is not a regular expression ({error}); try {EXAMPLE}") from None
    names = set(expression.groupindex)
    unknown = sorted(names - {*GROUPS, *more})
    if unknown:
        raise UsageError(f"--tokens-regex has a group {unknown[0]!r}; its groups may be {', '.join((*GROUPS, *more))}")
    if not expression.groups or (names and not names & {*COUNTING, *more}):
        raise UsageError(f"--tokens-regex {pattern!r} has no group for the tokens; try {EXAMPLE}")
    return expression


@dataclass
class LogSteps:
    """Turns lines into steps. It keeps the time of the last match, and the last step's number."""

    expression: re.Pattern[str]
    _time: float = 0.0
    _number: int = 0

    @property
    def found(self) -> bool:
        """Whether any line was a step."""
        return self._number > 0

    def steps(self, lines: Sequence[str], now: float) -> list[Step]:
        """The steps that ``lines``, all seen at ``now`` (seconds since the run began), stand for."""
        matches = [match for match in map(self.expression.search, lines) if match]
        share = (now - self._time) / max(1, len(matches))
        return [step for match in matches if (step := self._step(match, share)) is not None]

    def _step(self, match: re.Match[str], seconds: float) -> Step | None:
        groups = match.groupdict() or {"tokens": match.group(1)}
        figures = {name: number for name, text in groups.items() if (number := _number(text)) is not None}
        if not set(figures) & set(COUNTING):
            return None
        number = int(figures.get("step", self._number + 1))
        went_by = max(1, number - self._number) if self._number else 1
        rate = figures.get("tok_s", 1000 * figures.get("ktok_s", 0.0))
        tokens = figures["tokens"] * went_by if "tokens" in figures else rate * seconds
        self._time += seconds
        self._number = number
        return Step(
            t=self._time,
            step=number,
            role="trainer",
            device="",
            seconds=seconds,
            tokens=round(tokens),
            phases={"other": seconds},
            metrics={"loss": figures["loss"]} if "loss" in figures else {},
        )


def _number(text: str | None) -> float | None:
    """The number that ``text`` spells, with or without thousands separators; None where it spells none."""
    try:
        return float((text or "").replace(",", "").replace("_", ""))
    except ValueError:
        return None
