"""What ``explain`` makes: one run measured, and two sides of runs explained. Frozen, JSON, standard library only.

    Evidence (arrays, ``harness/evidence.py``) -> Measured (one run) -> Explanation (two sides)

The words suspect and cause are kept apart: a ``Suspect`` is a change that can have done it; only running again makes
a cause.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from harness.records import Interval, Kind, Run, Value

Verdict = Literal["FASTER", "SLOWER", "SAME", "UNKNOWN"]
Comparability = Literal["COMPARABLE", "CONFOUNDED", "NOT_COMPARABLE", "UNKNOWN"]
Basis = Literal["tested", "judged", "assumed", "none"]
"""What a verdict rests on: repeats, the spread of this workload's history, a stated default spread, or nothing."""

UNACCOUNTED = "unaccounted"
"""The phase of what no phase covers; a step calls it "other"."""

BETWEEN = "between the steps"
"""The time after the first step that no step contains."""

RESOLVED = 0.005
"""Of a run's time, below which a share is as good as none: ratios are taken from here on."""


# --- one run ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Steady:
    """Steady state of the role that counts tokens, summed over its steady steps. Seconds are the role's wall time.

    phases  seconds of each phase, sum equal to ``seconds``; the waits opened into what was waited for, as
            "target.forward"; "unaccounted" for what no phase covers
    """

    role: str
    steps: int
    seconds: float
    tokens: int  # useful: not padding
    padding: int
    phases: Mapping[str, float]
    throughput: Interval  # units a second, with the interval within this run
    left_out: Mapping[str, int] = field(default_factory=dict)  # steps by why: warm-up, compile, evaluation, ...


@dataclass(frozen=True)
class Shift:
    """A change of level inside one run: from ``t`` (and ``step``) on it is slower, or faster, perhaps for a while."""

    t: float
    step: int
    before: float  # units a second
    after: float
    until: float | None = None  # t at which the level before came back; None: to the end
    matched: tuple[str, ...] = ()  # what happened at that moment, each a few words: "GPU 3 began to throttle"


@dataclass(frozen=True)
class Role:
    """How a role spent its steady time: the busiest one is the bottleneck."""

    seconds: float
    waiting: float
    devices: int


@dataclass(frozen=True)
class Profile:
    """A run over time for a plot: at most some 400 blocks, each of the same number of steps."""

    t: tuple[float, ...] = ()  # end of each block
    rate: tuple[float, ...] = ()  # units a second in it
    phases: Mapping[str, tuple[float, ...]] = field(default_factory=dict)  # seconds a block
    steady: tuple[bool, ...] = ()
    marks: tuple[tuple[float, str, str], ...] = ()  # (t, kind, words): compile, eval, checkpoint, warning


@dataclass(frozen=True)
class Lane:
    """One series of telemetry, thinned to at most some 400 points."""

    name: str  # "gpu.0.clock_mhz", "cpu.use_pct"
    t: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class Failure:
    """How a run failed. ``signature`` is "" where no known one fits."""

    signature: str
    sentence: str  # for a person: what failed; without the run's name
    last: str  # the last thing that happened: "step 812, 3 s before it ended"
    lines: tuple[str, ...] = ()  # the lines of the logs that say so
    reference: str = ""  # the public report of the signature
    advice: str = ""  # the mending command, or what to look at
    facts: tuple[str, ...] = ()  # patterns of facts whose change can have brought it: "environment.package.torch"

    @property
    def verb(self) -> str:
        """What the run did: one that somebody stopped did not fail."""
        return "did not end" if self.signature in ("stopped-by-user", "interrupted") else "failed"


@dataclass(frozen=True)
class Measured:
    """One run, reduced to what a comparison needs. Parts that are not there are None or empty, and ``gaps`` says so."""

    run: Run
    facts: Mapping[str, Value]  # recorded
    observed: Mapping[str, Value] = field(default_factory=dict)  # what its series and logs show: "observed.padding"
    unit: str = "tokens"  # what the throughput counts: "tokens", or "steps" where none were counted
    steady: Steady | None = None
    first_step_s: float | None = None
    first_step: Mapping[str, float] = field(default_factory=dict)  # seconds by part, sum equal to first_step_s
    roles: Mapping[str, Role] = field(default_factory=dict)
    profile: Profile = Profile()
    lanes: tuple[Lane, ...] = ()
    shifts: tuple[Shift, ...] = ()
    failure: Failure | None = None
    gaps: tuple[str, ...] = ()


