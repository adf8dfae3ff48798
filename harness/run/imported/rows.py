"""From what a log's lines (or a tracker's points) say to steps whose seconds and tokens agree.

What a trainer prints is one of a few things, and each gives the rest:

    tokens and seconds of a step   both as they stand
    a rate and seconds             tokens = rate x seconds
    tokens and a rate              seconds = tokens / rate
    no seconds                     those between two lines, from a clock or from time stamps
    a rate and no time at all      one second a line: the rate is kept, the time is nominal, and that is said

A line stands for all the steps since the line before it. A figure that only ever grows is a running total.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from harness.errors import UsageError
from harness.records import Step
from harness.run.imported.figures import Figures

ROLE = "trainer"

FEWEST_FOR_A_TOTAL = 8
"""Lines from which on a figure that grew with each of them is taken for a running total: by chance 1 in 40,320."""

NOMINAL_S = 1.0

CLOCK, STAMPS = "the clock", "the time stamps"

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Steps:
    """What became of the rows.

    words       what was understood: "loss", "tokens from a rate, \"Ktok/s\"", "seconds from the time stamps"
    first_step  whether the time to the first step is known
    nominal     whether nothing says a time, so that only the rates mean something
    clocked     whether their seconds are those from one time to the next, so that all that happened is in them
    unused      lines with figures from which no step could be made
    """

    steps: tuple[Step, ...]
    words: tuple[str, ...]
    first_step: bool
    nominal: bool
    clocked: bool
    unused: tuple[int, ...]


NO_STEPS = Steps((), (), first_step=False, nominal=False, clocked=False, unused=())


@dataclass(frozen=True)
class _Table:
    """The rows as columns; NaN where a row does not say. ``at`` is the clock that they share, in seconds."""

    line: Array
    step: Array
    loss: Array
    tokens: Array
    rate: Array
    seconds: Array
    at: Array
    clock: str  # what it is called; "" where there is none

    def only(self, mask: NDArray[np.bool_]) -> _Table:
        names = ("line", "step", "loss", "tokens", "rate", "seconds", "at")
        return replace(self, **{name: getattr(self, name)[mask] for name in names})


def steps_of(rows: Sequence[Figures], begin: float | None = None, clock_from_start: bool = False) -> Steps:
    """The steps of ``rows``, which are in order.

    begin             the time stamp at which all began, or None
    clock_from_start  whether the rows' clock began when all did, and not with the first step

    Raises UsageError where the rows say neither a time nor a rate.
    """
    table = _table(rows)
    table, words = _without_totals(table, rows)
    count, time = _sources(table)
    start = {CLOCK: 0.0, STAMPS: begin}.get(table.clock)
    if time == "" and count != "rate":
        raise UsageError("its steps have neither seconds, nor time stamps, nor tokens a second: nothing can be timed")
    good = _good(table, count, time)
    used = table.only(good)
    went_by = _went_by(used.step)
    seconds, ends, known = _spans(used, time, went_by, start)
    tokens = {"tokens": used.tokens * went_by, "rate": used.rate * seconds, "": np.zeros(len(seconds))}[count]
    steps = tuple(
        _step(*row)
        for row in zip(used.step[known], ends[known], seconds[known], tokens[known], used.loss[known], strict=True)
    )
    said = (*words, *_in_words(used, count, time, rows))
    if count == "" and np.any(went_by > 1):  # steps themselves are what is counted then
        steps = tuple(chain.from_iterable(map(_shared_out, steps, went_by[known])))
        said = (*said, "the seconds of a line shared out evenly among the steps since the line before")
    first_step = time != "" and (clock_from_start if table.clock == CLOCK else start is not None)
    return Steps(steps, said, first_step, nominal=time == "", clocked=time == "at", unused=_lines(table, ~good))


def timed(rows: Sequence[Figures]) -> bool:
    """Whether the rows say of themselves a time, or a rate."""
    table = _table(rows)
    count, time = _sources(_without_totals(table, rows)[0])
    return time != "" or count == "rate"


def _step(number: float, end: float, seconds: float, tokens: float, loss: float) -> Step:
    metrics = {} if math.isnan(loss) else {"loss": loss}
    return Step(end, int(number), ROLE, "", seconds, round(tokens), 0, {"other": seconds}, metrics)


def _shared_out(row: Step, went_by: float) -> list[Step]:
    """The ``went_by`` steps that a row stands for, each with its share of the seconds; what it says is of the last."""
    count = int(went_by)
    seconds = row.seconds / count
    before = [
        _step(row.step - left, row.t - left * seconds, seconds, 0.0, math.nan) for left in range(count - 1, 0, -1)
    ]
    return [*before, replace(row, seconds=seconds, phases={"other": seconds})]


def _table(rows: Sequence[Figures]) -> _Table:
    def column(name: str) -> Array:
        return np.array([math.nan if (v := getattr(row, name)) is None else v for row in rows], dtype=np.float64)

    step = column("step")
    if np.all(np.isnan(step)):
        step = np.arange(1.0, len(rows) + 1)
    elif np.nanmin(step) < 1:
        step = step + 1 - np.nanmin(step)  # it counts from 0
    clock, stamp = column("clock"), column("stamp")
    name = CLOCK if _most(clock) else STAMPS if _most(stamp) else ""
    at = clock if name == CLOCK else stamp
    if not _moves(at):
        name = ""
    return _Table(column("line"), step, column("loss"), column("tokens"), column("rate"), column("seconds"), at, name)


def _most(values: Array) -> bool:
    return len(values) > 0 and 2 * int(np.count_nonzero(~np.isnan(values))) > len(values)


def _moves(at: Array) -> bool:
    """Whether a clock has more than one time for ten rows: a tracker may send all of a run's points at its end."""
    return len(at) < 2 or 10 * len(np.unique(at[~np.isnan(at)])) > len(at)


