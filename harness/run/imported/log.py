"""A training log, read: its steps in order, its evaluations, and how it ended."""

from __future__ import annotations

import re
import signal
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from harness.errors import UsageError
from harness.run.imported.figures import Figures, figures_of, number, plain, stamp_of

MORE_GROUPS = ("seconds", "time")
"""Groups that --tokens-regex may have here beside those of a run: seconds of one step, and a time stamp."""


@dataclass(frozen=True)
class Crash:
    """How a log ended that did not end well: what it says of that, from its first line on (from 1)."""

    reason: str
    line: int
    signal: int | None = None


@dataclass(frozen=True)
class Log:
    """What a log says.

    rows    what it says of steps, in order, one for a step
    begin   the time stamp at which the log begins, before its first step; None where it has none
    unread  lines that speak of a step and that nothing could be made of
    """

    lines: int
    rows: tuple[Figures, ...]
    evaluations: tuple[Figures, ...]
    begin: float | None
    total: int | None
    crash: Crash | None
    unread: tuple[int, ...]
    remarks: tuple[str, ...] = ()


def read_log(text: str, expression: re.Pattern[str] | None = None) -> Log:
    """The log ``text``; the lines that ``expression`` matches are its steps, or else those of the usual shapes.

    What ``expression`` has no group for is read from its lines in the usual shapes.

    Raises UsageError, with the line, where it holds the steps of more than one run.
    """
    found: list[tuple[str, Figures]] = []
    begin: float | None = None
    lines = text.split("\n")
    for line, content in enumerate(lines, 1):
        for part in content.split("\r"):
            words = plain(part)
            if not words.strip():
                continue
            if begin is None:
                begin = stamp_of(words)
            figures = _matched(expression, words, line) if expression else figures_of(words, line)
            if figures is not None:
                rank = _RANK.match(words)
                found.append((rank[1] if rank else "", figures))
    of_one, remarks = _of_one_rank(found)
    rows, evaluations, unread = _sorted_out(of_one)
    rows = _in_order(_days_joined(rows, begin), unread)
    return Log(
        lines=len(lines) - (not lines[-1]),
        rows=tuple(rows),
        evaluations=tuple(evaluations),
        begin=begin if rows and begin != rows[0].stamp else None,
        total=next((row.total for row in reversed(rows) if row.total), None),
        crash=_crash(lines, rows[-1].line if rows else 1),
        unread=tuple(sorted(unread)),
        remarks=remarks,
    )


_RANK = re.compile(r"^\W{0,2}(?:rank|default)\s?(\d+)\]?:", re.IGNORECASE)


def _of_one_rank(found: Sequence[tuple[str, Figures]]) -> tuple[list[Figures], tuple[str, ...]]:
    """The figures of the process that said most, and of lines that name none: the others say the same again."""
    said = Counter(rank for rank, _ in found if rank)
    if len(said) < 2:
        return [figures for _, figures in found], ()
    best = min(said, key=lambda rank: (-said[rank], int(rank)))
    remark = f"{len(said)} processes wrote it: the lines of rank {best} are taken"
    return [figures for rank, figures in found if rank in ("", best)], (remark,)


def _matched(expression: re.Pattern[str], text: str, line: int) -> Figures | None:
    """The figures of a line by the person's own expression; None where it does not match."""
    match = expression.search(text)
    if match is None:
        return None
    groups = match.groupdict() or {"tokens": match.group(1)}
    if not expression.groupindex and _value(match.group(1) or "") is None:
        raise UsageError(
            f"line {line}: the first group of --tokens-regex found {match.group(1)!r}, which is no number; the "
            "group that finds the tokens needs the name tokens: (?P<tokens>...)"
        )
    figures = _beside(groups, figures_of(text, line) or Figures(line, stamp=stamp_of(text)))
    for name, words in groups.items():
        if name == "time":
            figures.stamp = stamp_of(words or "")
        elif words is not None and (value := _value(words)) is not None:
            _put(figures, name, value)
    if not expression.groupindex:
        figures.named["tokens"] = "the group without a name: (?P<tokens>...) names it"
    return figures


def _beside(groups: Collection[str], found: Figures) -> Figures:
    """What the usual patterns found, without all that a person's ``groups`` say in its place."""
    if "time" in groups:
        found.clock = None
    if "step" in groups:
        found.bar = ""
    if not {"tok_s", "ktok_s"}.isdisjoint(groups):
        found.tokens = None
    found.evaluated.clear()
    return found


def _put(figures: Figures, name: str, value: float) -> None:
    if name in ("tok_s", "ktok_s"):
        figures.rate, figures.named["rate"] = value * (1000 if name == "ktok_s" else 1), name
    elif name == "step":
        figures.step = int(value)
    else:
        setattr(figures, name, value)
        figures.named[name] = name


def _value(text: str) -> float | None:
    try:
        return number(text.strip())
    except ValueError:
        return None


