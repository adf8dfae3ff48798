"""A good side against a crashed one, either way round, or two crashed ones: what failed, and what can have brought it.

What of the two can still be compared is not said here; this stands before it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from harness import figures
from harness.comparison import Change, Failure, Measured, Side, Suspect
from harness.explain.comparing.comparable import is_remark
from harness.explain.comparing.facts import globs
from harness.explain.failing.signatures import Signature, table
from harness.explain.suspecting.reasons import words_of
from harness.explain.suspecting.rules import absence_tells
from harness.explain.words import listed, setting
from harness.records import CacheState

_CACHE = globs(["state.cache.*", "observed.cache.*", "observed.cache_start"])
_SILENT = globs(["context.*", "observed.*", "state.load.*", "state.gpu.*", "environment.lock", "code.patch.left_out"])
"""Facts that are not worth a word in the sentence: places and times, and what the crash itself made different."""

_READ_FIRST = ("code", "environment", "execution", "workload", "state")
_NAMED = 3  # changes in the sentence
_MOST = 8  # suspects: of another environment every package differs

_BY_CHANCE = (
    "fx-tracing-race",
    "segfault-compiling",
    "segfault",
    "stale-file-handle",
    "cache-file-lost",
    "nccl-timeout",
)
"""Failures that do not come each time: a run that went well does not show that they are gone."""


@dataclass(frozen=True)
class Crash:
    """What is said first where a side crashed."""

    sentence: str  # the failure, the last thing that happened, what changed, what a warm cache may have hidden
    suspects: tuple[Suspect, ...] = ()
    notes: tuple[str, ...] = ()


class _Cold(NamedTuple):
    """The compile cache was warm for the side that went well, and held much less for the one that crashed."""

    warm: CacheState
    cold: CacheState
    start: str  # "cold" or "partial"


@dataclass(frozen=True)
class _Pair:
    """A side that went well, or better, and one that crashed, with what changed in the order of time."""

    good: Side
    bad: Side
    changes: Sequence[Change]
    forwards: bool  # the crashed side is the later one

    def failure(self) -> Failure:
        return _commonest(self.bad)


def crashed(before: Side, after: Side, changes: Sequence[Change]) -> Crash:
    """The first sentence, the suspects and the notes for two sides of which at least one run failed.

    changes  what differs between the sides, as ``facts.changes`` finds it
    Raises ValueError where no run failed.
    """
    if not (before.failed or after.failed):
        raise ValueError("no run of either side failed")
    if len(before.failed) == len(before.runs) and len(after.failed) == len(after.runs):
        return _both(before, after, changes)
    forwards = len(after.failed) * len(before.runs) >= len(before.failed) * len(after.runs)
    pair = _Pair(before, after, changes, True) if forwards else _Pair(after, before, changes, False)
    failure = pair.failure()
    signature = table()[failure.signature or "unknown"]
    cold = _cold(pair) if signature.cache_hides or failure.last.startswith("compiling") else None
    suspects = _suspects(signature, pair, cold)
    named = _named(signature, suspects, changes)
    sentence = f"{_told(pair.bad, failure)}; {_since(pair, named, cold)}"
    return Crash(sentence, suspects, _notes(signature, pair, suspects, cold))


def _both(before: Side, after: Side, changes: Sequence[Change]) -> Crash:
    """Two crashed sides: the same failure is likely the same fault, whatever else differs."""
    first, second = _commonest(before), _commonest(after)
    signature = table()[second.signature or "unknown"]
    same = first.signature == second.signature
    if same and (signature.level not in ("exception", "said", "unknown") or first.sentence == second.sentence):
        last = (
            second.last
            if first.last == second.last
            else f"{first.last} in {_name(before)}, {second.last} in {_name(after)}"
        )
        sentence = f"both sides failed, and in the same way: {second.sentence}; the last thing that happened: {last}"
        return Crash(sentence, (), _advice(signature, second))
    suspects = _suspects(signature, _Pair(before, after, changes, True), None)
    named = _named(signature, suspects, changes)
    differs = f"; {listed([_words(change) for change in named[:_NAMED]])}" if named else ""
    sentence = f"both sides failed, and not in the same way: {_told(before, first)}; {_told(after, second)}{differs}"
    return Crash(sentence, suspects, _advice(signature, second))


# --- suspects ----------------------------------------------------------------------------------------------


def _suspects(signature: Signature, pair: _Pair, cold: _Cold | None) -> tuple[Suspect, ...]:
    """The changes that the failure points at, the likeliest first. What says the cache is colder is one change."""
    told = list(_pointed_at(signature, pair.changes).items())
    cache = [(change, why) for change, why in told if _CACHE.match(change.fact)]
    if cold is not None and not cache:
        states = (cold.warm, cold.cold) if pair.forwards else (cold.cold, cold.warm)
        cache = [(Change("state.cache.bytes", states[0].bytes, states[1].bytes), _why_cache(signature))]
        told = [*cache, *told]
    # A cache that did not get colder brought nothing that a warm one hides.
    dropped = [change for change, _ in (cache if signature.cache_hides and cold is None else cache[1:])]
    kept = [(change, why) for change, why in told if change not in dropped][:_MOST]
    return tuple(
        Suspect(
            change=change,
            rule=f"failure.{signature.id}",
            reason=f"{_cache_words(pair, cold) if cold and _CACHE.match(change.fact) else _words(change)}: {why}",
            rank=rank,
            score=round(1 - (rank - 1) / len(kept), 3),
            evidence=(f"reported with this failure: {signature.report}",) if signature.report else (),
            confirm=_confirm(change, pair),
            also=tuple(dropped) if _CACHE.match(change.fact) else (),
        )
        for rank, (change, why) in enumerate(kept, 1)
    )


def _pointed_at(signature: Signature, changes: Sequence[Change]) -> dict[Change, str]:
    """Each change that a pattern of the signature fits, in the order of the patterns, and why it can bring it."""
    found: dict[Change, str] = {}
    for pattern, why in signature.facts.items():
        fits, sizes = globs([pattern]), signature.sizes and pattern == "workload.*"
        hits = [c for c in changes if fits.match(c.fact) and not (_useless(c) or (sizes and is_remark(c.fact)))]
        found |= {c: why for c in hits if c not in found}
    return found


def _useless(change: Change) -> bool:
    """A place, a time or a load, unless a pattern asks for it by name: then it is one of ``context``."""
    return change.fact.startswith(("state.load.", "context.time", "context.recipe", "code.patch.left_out"))


def _confirm(change: Change, pair: _Pair) -> str:
    """What would show it: the crashed run with this one thing as it was where it went well."""
    bad, good = (pair.bad.failed or pair.bad.runs)[0].run, pair.good.runs[0].run
    if _CACHE.match(change.fact):
        return f"harness rerun {good.id} --cold"
    value, key = (change.before if pair.forwards else change.after), setting(change.fact)
    if key in bad.spec.config and not change.missing and not change.varies:
        return f"harness rerun {bad.id} {key}={str(value).lower() if isinstance(value, bool) else value}"
    if re.match(r"environment\.(package|doctor|lock)|state\.loaded\.", change.fact) and bad.spec.env:
        return f"harness doctor {bad.spec.env}"
    return f"harness rerun {good.id}" if change.kind in ("environment", "code") else ""


def _named(signature: Signature, suspects: Sequence[Suspect], changes: Sequence[Change]) -> list[Change]:
    """What the sentence may name, the likeliest first: no fact of which one side only did not record what it was."""
    found = [suspect.change for suspect in suspects]
    found = found or [c for c in _leading(changes) if not (signature.sizes and is_remark(c.fact))]
    return [change for change in found if not change.missing or absence_tells(change.fact)]


def _leading(changes: Sequence[Change]) -> list[Change]:
    """Where the failure points at none of the changes: those that a person looks at first."""
    told = [c for c in changes if not _SILENT.match(c.fact) and not _CACHE.match(c.fact) and c.kind in _READ_FIRST]
    return sorted(told, key=lambda change: _READ_FIRST.index(change.kind))


# --- the cache ---------------------------------------------------------------------------------------------


def _why_cache(signature: Signature) -> str:
    fits = (why for pattern, why in signature.facts.items() if globs([pattern]).match("state.cache.bytes"))
    return next(fits, "what is cached is not compiled")


def _cold(pair: _Pair) -> _Cold | None:
    """Where the crashed runs began with less than half of what the cache held for those that went well."""
    warm = _held([m for m in pair.good.runs if m.failure is None])
    cold = _held(pair.bad.failed)
    if warm is None or cold is None or warm.entries == 0 or 2 * cold.entries > warm.entries:
        return None
    starts = {str(m.facts.get("state.cache.start", "")) for m in pair.bad.failed}
    return _Cold(warm, cold, "partial" if starts == {"partial"} else "cold")


def _held(runs: Sequence[Measured]) -> CacheState | None:
    """What the cache held when a run began: the median one by entries, of the runs that know."""
    states = sorted((m.run.cache_before for m in runs if m.run.cache_before), key=lambda state: state.entries)
    return states[len(states) // 2] if states else None


def _cache_words(pair: _Pair, cold: _Cold) -> str:
    warm, less = f"warm ({_size(cold.warm)})", f"{cold.start} ({_size(cold.cold)})"
    first, second = (warm, less) if pair.forwards else (less, warm)
    return f"the compile cache went from {first} to {second}"


def _size(state: CacheState) -> str:
    return f"{figures.size(state.bytes)} in {state.entries:,} entries" if state.entries else "empty"


# --- words -------------------------------------------------------------------------------------------------


def _told(side: Side, failure: Failure) -> str:
    """Who failed, how, and the last thing that happened."""
    few = "" if len(side.failed) == len(side.runs) else f"{len(side.failed)} of the {len(side.runs)} runs of "
    head = f"{few}{_name(side)} {failure.verb}: {failure.sentence}"
    return f"{head}; the last thing that happened: {failure.last}"


def _since(pair: _Pair, named: Sequence[Change], cold: _Cold | None) -> str:
    """What changed since the good run, and that its warm cache may have hidden the fault."""
    good = _name(pair.good)
    well = f"failed in {len(pair.good.failed)} of {len(pair.good.runs)} runs" if pair.good.failed else "went well"
    told = [_words(change) for change in named if not _CACHE.match(change.fact)][:_NAMED]
    told += [_cache_words(pair, cold)] if cold is not None else []
    if not told:
        return f"{good} {well}, and no change that was recorded is known to bring it"
    text = f"since {good}, which {well}, {listed(told)}" if pair.forwards else f"{good} {well}, after {listed(told)}"
    return f"{text}, and the warm cache may have hidden the fault" if cold is not None else text


def _commonest(side: Side) -> Failure:
    """The failure of most of the side's failed runs; of two that are as common, the one that came first."""
    failures = [m.failure for m in side.failed if m.failure is not None]
    most = Counter(failure.signature for failure in failures).most_common(1)[0][0]
    return next(failure for failure in failures if failure.signature == most)


