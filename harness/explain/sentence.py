"""The first sentence: what a person must know before any number is believed. Plain English, one or two sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from harness import figures
from harness.comparison import (
    BETWEEN,
    RESOLVED,
    UNACCOUNTED,
    Contribution,
    Interruption,
    Judgement,
    Shift,
    Side,
    Suspect,
)
from harness.explain.comparing.comparable import Compared
from harness.explain.comparing.facts import differ, values
from harness.explain.failing.crashed import Crash
from harness.explain.judging.interruptions import in_all
from harness.explain.suspecting.grown import Figure, told_by

BREAKS = {
    "observed.evals_per_1000_steps": ("it evaluated less often", "it evaluated more often"),
    "observed.checkpoints_per_1000_steps": ("it wrote fewer checkpoints", "it wrote more checkpoints"),
}
"""What training is interrupted for, and how a person says that it was so less often, and more often."""

EVALUATING, SAVING = BREAKS

PASSED = {
    BETWEEN: ("passed between the steps", (EVALUATING, SAVING)),
    "compile": ("went into compiling after the first step", ()),
    "evaluation": ("went into evaluations", (EVALUATING,)),
    UNACCOUNTED: ("was in no recorded phase", (SAVING,)),
}
"""How a person says that time went into an interruption, and what can have been done more often."""


@dataclass(frozen=True)
class Parts:
    """What the sentence is made from."""

    before: Side
    after: Side
    compared: Compared
    throughput: Judgement
    first_step: Judgement
    contributions: Sequence[Contribution]
    breaks: Sequence[Interruption]
    suspects: Sequence[Suspect]
    crash: Crash | None


def first_sentence(parts: Parts) -> str:
    """A failure first, then different work, then slower or faster with the phase and the first suspect."""
    if parts.crash is not None:
        return _ended(parts.crash.sentence)
    if parts.compared.comparability == "NOT_COMPARABLE":
        return _different_work(parts)
    if parts.throughput.ratio is None and parts.first_step.ratio is None:
        return _ended(f"There is nothing to compare: {_why_nothing(parts)}")
    said = [_steady(parts), _interrupted(parts), _start(parts), _suspect(parts), _running(parts)]
    text = "; ".join(part for part in said if part)
    if parts.compared.comparability == "CONFOUNDED":
        text += f"; but {parts.compared.reasons[0]}, so the difference may not be what you changed"
    if parts.compared.comparability == "UNKNOWN":
        text += "; whether it is the same work is not known: " + parts.compared.reasons[0]
    return _ended(text[0].upper() + text[1:])


def _different_work(parts: Parts) -> str:
    why = "; ".join(parts.compared.reasons[:2])
    if parts.throughput.before is None or parts.throughput.after is None:
        return _ended(f"This is not the same work: {why}")
    pair = f"{_rate(parts, parts.throughput.before)} against {_rate(parts, parts.throughput.after)}"
    return _ended(f"This is not the same work, so {pair} is no regression: {why}")


def _steady(parts: Parts) -> str:
    """The steady speed, or "" where a side has none."""
    judged = parts.throughput
    if judged.ratio is None or judged.before is None or judged.after is None:
        return f"the steady speed cannot be compared: {_why_nothing(parts)}"
    pair = f"{_rate(parts, judged.after)} instead of {_rate(parts, judged.before)}"
    ratio = judged.ratio.value
    if judged.verdict == "SAME":
        return f"the speed is the same within {figures.digits(100 * judged.margin, 2)} %: {pair}"
    if judged.verdict == "UNKNOWN":
        return f"it is not decided whether the speed differs: {pair}, {_open(judged)}"
    moment = _moment(parts) if judged.verdict == "SLOWER" else ""
    return f"{figures.by_how_much(ratio)}: {pair}{moment}{_grown(parts)}"


def _open(judged: Judgement) -> str:
    if judged.more_runs:
        runs = figures.counted_text(judged.more_runs, "more run")
        return f"and {runs} a side would likely settle it"
    return "and no number of runs that is worth it would settle it"


def _moment(parts: Parts) -> str:
    """Where one run is slow only from some step on: that is another fault than one that is slow throughout."""
    if len(parts.after.runs) != 1:
        return ""
    falls = [shift for shift in parts.after.runs[0].shifts if shift.after < shift.before and shift.until is None]
    if not falls:
        return ""
    worst: Shift = min(falls, key=lambda shift: shift.after / shift.before)
    matched = f" ({worst.matched[0]})" if worst.matched else ""
    fell = f"from {_rate(parts, worst.before)} to {_rate(parts, worst.after)}"
    return f" on the whole: at step {worst.step:,} it fell {fell}{matched}"


def _grown(parts: Parts) -> str:
    """The phase that gave most to the difference, where one did; none of them is an answer too."""
    with_share = [c for c in parts.contributions if c.share is not None and c.share > 0]
    if not with_share:
        return ""
    most = max(with_share, key=lambda c: c.share or 0.0)
    share = most.share or 0.0
    where = "no recorded phase" if most.phase == UNACCOUNTED else most.phase
    return f", {'all' if share > 0.995 else f'{figures.digits(100 * share, 2)} %'} of it in {where}"


def _interrupted(parts: Parts) -> str:
    """The greatest interruption that differs, which the steady speed does not show, and what both come to."""
    if not parts.breaks:
        return ""
    found = parts.breaks[0]
    passed, facts = PASSED[found.name]
    often = [BREAKS[fact][found.more] for fact in facts if _moved(parts, fact) == (1 if found.more else -1)]
    own = _apart(parts, "interruptions")
    by = f" ({' and '.join(often)})" if often else f" (suspect: {own.reason})" if own else ""
    was, now = (f"{figures.digits(100 * share, 2)} %" for share in (found.before, found.after))
    much = now if found.more else f"only {now}" if found.after > RESOLVED else "none"
    alike = parts.throughput.verdict == ("SLOWER" if found.more else "FASTER")
    word = "and" if alike else "but"
    return f"{word} {much} of its time {passed}, before: {was}{by}{_in_all(parts)}"


def _in_all(parts: Parts) -> str:
    """How much slower or faster it was with the time between the steps, where the speed of the steps is decided."""
    ratio = in_all(parts.throughput, parts.breaks)
    if ratio is None or parts.throughput.verdict == "UNKNOWN":
        return ""
    return f", in all {figures.by_how_much(ratio)}"


def _moved(parts: Parts, fact: str) -> int:
    """1 where something came more often after than before, -1 where less often; where nothing is recorded, never."""
    recorded = (values(side.runs).get(fact, ()) for side in (parts.before, parts.after))
    before, after = ([v for v in side if isinstance(v, int | float)] for side in recorded)
    if not differ(fact, before, after):
        return 0
    return 1 if median(after or [0]) > median(before or [0]) else -1


def _apart(parts: Parts, figure: Figure) -> Suspect | None:
    """The first suspect of a figure alone, where the speed has suspects of its own and it is not the first of all."""
    if not any("throughput" in told_by(s) for s in parts.suspects):
        return None
    return next((s for s in parts.suspects[1:] if told_by(s) == {figure}), None)


def _start(parts: Parts) -> str:
    judged = parts.first_step
    if judged.verdict not in ("SLOWER", "FASTER") or judged.before is None or judged.after is None:
        return ""
    word = "later" if judged.verdict == "SLOWER" else "sooner"
    pair = f"after {figures.duration(judged.after)} instead of {figures.duration(judged.before)}"
    own = _apart(parts, "first step")
    return f"the first step came {word}, {pair}" + (f" (suspect: {own.reason})" if own else "")


def _suspect(parts: Parts) -> str:
    """The first suspect of the training's time; where that does not differ, of the first step."""
    decided = parts.throughput.verdict in ("SLOWER", "FASTER")
    if not parts.suspects:
        differs = decided or parts.first_step.verdict in ("SLOWER", "FASTER") or parts.breaks
        return "nothing recorded explains it" if differs else ""
    steady = next((s for s in parts.suspects if "throughput" in told_by(s)), None)
    first = parts.suspects[0] if "interruptions" in told_by(parts.suspects[0]) else steady or parts.suspects[0]
    if steady is None and decided:
        of = "the time between the steps" if "interruptions" in told_by(first) else "the first step"
        what = "the speed of the steps" if parts.breaks else "that"
        return f"nothing recorded explains {what}; suspect of {of}: {first.reason}"
    return f"first suspect: {first.reason}"


def _running(parts: Parts) -> str:
    going = [m.run.id for side in (parts.before, parts.after) for m in side.runs if m.run.result.status == "running"]
    return f"{going[0]} is still running, and is taken as it stands" if going else ""


def _why_nothing(parts: Parts) -> str:
    without = [m.run.id for side in (parts.before, parts.after) for m in side.runs if m.steady is None]
    if without:
        more = len(without) - 1
        others = f", nor {'has' if more == 1 else 'have'} {figures.counted_text(more, 'other')}" if more else ""
        return f"{without[0]} has no steady steps{others}"
    return parts.throughput.words


def _rate(parts: Parts, value: float) -> str:
    return figures.rate(value, parts.before.runs[0].unit)


def _ended(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else text + "."
