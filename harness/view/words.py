"""What the parts of an explanation are called, on the terminal and in the report alike."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Literal

from harness import figures
from harness.comparison import UNACCOUNTED, Basis, Change, Comparability, Explanation, Judgement, Side
from harness.places import program
from harness.records import KINDS

WORK: Mapping[Comparability, str] = {
    "COMPARABLE": "the same work",
    "CONFOUNDED": "the same work, but something that nobody chose differs too",
    "NOT_COMPARABLE": "not the same work",
    "UNKNOWN": "not known whether it is the same work",
}

LEAD = 20
"""Characters of a long text that are shown before the first one in which the sides differ."""

CHANGE_KINDS = (*KINDS[:-1], "observed", KINDS[-1])
"""Kinds of facts in the order in which they are shown: names and times last."""

_UNPRINTED = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def plain(text: str) -> str:
    """``text`` without colours and control characters: a fact or a log line may not drive the reader's terminal.

    A tab, of which a table does not know how wide it is, is four blanks.
    """
    return _UNPRINTED.sub("", text).replace("\t", "    ")


def badge(e: Explanation) -> str:
    """The verdict in a word or two: a failure comes before any speed, and different work has no verdict."""
    if e.before.failed or e.after.failed:
        return "FAILED"
    return "NOT COMPARABLE" if e.comparability == "NOT_COMPARABLE" else e.verdict


def verdict_of(e: Explanation, figure: Judgement) -> str:
    """A figure's verdict; where the work is not the same, that there is none rather than that it is unknown."""
    return "NOT JUDGED" if e.comparability == "NOT_COMPARABLE" and figure.basis == "none" else figure.verdict


def amount(figure: Judgement, value: float | None, unit: str) -> str:
    """A figure's value with its unit: ``21.5 Ktok/s``, ``1:36``; ``unknown``."""
    if value is None:
        return "unknown"
    return figures.duration(value) if figure.figure == "first step" else figures.rate(value, unit)


def side_of(change: Change, side: Literal["before", "after"]) -> str:
    """The value of one side, of a long text the part where the sides differ.

    What was not recorded is not known: it is not the same, and not empty.
    """
    if change.missing == side:
        return "not recorded"
    before, after = (plain(figures.fact(change.fact, value)) for value in (change.before, change.after))
    differing = (n for n, (a, b) in enumerate(zip(before, after, strict=False)) if a != b)
    first = next(differing, min(len(before), len(after)))
    return figures.shortened(before if side == "before" else after, max(0, first - LEAD)) or '""'


def arrow(change: Change) -> str:
    """``flex → dense``."""
    varies = " (varies from run to run)" if change.varies else ""
    return f"{side_of(change, 'before')} → {side_of(change, 'after')}{varies}"


def interrupted(e: Explanation) -> list[str]:
    """What interrupted training more on one side, each a line: "compile: 0 % of the time before, 62 % after"."""
    names = {UNACCOUNTED: "no recorded phase"}
    return [figures.shares_text(plain(names.get(i.name, i.name)), i.before, i.after) for i in e.interruptions]


def no_suspect(e: Explanation) -> str:
    """Why no suspect is named."""
    if e.before.failed or e.after.failed or "SLOWER" in (e.verdict, e.first_step.verdict):
        return "None: no change that was recorded can have done it. What did it was not recorded."
    if "FASTER" in (e.verdict, e.first_step.verdict):
        return "None: no change that was recorded can have made it faster."
    if e.comparability == "NOT_COMPARABLE":
        return "None: where the work is not the same, the work itself is the difference."
    if e.interruptions:
        return "None: no change that was recorded explains what the time went into."
    return "None: no difference is shown that would need one."


def also_changed(changes: Sequence[Change], shown: int = 6) -> str:
    """``12: environment.lock, code.commit and 10 more``: workload facts come first, names and times last."""
    names = [plain(change.fact) for change in sorted(changes, key=lambda c: _order(c.kind))]
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return f"{len(names)}: {', '.join(names[:shown])}{more}"


def command(e: Explanation, *options: str) -> str:
    """What shows every change: ``harness diff A B``."""
    return shlex.join([program(), "diff", *map(_typed, (e.before, e.after)), *options])


def side_name(side: Side) -> str:
    """A side's name, and how many runs and which they are, unless it is the name of its only run."""
    runs = f"{figures.counted_text(len(side.runs), 'run')}: {', '.join(m.run.id for m in side.runs)}"
    return plain(side.name if [m.run.id for m in side.runs] in ([], [side.name]) else f"{side.name} ({runs})")


def _typed(side: Side) -> str:
    """A side as a command takes it: its name, or its runs where the name is a description."""
    return plain(side.name) if side.name and " " not in side.name else ",".join(plain(m.run.id) for m in side.runs)


def _order(kind: str) -> int:
    return CHANGE_KINDS.index(kind) if kind in CHANGE_KINDS else len(CHANGE_KINDS)


def by_kind(changes: Sequence[Change]) -> dict[str, list[Change]]:
    """The changes by kind, in the order in which kinds are shown; a kind that is not known stands last."""
    groups: dict[str, list[Change]] = {}
    for change in sorted(changes, key=lambda c: (_order(c.kind), c.fact)):
        groups.setdefault(change.kind, []).append(change)
    return groups


def number(figure: Judgement, value: float, unit: str) -> str:
    """A figure's value where a heading says its unit: ``21.5``; times with theirs, ``1:36``."""
    if figure.figure == "first step":
        return figures.duration(value)
    return figures.rate(value, unit).split()[0]


def change_of(figure: Judgement, value: float, unit: str) -> str:
    """A part of the difference, with its sign: one digit more than the figure has, so that a column lines up."""
    level = max(figure.before or 0.0, figure.after or 0.0)
    if abs(value) < (1e-3 if figure.figure == "first step" else 1e-4) * level:
        return "0"
    if figure.figure == "first step":
        return figures.signed(value, figures.duration(abs(value)))
    decimals = len(number(figure, level, unit).partition(".")[2]) + 1
    return f"{value / 1000 if unit == 'tokens' else value:+.{decimals}f}"


def cost_name(figure: Judgement, unit: str) -> str:
    """What the costs of a waterfall's phases are in."""
    return "s" if figure.figure == "first step" else figures.cost_unit(unit)[0]


RESTS: Mapping[Basis, str] = {
    "tested": "tested by repeats",
    "judged": "judged by how runs of this workload differ",
    "assumed": "assumed spread between runs",
    "none": "",
}


def same_within(e: Explanation, figure: Judgement) -> str:
    """The difference that counts as none: ``the same within 2 %``.

    Of a first step that comes soon it is so many seconds, whatever share of it they are: ``the same within 0.25 s``.
    """
    if figure.before and figure.after and absolute(e, figure):
        return f"the same within {figure.margin * min(figure.before, figure.after):.3g} s"
    return f"the same within {100 * figure.margin:.3g} %"


def absolute(e: Explanation, figure: Judgement) -> bool:
    """Whether the figure's margin is an allowance in seconds: more than the share that the other figure has."""
    return figure.figure == "first step" and figure.margin > e.throughput.margin


def rests_on(figure: Judgement) -> str:
    """What a verdict rests on, in a sentence; how many more runs would settle it."""
    said = plain(figure.words) or RESTS[figure.basis]
    if figure.verdict == "UNKNOWN" and figure.more_runs:
        more = f"{figures.counted_text(figure.more_runs, 'more run')} a side would likely settle it"
        said = f"{said.rstrip('.')}; {more}" if said else more
    return said