# --- two sides -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Change:
    """A fact that differs between the sides. A side of several runs that differ among themselves ``varies``."""

    fact: str
    before: Value
    after: Value
    missing: Literal["", "before", "after"] = ""  # the side that did not record it: unknown, not equal
    varies: bool = False

    @property
    def kind(self) -> Kind | Literal["observed"]:
        return self.fact.split(".", 1)[0]  # type: ignore[return-value]


@dataclass(frozen=True)
class Contribution:
    """What one phase (or padding) gave to ln(after / before) of the throughput; they sum to it."""

    phase: str
    log_ratio: float
    share: float | None  # of the sum; None where the ratio's interval contains 1
    before: float  # seconds per processed unit; for "padding", processed units per useful one
    after: float


@dataclass(frozen=True)
class Interruption:
    """The shares of two sides' time after the first step that went into it, in the median over the runs of each."""

    name: str  # BETWEEN, or a phase
    before: float
    after: float

    @property
    def more(self) -> bool:
        return self.after > self.before

    @property
    def weight(self) -> float:
        """|ln(after / before)| that it alone makes of the time for the same steps."""
        return abs(math.log((1 - min(self.after, 1 - RESOLVED)) / (1 - min(self.before, 1 - RESOLVED))))

    @property
    def growth(self) -> float:
        """|ln(after / before)| of its seconds for each second of everything else."""
        before, after = (max(share, RESOLVED) / (1 - min(share, 1 - RESOLVED)) for share in (self.before, self.after))
        return abs(math.log(after / before))


@dataclass(frozen=True)
class Judgement:
    """A figure of two sides compared: throughput (more is faster) or seconds to the first step (less is faster)."""

    figure: Literal["throughput", "first step"]
    verdict: Verdict
    basis: Basis
    ratio: Interval | None = None  # after over before, as the figure is written; None where a side has no value
    before: float | None = None  # geometric mean over the side's runs
    after: float | None = None
    runs: tuple[int, int] = (0, 0)
    margin: float = 0.0  # the relative difference below which it is called the same
    spread: float | None = None  # relative standard deviation from run to run that was used
    p: float | None = None  # of the permutation test, where tested
    more_runs: int | None = None  # a side, that would likely settle an UNKNOWN
    words: str = ""  # one sentence on what the verdict rests on


@dataclass(frozen=True)
class Suspect:
    """A change that can have done it, with why."""

    change: Change
    rule: str
    reason: str
    rank: int  # from 1
    score: float
    evidence: tuple[str, ...] = ()
    confirm: str = ""  # what would confirm it: a command where there is one
    phases: tuple[str, ...] = ()  # the grown phases that it can explain
    also: tuple[Change, ...] = ()  # changes that say the same thing


@dataclass(frozen=True)
class Side:
    """One side: runs measured, each."""

    name: str
    runs: tuple[Measured, ...]

    @property
    def failed(self) -> tuple[Measured, ...]:
        return tuple(m for m in self.runs if m.failure is not None)


@dataclass(frozen=True)
class History:
    """The figures of other runs of the same workload, on neither side: what a single run is judged against.

    In groups of runs that were executed alike, in one environment: what differs within a group is what nobody chose.
    """

    rates: tuple[tuple[float, ...], ...] = ()  # units a second, steady
    first_steps: tuple[tuple[float, ...], ...] = ()  # seconds to the first step


@dataclass(frozen=True)
class Explanation:
    """The answer. ``sentence`` comes first wherever it is shown."""

    sentence: str
    comparability: Comparability
    reasons: tuple[str, ...]
    verdict: Verdict
    throughput: Judgement
    first_step: Judgement
    contributions: tuple[Contribution, ...] = ()
    first_step_contributions: tuple[Contribution, ...] = ()
    interruptions: tuple[Interruption, ...] = ()  # that differ, beside what the split of the throughput tells
    suspects: tuple[Suspect, ...] = ()
    also_changed: tuple[Change, ...] = ()
    fair_pair: str = ""  # what a fair pair would be, where the work is not the same
    bottleneck: str = ""  # one sentence on which role held it up, on either side
    normalised: tuple[tuple[str, float, float], ...] = ()  # (figure, before, after) that different work still allows
    notes: tuple[str, ...] = ()
    before: Side = Side("", ())
    after: Side = Side("", ())
    unit: str = "tokens"

    def to_json(self) -> dict[str, Any]:
        """The answer without the series: what ``--json`` prints."""
        data = {k: v for k, v in asdict(self).items() if k not in ("before", "after")}
        data["ratio"] = data["throughput"]["ratio"]
        data["suspects"] = [{**s, **s["change"]} for s in data["suspects"]]
        for name, side in (("before", self.before), ("after", self.after)):
            data[name] = {"name": side.name, "runs": [m.run.id for m in side.runs]}
        return data
