"""Why a run failed: from its logs, its events and how it ended, by the signatures of ``failures.toml``.

The first error of a log counts, and neither what followed from it in other threads and ranks nor one that the run
outlived. Where the log names no error, the way in which the process ended does. What fits nothing is called unknown.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from harness.comparison import Failure
from harness.evidence import Evidence
from harness.explain.failing import ending
from harness.explain.failing.logged import Error, errors
from harness.explain.failing.signatures import Signature, any_fits, fill, groups, table
from harness.explain.failing.tracebacks import Frame, fatal_stack
from harness.explain.words import listed
from harness.logs import Line, first_rank, lines

_WORDS = 240  # characters of a message in a sentence
_SHOWN = 8  # lines


@dataclass(frozen=True)
class _Seen:
    """What recognising looks at."""

    evidence: Evidence
    stderr: list[Line]
    stdout: list[Line]
    own: str  # the signal that ended the run itself, or ""
    told: tuple[str, ...]  # those that ended processes of it, as its log tells

    @property
    def all(self) -> list[Line]:
        return [*self.stderr, *self.stdout]

    @property
    def reason(self) -> str:
        return self.evidence.run.result.reason


def _seen(evidence: Evidence) -> _Seen:
    stderr, stdout = lines(evidence.stderr), lines(evidence.stdout)
    told = ending.told_signals([*stderr, *stdout])
    return _Seen(evidence, stderr, stdout, ending.own_signal(evidence), told)


def recognise(evidence: Evidence) -> Failure | None:
    """How the run failed; None for one that ended well, and for one that is still running."""
    if evidence.run.result.status in ("running", "finished"):
        return None
    seen = _seen(evidence)
    said = _said(seen)
    if said is not None:
        return said
    end = _end(seen)
    best = _telling_error(seen, end)
    if best is not None and (best.order < _UNRELATED or end is None):
        return _of_error(seen, best, end)
    return _without_error(seen) if end is None else _of_end(seen, end)


@dataclass(frozen=True)
class _Best:
    """The most telling error, and the log that it stands in."""

    order: int
    error: Error
    log: Sequence[Line]
    found: Sequence[Error]  # all errors of that log


_UNRELATED = 10
"""An error from this order on is less telling than how the process ended."""


def _telling_error(seen: _Seen, end: Signature | None) -> _Best | None:
    """The error that tells most; of those that tell alike the first one, standard error's before standard output's."""
    first = first_rank(seen.all)
    ranked = [
        (
            _order(error, seen, end, first),
            number,
            error.start,
            _Best(_order(error, seen, end, first), error, log, found),
        )
        for number, (log, other) in enumerate(((seen.stderr, seen.stdout), (seen.stdout, seen.stderr)))
        for found in (errors(log, other),)
        for error in found
    ]
    return min(ranked, key=lambda each: each[:3])[3] if ranked else None


def _order(error: Error, seen: _Seen, end: Signature | None, first: int | None) -> int:
    """How telling an error is, 0 the most."""
    known = error.signature is not None
    stopped = end is not None and end.id in ("stopped-by-user", "interrupted")
    crashed = seen.own in _CRASHES or bool(_CRASHES.union({"SIGKILL"}).intersection(seen.told))
    crashed = crashed or (end is not None and end.id == "killed-for-memory")
    elsewhere = 1 if first is not None and error.rank not in (None, first) else 0
    if error.survived:
        return _UNRELATED + 4
    if error.follows_another:
        return _UNRELATED + 2 if crashed or stopped or not known else 4 + elsewhere
    if known or error.uncaught:
        return elsewhere
    # An exception that nothing is known of, printed by anybody: the end of a run that exits, a detail of one that a
    # signal ended.
    return _UNRELATED + 1 if crashed or stopped or seen.own else elsewhere


_CRASHES = frozenset({"SIGSEGV", "SIGBUS", "SIGILL"})
"""Signals that come before what other ranks then say; an abort mostly comes after."""


def _end(seen: _Seen) -> Signature | None:
    """The first signature of how a process ends that fits."""
    signals = {seen.own, *seen.told}
    for signature in table().signatures:
        if signature.level != "end":
            continue
        fits = (
            (not signature.signal or bool(signature.signal & signals))
            and any_fits(signature.reason, [seen.reason])
            and any_fits(signature.text, [line.text for line in seen.all])
            and (not signature.compiling or bool(ending.was_compiling(seen.evidence, seen.all)))
            and (not signature.memory or ending.memory_ran_out(seen.evidence, seen.all))
        )
        if fits:
            return signature
    return None


def _said(seen: _Seen) -> Failure | None:
    """The trainer's own word, where it came to its own end and called the run a failure."""
    finished = seen.evidence.finished
    if finished is None or finished.ok or not finished.reason:
        return None
    told = errors(lines([finished.reason]))
    signature = told[0].signature if told and told[0].signature else table()["trainer-said"]
    known = {"words": _short(finished.reason), **(told[0].groups if told else {})}
    return _failure(seen, signature, known, (finished.reason,), ending.last_happening(seen.evidence))


