"""What a training log says once, of all its steps: the tokens of each, their number, and the time of them together.

tokens per iteration will be: 491,520                                        nanoGPT, before its first step
Total optimization steps = 312                                               the trainer of Hugging Face
{'train_runtime': 400.1, 'train_steps_per_second': 0.78, 'train_loss': 1.2}  its last line
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness.errors import UsageError
from harness.run.imported.figures import Figures, number

_NUMBER = r"[\"']?\s*[:=]\s*[\"']?(?P<x>\d[\d,_]*(?:\.\d+)?(?:[eE][-+]?\d+)?)(?![\d:.])"
_RUNTIME = re.compile(rf"[\"']?train_runtime{_NUMBER}")
_PACE = re.compile(rf"[\"']?train_steps_per_second{_NUMBER}")
_SEEN = re.compile(rf"[\"']?num_input_tokens_seen{_NUMBER}")
_TOTAL = re.compile(rf"total optimization steps{_NUMBER}", re.IGNORECASE)
_TOKENS = re.compile(
    rf"(?P<key>tok(?:en)?s per (?:iteration|iter|(?:optimi[sz]er |train(?:ing)? )?step|batch|update))"
    rf"(?: will be| is| are)?{_NUMBER}",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Whole:
    """None where the log does not say it.

    tokens   of one step, and ``named`` the words that they stood under
    seconds  of all ``steps`` together, with the evaluations and checkpoints among them
    line     where the seconds stand
    again    where others stand, of a second training; 0 where none do
    """

    tokens: float | None = None
    named: str = ""
    seconds: float | None = None
    steps: int | None = None
    line: int = 0
    again: int = 0

    @property
    def timed(self) -> bool:
        """Whether it says how long a step took in the mean."""
        return self.seconds is not None and self.steps is not None


def read_whole(text: str) -> Whole:
    """What ``text`` says of all steps."""
    tokens = _TOKENS.search(text)
    found = Whole(number(tokens["x"]), f"{tokens['key']}: {tokens['x']}") if tokens else Whole()
    lines = enumerate(text.split("\n"), 1)
    ends = {_value(_RUNTIME, line): (n, line) for n, line in lines if "train_runtime" in line and _RUNTIME.search(line)}
    if not ends:
        return found
    (n, line), *more = ends.values()
    return replace(_with_end(found, text, n, line), again=more[0][0] if more else 0)


def _with_end(found: Whole, text: str, line: int, end: str) -> Whole:
    seconds, pace, total = _value(_RUNTIME, end), _value(_PACE, end), _value(_TOTAL, text)
    steps = round(total or (seconds or 0.0) * (pace or 0.0))
    if not seconds or not steps:
        return found
    found = replace(found, seconds=seconds, steps=steps, line=line)
    seen = _value(_SEEN, end)
    return replace(found, tokens=seen / steps, named="num_input_tokens_seen") if seen and not found.tokens else found


def _value(pattern: re.Pattern[str], text: str) -> float | None:
    match = pattern.search(text)
    return number(match["x"]) if match else None


def with_tokens(rows: Sequence[Figures], tokens: float, named: str) -> tuple[Figures, ...]:
    """The rows, each step with ``tokens``."""
    return tuple(replace(row, tokens=tokens, named={**row.named, "tokens": named}) for row in rows)


def spread(whole: Whole, rows: Sequence[Figures]) -> tuple[Figures, ...]:
    """A row for every step, each with the mean time, and the losses of ``rows`` where they stood, evenly apart.

    Raises UsageError, with the line, where two trainings ended in the log.
    """
    if whole.again:
        raise UsageError(
            f"line {whole.again}: a training ends (train_runtime), and one ended in line {whole.line}, so it holds "
            "more than one run: give each a file of its own"
        )
    assert whole.seconds is not None
    assert whole.steps is not None
    every = max(1, whole.steps // max(1, len(rows)))
    losses = {every * place: row.loss for place, row in enumerate(rows, 1)}
    mean, named = whole.seconds / whole.steps, {"seconds": f"train_runtime / {whole.steps:,} steps"}
    return tuple(
        Figures(whole.line, step=step, loss=losses.get(step), seconds=mean, named=named)
        for step in range(1, whole.steps + 1)
    )
