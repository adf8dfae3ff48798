"""Is it the same work? From workload facts alone; other kinds are where suspects come from.

NOT_COMPARABLE: a workload fact differs that changes what a token costs, or the data. UNKNOWN: a side did not record
what the other did, and what both recorded is equal. CONFOUNDED: the same work, but something that nobody chose differs.
Which facts those are, and what they are called, stands in ``workload.toml``.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from harness.comparison import Change, Comparability, Measured, Side
from harness.explain.comparing import facts
from harness.explain.comparing.normalised import normalised
from harness.explain.words import listed, said, setting
from harness.records import IMPORTED, Value, digest


@dataclass(frozen=True)
class Compared:
    """Whether two sides did the same work. ``reasons`` are clauses: lower case, no full stop, the weightiest first."""

    comparability: Comparability
    reasons: tuple[str, ...] = ()
    fair_pair: str = ""
    normalised: tuple[tuple[str, float, float], ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Derived:
    fact: str
    sources: re.Pattern[str]
    determined: bool


@dataclass(frozen=True)
class _Table:
    """``workload.toml``, its globs compiled."""

    remarks: re.Pattern[str]
    one_place: re.Pattern[str]
    derived: tuple[_Derived, ...]
    words: tuple[tuple[re.Pattern[str], str, str], ...]  # pattern, label, unit
    confounders: tuple[tuple[re.Pattern[str], str, bool], ...]  # pattern, words, not inside a container


@cache
def _table() -> _Table:
    data: dict[str, Any] = tomllib.loads(Path(__file__).with_name("workload.toml").read_text("utf-8"))
    return _Table(
        remarks=facts.globs(data["remarks"]),
        one_place=facts.globs(data["one_place"]),
        derived=tuple(_Derived(e["fact"], facts.globs(e["from"]), e.get("determined", False)) for e in data["derived"]),
        words=tuple((facts.globs(e["facts"]), e["label"], e.get("unit", "")) for e in data["words"]),
        confounders=tuple(
            (facts.globs(e["facts"]), e["words"], e.get("unless_container", False)) for e in data["confounders"]
        ),
    )


def work(recorded: Mapping[str, Value]) -> str:
    """The digest of the work: equal for runs that differ only in what is a remark, or follows from other facts.

    Of no facts it is the digest of the table itself, so that whoever keeps digests sees when they are to be made anew.
    """
    table = _table()
    kept = {f: v for f, v in recorded.items() if f.startswith("workload.") and not is_remark(f)}
    follow = {each.fact: each.sources for each in table.derived}
    sources = [fact for fact in kept if fact not in follow]
    for fact, pattern in follow.items():
        if fact in kept and any(pattern.match(source) for source in sources):
            del kept[fact]
    return digest([table.remarks.pattern, *((f, pattern.pattern) for f, pattern in follow.items()), kept])


def is_remark(fact: str) -> bool:
    """Whether a workload fact leaves what a token costs as it was: a seed, the training's length."""
    return _table().remarks.match(fact) is not None


def compare(before: Side, after: Side, changes: Sequence[Change]) -> Compared:
    """Whether the sides did the same work, with the reasons; ``changes`` are those between them."""
    workload = [change for change in _independent(changes, before, after) if change.kind == "workload"]
    counted = [change for change in workload if not is_remark(change.fact)]
    different = [change for change in counted if not change.missing]
    confounded = (*_confounders(changes, before, after), *_overlaps(before, after))
    work = (*_units(before, after), *map(sentence, different), *_mixed_work(before), *_mixed_work(after))
    unknown = tuple(_unknown(counted, before, after))
    kind: Comparability = "COMPARABLE"
    if work:
        kind = "NOT_COMPARABLE"
    elif unknown:
        kind = "UNKNOWN"
    elif confounded:
        kind = "CONFOUNDED"
    return Compared(
        kind,
        reasons=(*work, *unknown, *confounded),
        fair_pair=_fair_pair(different, before, after) if work else "",
        normalised=normalised(before, after),
        notes=tuple(_remarks(workload)),
    )


def sentence(change: Change) -> str:
    """A changed workload fact as a clause: "the data: 902,000 samples against 1,100,000"."""
    name = setting(change.fact)
    part, _, last = name.rpartition(".")
    label, unit = next(((la, u) for pattern, la, u in _table().words if pattern.match(change.fact)), (name, ""))
    label = label.format(name=last, part={"": "model", "model": "model", "target": "target"}.get(part, part))
    before, after = said(change.fact, change.before), said(change.fact, change.after)
    return f"{label}: {before}{' ' + unit if unit else ''} against {after}"


def _independent(changes: Sequence[Change], before: Side, after: Side) -> Iterator[Change]:
    """The changes without those that only follow from another, which is among them too."""
    derived = {each.fact: each for each in _table().derived}
    known = facts.values(before.runs).keys() & facts.values(after.runs).keys()
    named = [change.fact for change in changes]
    for change in changes:
        rule = derived.get(change.fact)
        if rule is not None:
            sources = [fact for fact in named if fact not in derived and rule.sources.match(fact)]
            if change.missing:
                sources_known = any(rule.sources.match(fact) for fact in known)
                if rule.determined and sources_known and not sources:
                    continue
            elif sources:
                continue
        yield change