def _without_totals(table: _Table, rows: Sequence[Figures]) -> tuple[_Table, tuple[str, ...]]:
    """Running totals made into what they are totals of: the tokens of a step, and a clock."""
    words: tuple[str, ...] = ()
    if _grows(table.tokens):
        words = (f'"{_named(rows, "tokens")}" is a running total',)
        table = replace(table, tokens=_a_step(table.tokens, table.step))
    if _grows(table.seconds):
        words = (*words, f'"{_named(rows, "seconds")}" is a running clock')
        at = {} if table.clock else {"at": table.seconds, "clock": f'the clock "{_named(rows, "seconds")}"'}
        table = replace(table, seconds=np.full(len(rows), math.nan), **at)  # type: ignore[arg-type]
    return table, words


def _grows(values: Array) -> bool:
    known = values[~np.isnan(values)]
    return len(known) >= FEWEST_FOR_A_TOTAL and bool(np.all(np.diff(known) > 0))


def _a_step(totals: Array, step: Array) -> Array:
    """Tokens of one step, from totals: the first total is shared among all steps up to it."""
    known = ~np.isnan(totals) & ~np.isnan(step)
    tokens = np.full(len(totals), math.nan)
    with np.errstate(divide="ignore"):
        tokens[known] = np.diff(totals[known], prepend=0.0) / np.diff(step[known], prepend=0.0)
    return tokens


def _sources(table: _Table) -> tuple[str, str]:
    """Where tokens come from ("tokens", "rate", "") and seconds ("seconds", "rate", "at", "")."""
    count = "tokens" if _most(table.tokens) else "rate" if _most(table.rate) else ""
    if _most(table.seconds):
        return count, "seconds"
    if count == "tokens" and _most(table.rate):
        return count, "rate"
    return count, "at" if table.clock else ""


def _good(table: _Table, count: str, time: str) -> NDArray[np.bool_]:
    """The rows that have what the others are counted and timed by, as numbers that can be."""
    good = np.isfinite(table.step)
    for name in {count, time} - {""}:
        values = getattr(table, name)
        good &= np.isfinite(values) & ((values > 0) if name in ("rate", "seconds") else (values >= 0))
    return good


def _went_by(step: Array) -> Array:
    """How many steps each row stands for; the first for as many as the second, where it could."""
    if len(step) < 2:
        return np.ones(len(step))
    strides = np.diff(step)
    return np.concatenate([strides[:1] if step[0] == strides[0] else [1.0], strides])


def _spans(table: _Table, time: str, went_by: Array, begin: float | None) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Seconds of each row, its end on a clock that starts with the run, and whether both are known."""
    if time == "at":
        seconds, ends = _between(table.at, begin, went_by)
        return seconds, ends, seconds > 0
    if time == "":
        seconds = np.full(len(table.step), NOMINAL_S)
    else:
        seconds = went_by * (table.seconds if time == "seconds" else table.tokens / table.rate)
    ends = np.cumsum(seconds)
    if table.clock and len(seconds):
        start = begin if begin is not None else table.at[0] - seconds[0]
        if np.all(np.diff(table.at) > 0):  # finer than the rows, and known to all of them
            ends = _between(table.at, start, went_by)[1]
        else:  # a step ends no sooner than a coarse clock shows it: what it was ahead of the seconds is a pause
            ahead = np.nan_to_num(table.at - start - ends, nan=0.0)
            ends = ends + np.maximum.accumulate(np.maximum(ahead, 0.0))
    return seconds, ends, seconds > 0


def _between(at: Array, begin: float | None, went_by: Array) -> tuple[Array, Array]:
    """(seconds, ends) from a clock. Rows that it shows at one time share the time since the one before.

    Without a ``begin`` the rows at the first time have no known seconds: NaN.
    """
    if not len(at):
        return at, at
    times, group = np.unique(np.maximum.accumulate(at), return_inverse=True)
    zero = times[0] if begin is None else min(begin, times[0])
    spans = np.diff(times, prepend=zero)
    before = times - spans
    seconds = (spans / np.bincount(group, weights=went_by))[group] * went_by
    total = np.cumsum(seconds)
    starts = np.concatenate([[0.0], total])[np.searchsorted(group, np.arange(len(times)))]
    ends = before[group] - zero + total - starts[group]
    return (np.where(group == 0, math.nan, seconds) if begin is None else seconds), ends


def _lines(table: _Table, mask: NDArray[np.bool_]) -> tuple[int, ...]:
    return tuple(int(line) for line in table.line[mask])


def _named(rows: Sequence[Figures], figure: str) -> str:
    return next((row.named[figure] for row in rows if figure in row.named), figure)


def _in_words(table: _Table, count: str, time: str, rows: Sequence[Figures]) -> tuple[str, ...]:
    """What was understood, for a person to check."""
    words = [] if np.all(np.isnan(table.loss)) else ["loss"]
    if count:
        words.append(f'tokens from {"a rate, " if count == "rate" else ""}"{_named(rows, count)}"')
    else:
        words.append("tokens unknown (--tokens-per-step N says them)")
    words.append(
        {
            "seconds": f'seconds from "{_named(rows, "seconds")}"',
            "rate": f'seconds from tokens and "{_named(rows, "rate")}"',
            "at": f"seconds from {table.clock}",
            "": "no time: a second a line, so only the rate means something",
        }[time]
    )
    return tuple(words)