def _sorted_out(found: Iterable[Figures]) -> tuple[list[Figures], list[Figures], set[int]]:
    """(rows, evaluations, lines that could not be used). Lines about one step are one row."""
    figures = list(found)
    bar = _main_bar(figures)
    own = [f for f in figures if not f.bar and f.step is not None and f.counts]
    if any(map(_timed, own)):
        bar = ""  # its own lines say more than the bar beside them
    numbered = bool(bar) or bool(own)
    rows: list[Figures] = []
    evaluations: list[Figures] = []
    unread: set[int] = set()
    now: int | None = None
    for each in _epochs_joined(figures, bar):
        if each.bar:
            now = each.step
        if each.evaluated:
            last = now if now is not None or not rows else rows[-1].step
            evaluations.append(each if each.step is not None else replace(each, step=last))
        elif each.step is None and numbered and now is None:
            unread.add(each.line)
        elif each.counts or each.bar:
            _add(rows, each if each.step is not None else replace(each, step=now))
    return rows, evaluations, unread


def _timed(figures: Figures) -> bool:
    return any(value is not None for value in (figures.rate, figures.tokens, figures.seconds, figures.clock))


def _add(rows: list[Figures], new: Figures) -> None:
    """The row, or what it says beside the one before where both are of one step."""
    before = rows[-1] if rows else None
    if before is None or new.step is None or new.step != before.step:
        rows.append(new)
        return
    names = ("total", "loss", "tokens", "rate", "seconds", "clock", "stamp")
    said = {name: value for name in names if (value := getattr(new, name)) is not None}
    if before.bar and not new.bar:
        said.pop("stamp", None)
    rows[-1] = replace(before, **said, named={**before.named, **new.named})


def _main_bar(figures: Sequence[Figures]) -> str:
    """The progress bar that ran for the longest: the others load, evaluate, or count something else."""
    longest: defaultdict[str, float] = defaultdict(float)
    for each in figures:
        if each.bar and each.step:
            longest[each.bar] = max(longest[each.bar], each.clock or 0.0)
    return max(longest, key=lambda bar: longest[bar], default="")


def _epochs_joined(figures: Sequence[Figures], bar: str) -> Iterable[Figures]:
    """The figures without other bars than ``bar``; a bar that starts again after its end goes on where it was."""
    steps, clock = 0, 0.0
    last: Figures | None = None
    for each in figures:
        if not each.bar:
            yield each
        elif each.bar == bar and each.step is not None:
            if last is not None and last.step is not None and last.step == last.total and each.step < last.step:
                steps, clock = steps + last.step, clock + (last.clock or 0.0)
            last = each
            if each.step:
                yield replace(each, step=steps + each.step, clock=clock + (each.clock or 0.0))


_DAY = 86_400.0


def _days_joined(rows: list[Figures], begin: float | None) -> list[Figures]:
    """Stamps without a day go on after midnight."""
    days, before = 0, begin
    joined = []
    for row in rows:
        if row.stamp is not None:
            if before is not None and row.stamp < before - _DAY / 2 and row.stamp < _DAY:
                days += 1
            before = row.stamp
            row = replace(row, stamp=row.stamp + days * _DAY) if days else row
        joined.append(row)
    return joined


def _in_order(rows: Sequence[Figures], unread: set[int]) -> list[Figures]:
    """The rows whose numbers rise; a line that only speaks of an earlier step is added to ``unread``.

    Raises UsageError where the steps themselves go back: two runs in one log are no run.
    """
    rising: list[Figures] = []
    for row in rows:
        last = rising[-1] if rising else None
        if last is None or last.step is None or row.step is None or row.step > last.step:
            rising.append(row)
        elif _timed(row) or not _timed(last):
            raise UsageError(
                f"line {row.line}: step {row.step} comes after step {last.step} of line {last.line}, so it holds "
                "more than one run, or one that was resumed: give each part a file of its own"
            )
        else:
            unread.add(row.line)
    return rising


_TRACEBACK = "Traceback (most recent call last)"
_EXCEPTION = re.compile(r"^(?:\W{0,2}rank\d+\W{1,2}\s*)?(?P<all>[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)\b.*)")
_DIED = (
    (re.compile(r"segmentation fault|SIGSEGV", re.IGNORECASE), signal.SIGSEGV),
    (re.compile(r"\bbus error\b|SIGBUS", re.IGNORECASE), signal.SIGBUS),
    (re.compile(r"^\s*aborted\b|SIGABRT|terminate called after", re.IGNORECASE), signal.SIGABRT),
    (re.compile(r"^\s*killed\b|SIGKILL|oom-?kill", re.IGNORECASE), signal.SIGKILL),
    (re.compile(r"floating point exception|SIGFPE", re.IGNORECASE), signal.SIGFPE),
    (re.compile(r"fatal python error", re.IGNORECASE), None),
    (re.compile(r"slurmstepd: error|srun: error", re.IGNORECASE), None),
)


def _crash(lines: Sequence[str], after: int) -> Crash | None:
    """How it ended, where the lines from its last step on (``after``) say that it did not end well."""
    begin, reason, number = 0, "", None
    for line, content in enumerate(lines[after - 1 :], after):
        words = plain(content).rstrip("\r").strip()
        died = next((how for pattern, how in _DIED if pattern.search(words)), False)
        exception = _EXCEPTION.match(words)
        if _TRACEBACK in words or died is not False or exception:
            begin = begin or line
        if exception:
            reason = exception["all"]
        elif died is not False:
            number = died if died is not None else number
            reason = reason or words
    if number is not None:
        reason = f"crashed with {signal.Signals(number).name}; its last words: {reason}"
    return Crash(reason or "a traceback without its exception", begin, number) if begin else None
