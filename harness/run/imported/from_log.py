"""A training log made into a run. One log is one run: imported again it is the same folder."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from harness.errors import UsageError
from harness.records import Value
from harness.run.imported.figures import Figures
from harness.run.imported.folder import End, Imported, Source, happened, keep, steps_in_words
from harness.run.imported.log import MORE_GROUPS, Log, read_log
from harness.run.imported.rows import NO_STEPS, Steps, steps_of, timed
from harness.run.imported.whole import Whole, read_whole, spread, with_tokens
from harness.run.logsteps import compiled

MOST_BYTES = 2**31
"""A longer log is not read: all of it would be in memory."""

_A_DAY = 86_400.0
_HOW = r"say how to read it: --tokens-regex 'step (?P<step>\d+) .* tokens (?P<tokens>[\d,]+) .* (?P<seconds>[\d.]+) s'"


def import_log(
    path: Path,
    runs: Path,
    facts: Mapping[str, Value],
    tokens_regex: str | None = None,
    name: str = "",
    tokens_a_step: int | None = None,
) -> Imported:
    """The run that the log ``path`` tells of. Raises UsageError where it is no log, or tells of no run.

    tokens_a_step  what a person knows of it; it goes before what the log says
    """
    expression = compiled(tokens_regex, MORE_GROUPS) if tokens_regex else None
    data = _bytes(path)
    text = data.decode("utf-8", "replace")
    log, whole = _of_all_steps(read_log(text, expression), read_whole(text), tokens_a_step)
    steps = _steps(path, log, expression)
    unread = tuple(sorted({*log.unread, *steps.unused}))
    started_at, ended_at = _times(path, log, steps)
    source = Source(
        key=f"{hashlib.sha256(data).hexdigest()} {name}".strip(),
        reading=" ".join([*([tokens_regex] if tokens_regex else []), *_said(tokens_a_step)]),
        name=name or path.stem,
        origin=str(path.absolute()),
        end=_end(log),
        started_at=started_at,
        ended_at=ended_at,
        steps=steps,
        events=happened(steps, log.evaluations, _remarks(log, whole, steps, unread), log.crash is None),
        understood=_understood(log, steps),
        facts={},
        stdout=data,
        stderr="\n".join(text.split("\n")[log.crash.line - 1 :]) if log.crash else "",
    )
    return replace(keep(source, runs, facts), not_understood=unread)


def _bytes(path: Path) -> bytes:
    """The log. Raises UsageError, with what to give instead, for what is no text."""
    if path.is_dir():
        inside = "it is a run folder already" if (path / "spec.json").exists() else "name the log in it"
        raise UsageError(f"{path} is a folder: {inside}")
    try:
        if path.stat().st_size > MOST_BYTES:
            raise UsageError(f"{path} has {path.stat().st_size:,} bytes, more than are read at once: cut it first")
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    if not data.strip():
        raise UsageError(f"{path} is empty: there is no run in it")
    head = data[: 1 << 20]
    if b"\0" in head or head.decode("utf-8", "replace").count("\N{REPLACEMENT CHARACTER}") > len(head) / 100:
        raise UsageError(f"{path} is not text in UTF-8: give the log itself, unpacked and converted where it has to be")
    return data


def _said(tokens_a_step: int | None) -> tuple[str, ...]:
    return (f"--tokens-per-step {tokens_a_step}",) if tokens_a_step else ()


def _of_all_steps(log: Log, whole: Whole, tokens_a_step: int | None) -> tuple[Log, Whole]:
    """The log with what holds for all of its steps put into each; and that, where it timed them."""
    spread_out = whole.timed and not timed(log.rows)
    rows = spread(whole, log.rows) if spread_out else log.rows
    if tokens_a_step is not None:
        rows = with_tokens(rows, tokens_a_step, *_said(tokens_a_step))
    elif whole.tokens and all(row.tokens is None for row in rows):
        rows = with_tokens(rows, whole.tokens, whole.named)
    return replace(log, rows=rows), whole if spread_out else Whole()


def _steps(path: Path, log: Log, expression: re.Pattern[str] | None) -> Steps:
    """The log's steps; none for one that only tells of a crash. Raises UsageError where it tells of no run."""
    try:
        if log.rows:
            return steps_of(log.rows, log.begin)
    except UsageError as error:
        if log.crash is None:
            raise UsageError(f"{path}, {_counted(log.rows)}: {error}; {_HOW}") from None
        return replace(NO_STEPS, words=(f"{_counted(log.rows)} have no time",))
    if log.crash is not None:
        return NO_STEPS
    if expression is not None:
        raise UsageError(f"--tokens-regex {expression.pattern!r} matches none of the {log.lines} lines of {path}")
    which = f"line {_listed(log.unread)} speaks of a step" if log.unread else f"line 1 to line {log.lines}"
    raise UsageError(f"{path}: no step was understood ({which}), so nothing is imported; {_HOW}")


def _counted(rows: Sequence[Figures]) -> str:
    return f"{len(rows)} steps in lines {rows[0].line} to {rows[-1].line}"


def _listed(lines: Sequence[int], most: int = 5) -> str:
    shown = ", ".join(map(str, lines[:most]))
    return f"{shown} and {len(lines) - most} more" if len(lines) > most else shown


def _end(log: Log) -> End:
    """How it ended. What was stopped from outside was killed, as a run of our own is."""
    if log.crash is None:
        return End("finished")
    stopped = log.crash.signal == 9 or log.crash.reason.startswith("KeyboardInterrupt")
    return End("killed" if stopped else "failed", log.crash.reason, log.crash.signal)


def _times(path: Path, log: Log, steps: Steps) -> tuple[float, float | None]:
    """When it began and ended: by its own time stamps where they have a day, or else by when the log was written."""
    seconds = steps.steps[-1].t if steps.steps else 0.0
    stamps = [log.begin, *(row.stamp for row in log.rows[:1])]
    first = next((stamp for stamp in stamps if stamp is not None and stamp > _A_DAY), None)
    if first is not None:
        return first, first + seconds
    written = path.stat().st_mtime
    return (written, None) if steps.nominal else (written - seconds, written)


def _remarks(log: Log, whole: Whole, steps: Steps, unread: Sequence[int]) -> list[str]:
    """What a person should know of the reading, whenever they look at the run."""
    remarks = list(log.remarks)
    if steps.nominal:
        remarks.append("the log has a rate and no time: each of its lines stands for a second")
    if whole.timed:
        remarks.append(
            f"the log times all {whole.steps:,} steps together: each has their mean, with what evaluations and "
            "checkpoints took, so how much the steps varied is not known"
        )
    if unread:
        remarks.append(f"of the log's lines, {_listed(unread)} speak of a step and were not understood")
    if log.crash is None and log.total and steps.steps and steps.steps[-1].step < log.total:
        remarks.append(f"the log ends at step {steps.steps[-1].step:,} of {log.total:,}, and does not say why")
    return remarks


def _understood(log: Log, steps: Steps) -> tuple[str, ...]:
    crash = (f"it ends in a crash, line {log.crash.line}: {log.crash.reason}",) if log.crash else ()
    return (*steps_in_words(steps), *crash)