def _of_error(seen: _Seen, best: _Best, end: Signature | None) -> Failure:
    error, log = best.error, best.log
    signature = error.signature or table()["python-exception"]
    known = {
        "words": _short(error.raised[0].words if error.raised else log[error.line].text),
        "own": _place(seen, error.own),
        "where": _where(error, best.found),
        "led_to": _short(error.raised[-1].words) if len(error.raised) > 1 else "",
        **error.groups,
    }
    here = log[error.start : error.end]
    compiling = ending.was_compiling(seen.evidence, seen.all, here)
    if signature.compiling and not compiling:
        compiling = ending.what_of([line.text for line in here])
    last = ending.last_happening(seen.evidence, compiling)
    failure = _failure(seen, signature, known, _telling(error, log), last)
    if end is not None and end.id == "stopped-by-user":
        return replace(failure, sentence=f"{failure.sentence}; then it was {seen.reason}")
    return replace(failure, sentence=f"{failure.sentence}; then it ended with {seen.own}") if seen.own else failure


def _of_end(seen: _Seen, signature: Signature) -> Failure:
    stack = fatal_stack(seen.all)
    known = {
        "signal": next((name for name in (*seen.told, seen.own) if name in signature.signal), ""),
        "own": _place(seen, next((frame for frame in stack if frame.own), None)),
        **groups(signature.reason, [seen.reason]),
        **groups((*signature.text, *signature.more), [line.text for line in seen.all]),
    }
    compiling = ending.was_compiling(seen.evidence, seen.all) if signature.compiling else ""
    return _failure(seen, signature, known, _last_lines(seen), ending.last_happening(seen.evidence, compiling))


def _without_error(seen: _Seen) -> Failure:
    """Nothing in the logs: the reason that the harness, or a tracker, wrote down is all that there is."""
    reason = seen.reason
    told = errors(lines([reason]))
    last = ending.last_happening(seen.evidence)
    if told and told[0].raised:
        known = {"words": _short(reason), **told[0].groups}
        signature = told[0].signature or table()["python-exception"]
        return _failure(seen, signature, known, (reason,), last)
    code = seen.evidence.run.result.exit_code
    words = _short(reason) or (f"exit code {code}, and it said nothing" if code else "")
    return _failure(seen, table()["unknown"], {"words": words}, _last_lines(seen), last)


def _failure(seen: _Seen, signature: Signature, known: Mapping[str, str], told: Sequence[str], last: str) -> Failure:
    known = {"doctor": _doctor(seen.evidence), **known}
    return Failure(
        signature="" if signature.id == "unknown" else signature.id,
        sentence=fill(signature.sentence, known),
        last=last,
        lines=tuple(line[: 2 * _WORDS] for line in told),
        reference=signature.report,
        advice=fill(signature.advice, known),
        facts=tuple(signature.facts),
    )


def _where(error: Error, found: Sequence[Error]) -> str:
    """Where the same error was printed: "in 3 threads", "on rank 2", "" for the only one."""
    alike = [each for each in found if each.kind == error.kind]
    threads = {each.raised[0].thread for each in alike if each.raised and each.raised[0].thread}
    ranks = {each.rank for each in alike if each.rank is not None}
    if len(ranks) > 1:
        return f"on {len(ranks)} ranks"
    if len(threads) > 1:
        return f"in {len(threads)} threads"
    if error.rank is not None:
        return f"on rank {error.rank}"
    return f"in thread {listed(sorted(threads))}" if threads else ""


def _telling(error: Error, log: Sequence[Line]) -> tuple[str, ...]:
    """The lines that say it: where in the user's code, what was raised, and the line that the signature knows."""
    own = error.own
    numbers = {error.line, *(each.at for each in error.raised)}
    if own is not None:
        place = f'File "{own.file}", line {own.line}'
        numbers |= {n for n in range(error.start, error.line) if place in log[n].text}
    return tuple(log[n].text.strip() for n in sorted(numbers)[:_SHOWN])


def _last_lines(seen: _Seen) -> tuple[str, ...]:
    """The last lines that are not progress bars: of standard error, or of the other where that one is empty."""
    for log in (seen.stderr, seen.stdout):
        told = [line.text.strip() for line in log if not line.progress]
        if told:
            return tuple(told[-_SHOWN:])
    return ()


def _place(seen: _Seen, frame: Frame | None) -> str:
    """A line of code with a path from where the run was started, where it lies under it."""
    if frame is None:
        return ""
    for name in ("context.cwd", "context.code.root"):
        root = seen.evidence.facts.get(name)
        if isinstance(root, str) and root and frame.file.startswith(root.rstrip("/") + "/"):
            return str(Frame(os.path.relpath(frame.file, root), frame.line, frame.function))
    return str(frame)


def _doctor(evidence: Evidence) -> str:
    """What a person types to have the run's environment examined."""
    if evidence.run.spec.env:
        return f"harness doctor {evidence.run.spec.env}"
    python = evidence.facts.get("context.python")
    return f"harness doctor --python {shlex.quote(python)}" if isinstance(python, str) else "harness doctor"


def _short(text: str) -> str:
    return text if len(text) <= _WORDS else text[: _WORDS - 3].rstrip() + "..."
