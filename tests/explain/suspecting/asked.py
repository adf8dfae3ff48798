"""Two sides with what is known of them, put to the rules: the split written again here, from its formula."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from harness.comparison import Change, Contribution, Judgement, Measured, Side, Steady, Suspect
from harness.explain.comparing import facts
from harness.explain.judging.interruptions import interruptions
from harness.explain.suspecting.grown import growth, interrupted
from harness.explain.suspecting.suspects import suspects, unexplained
from harness.records import Interval, Result, Run, RunSpec, Value

COSTS: Mapping[str, float] = {
    "data": 0.5, "wait": 0.5, "target": 12.0, "forward": 14.0, "backward": 17.0,
    "optimizer": 2.0, "communication": 1.0, "unaccounted": 0.5,
}  # fmt: skip
"""Milliseconds for each 1,000 tokens."""

FIRST: Mapping[str, float] = {"set-up": 12.0, "compile": 3.0, "forward": 0.1, "backward": 0.1}
"""Seconds to the first step."""

BASE: Mapping[str, Value] = {
    "environment.python": "3.12.3",
    "environment.package.torch": "2.11.0",
    "execution.device.used": "cuda:0",
    "workload.train.batch": 4,
    "context.host": "box",
}

CONFIG: Mapping[str, Value] = {"train.batch": 4, "slow.forward": 0.0, "attention": "flex", "data.workers": 8}


@dataclass(frozen=True)
class Told:
    """A side of one run: its facts beside BASE, and how many times longer some of its phases take."""

    facts: Mapping[str, Value] = field(default_factory=dict)
    longer: Mapping[str, float] = field(default_factory=dict)
    first: Mapping[str, float] = field(default_factory=dict)  # times longer
    new: Mapping[str, float] = field(default_factory=dict)  # phases that COSTS has not, in its unit
    padding: float = 0.0  # tokens beside each useful one


def run(name: str, told: Told, recipe: str = "box") -> Measured:
    """One run, measured."""
    phases = {**{phase: cost * told.longer.get(phase, 1.0) for phase, cost in COSTS.items()}, **told.new}
    seconds = sum(phases.values()) * (1 + told.padding)
    given = {**BASE, **told.facts}
    first = {part: cost * told.first.get(part, 1.0) for part, cost in FIRST.items()}
    value = 1e6 / seconds
    spec = RunSpec(recipe, "cu128", ("python",), CONFIG)
    return Measured(
        run=Run(name, f"runs/{name}", spec, Result("finished", 0), None, None, None),
        facts={fact: v for fact, v in given.items() if not fact.startswith("observed.")},
        observed={fact: v for fact, v in given.items() if fact.startswith("observed.")},
        steady=Steady(
            role="trainer",
            steps=100,
            seconds=seconds,
            tokens=1_000_000,
            padding=round(1e6 * told.padding),
            phases={k: v * (1 + told.padding) for k, v in phases.items()},
            throughput=Interval(value, 0.999 * value, 1.001 * value),
        ),
        first_step_s=sum(first.values()),
        first_step=first,
    )


def side(name: str, *told: Told) -> Side:
    return Side(name, tuple(run(f"{name}{i}", each) for i, each in enumerate(told)))


@dataclass(frozen=True)
class Answer:
    suspects: tuple[Suspect, ...]
    also_changed: tuple[Change, ...]
    unexplained: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        return [suspect.change.fact for suspect in self.suspects]


def ask(before: Told, after: Told, changes: Sequence[Change] | None = None) -> Answer:
    """What the rules say of one run a side; an interval of 2 % around each ratio."""
    a, b = side("a", before), side("b", after)
    steady, parts = _judged("throughput", a, b), _steady_split(a.runs[0], b.runs[0])
    first, first_parts = _judged("first step", a, b), _split(a.runs[0].first_step, b.runs[0].first_step)
    found = facts.changes(a, b) if changes is None else changes
    steady_growth = growth(steady, parts)
    breaks = interruptions(a, b, decided=steady_growth is not None)
    grown = [each for each in (steady_growth, interrupted(breaks), growth(first, first_parts)) if each]
    named, also = suspects(found, grown, a, b)
    return Answer(named, also, unexplained(named, grown))


def _figure(figure: str, side: Side) -> float:
    one = side.runs[0]
    value = one.first_step_s if figure == "first step" else one.steady and one.steady.throughput.value
    assert value
    return value


def _judged(figure: Literal["throughput", "first step"], before: Side, after: Side) -> Judgement:
    a, b = _figure(figure, before), _figure(figure, after)
    ratio = b / a
    same = abs(math.log(ratio)) < 0.02
    slower = (ratio < 1) == (figure == "throughput")
    return Judgement(
        figure,
        "SAME" if same else "SLOWER" if slower else "FASTER",
        "assumed",
        Interval(ratio, ratio * 0.98, ratio * 1.02),
        a,
        b,
        (1, 1),
    )


def _steady_split(before: Measured, after: Measured) -> tuple[Contribution, ...]:
    """Throughput: more is faster, so what grew is negative. Seconds a processed token, and padding apart."""
    assert before.steady
    assert after.steady
    processed = [s.tokens + s.padding for s in (before.steady, after.steady)]
    costs = [
        {k: v / n for k, v in s.phases.items()} for s, n in zip((before.steady, after.steady), processed, strict=True)
    ]
    parts = [Contribution(c.phase, -c.log_ratio, None, c.before, c.after) for c in _split(*costs)]
    p0, p1 = (n / s.tokens for s, n in zip((before.steady, after.steady), processed, strict=True))
    return (Contribution("padding", -math.log(p1 / p0), None, p0, p1), *parts)


def _split(before: Mapping[str, float], after: Mapping[str, float]) -> tuple[Contribution, ...]:
    """ln(sum after / sum before) over the parts, by the additive log-mean split (Ang 2004)."""
    a, b = sum(before.values()), sum(after.values())
    mean = a if math.isclose(a, b) else (b - a) / math.log(b / a)
    pairs = {k: (before.get(k, 0.0), after.get(k, 0.0)) for k in {**before, **after}}
    return tuple(Contribution(k, (new - old) / mean, None, old, new) for k, (old, new) in pairs.items())