# --- what else can be in the way -------------------------------------------------------------------------


def _units(before: Side, after: Side) -> Iterator[str]:
    units = [sorted({m.unit for m in side.runs}) for side in (before, after)]
    if units[0] != units[1] and all(units):
        yield f"the throughput counts {listed(units[0])} on one side and {listed(units[1])} on the other"


def _mixed_work(side: Side) -> Iterator[str]:
    """A side whose runs did different work among themselves."""
    differing = [
        f"{setting(fact)} ({listed(_spread(found))})"
        for fact, found in sorted(facts.values(side.runs).items())
        if fact.startswith("workload.") and not is_remark(fact) and _spread(found)
    ]
    if differing:
        more = f" and {len(differing) - 3} more" if len(differing) > 3 else ""
        yield f"the runs of {side.name} did different work: {', '.join(differing[:3])}{more}"


def _spread(found: Sequence[Any]) -> list[str]:
    values = list(dict.fromkeys(map(str, found)))
    return values if len(values) > 1 else []


def _unknown(counted: Sequence[Change], before: Side, after: Side) -> Iterator[str]:
    """What one side recorded of its work and the other did not; and where neither recorded anything."""
    for place, side in (("before", before), ("after", after)):
        missing = [setting(change.fact) for change in counted if change.missing == place]
        if missing:
            more = f" and {len(missing) - 4} more" if len(missing) > 4 else ""
            yield f"{side.name or place} did not record {', '.join(missing[:4])}{more}"
    if not any(fact.startswith("workload.") for side in (before, after) for m in side.runs for fact in m.facts):
        yield "neither side recorded what it computed"


def _confounders(changes: Sequence[Change], before: Side, after: Side) -> Iterator[str]:
    contained = any(
        m.facts.get("environment.container", "none") != "none" for side in (before, after) for m in side.runs
    )
    for pattern, words, unless_container in _table().confounders:
        hits = [c for c in changes if pattern.match(c.fact) and not c.missing]
        if hits and not (unless_container and contained):
            first = hits[0]
            yield f"they ran on {words} ({said(first.fact, first.before)} against {said(first.fact, first.after)})"
    for side in (before, after):
        mixed = [
            setting(fact)
            for fact, found in sorted(facts.values(side.runs).items())
            if _table().one_place.match(fact) and _spread(found)
        ]
        if mixed:
            more = f" and {len(mixed) - 3} more" if len(mixed) > 3 else ""
            yield f"the runs of {side.name} are not of one environment: they differ in {', '.join(mixed[:3])}{more}"


def _overlaps(before: Side, after: Side) -> Iterator[str]:
    """Runs that went at the same time on one machine took from each other."""
    runs = [*before.runs, *after.runs]
    for i, a in enumerate(runs):
        for b in runs[i + 1 :]:
            if a.run.id != b.run.id and _same_host(a, b) and _shared_seconds(a, b) > 0:
                yield f"{a.run.id} and {b.run.id} ran at the same time on one machine"
                return


def _same_host(a: Measured, b: Measured) -> bool:
    host = a.facts.get("context.host")
    return host is not None and host == b.facts.get("context.host")


def _shared_seconds(a: Measured, b: Measured) -> float:
    if a.run.result.ended_at is None or b.run.result.ended_at is None:
        return 0.0
    end = min(a.run.result.ended_at, b.run.result.ended_at)
    return end - max(a.run.result.started_at, b.run.result.started_at)


# --- what is said of it ----------------------------------------------------------------------------------


def _remarks(workload: Iterable[Change]) -> Iterator[str]:
    """Workload facts that differ and leave a token's cost as it was."""
    said_of = [
        f"{setting(c.fact)} {said(c.fact, c.before)} against {said(c.fact, c.after)}"
        for c in workload
        if _table().remarks.match(c.fact) and not c.missing
    ]
    if said_of:
        yield f"different, and no other work: {listed(said_of)}"


def _fair_pair(different: Sequence[Change], before: Side, after: Side) -> str:
    """What to run so that both sides do the same work: the later settings on the earlier work.

    A command that can be pasted, where a recipe takes all of the settings; else the settings, in words.
    """
    known = [c for c in different if not c.varies]
    if not known or not after.runs or not before.runs:
        return ""
    spec = after.runs[0].run.spec
    settings = shlex.join(f"{setting(c.fact)}={_written(c.before)}" for c in known)
    example = f"a fair pair has the same work on both sides, for example that of {_name(before)}"
    if not spec.recipe or not {setting(c.fact) for c in known} <= spec.config.keys():
        return f"{example}: {listed([f'{setting(c.fact)} {said(c.fact, c.before)}' for c in known])}"
    if spec.recipe != before.runs[0].run.spec.recipe or IMPORTED in after.runs[0].facts:
        return f"{example}: harness run {spec.recipe} {settings}"
    call = f"harness rerun {after.runs[0].run.id} {settings}"
    return f"a fair pair would be {_name(before)} against {_name(after)} run again with the same work: {call}"


def _name(side: Side) -> str:
    return side.name or (side.runs[0].run.id if side.runs else "the other")


def _written(value: Any) -> str:
    """As it is meant after ``key=``."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)