def _name(side: Side) -> str:
    return side.name or side.runs[0].run.id


def _words(change: Change) -> str:
    """``torch went from 2.11.0 to 2.13.0``."""
    words = words_of(change, ())
    return f"{words['name']} went from {words['before']} to {words['after']}"


def _notes(signature: Signature, pair: _Pair, suspects: Sequence[Suspect], cold: _Cold | None) -> tuple[str, ...]:
    failure = pair.failure()
    notes = [*_advice(signature, failure)]
    if signature.id in _BY_CHANCE:
        notes.append("This failure does not come each time: a run that went well does not show that it is gone.")
    if cold is not None:
        notes.append("A warm cache hides a fault of compiling and does not mend it: with it, less is compiled.")
    if not suspects:
        notes.append("Nothing that is known to bring this failure differs between the sides.")
    others = sorted({m.failure.signature or "unknown" for m in pair.bad.failed if m.failure} - {signature.id})
    if others:
        notes.append(f"Other runs of {_name(pair.bad)} failed otherwise: {listed(others)}.")
    return tuple(notes)


def _advice(signature: Signature, failure: Failure) -> tuple[str, ...]:
    told = [f"What to do: {failure.advice}."] if failure.advice else []
    return (*told, *([f"Reported by others: {signature.title}: {signature.report}"] if signature.report else ()))
