"""What a run is to show on disk, before any of it is drawn: a plan that changes alter and ``series`` draws from."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields

from harness.records import CacheState, Kind, RunSpec, Value


@dataclass
class RolePlan:
    """A role: its devices, and the seconds of each phase of one step on one device, waiting left out."""

    devices: tuple[str, ...]
    phases: dict[str, float]


@dataclass(frozen=True)
class Stretch:
    """Phases of a role that take ``factors`` times as long, on some devices (None: all), from a share of the run on."""

    role: str
    factors: Mapping[str, float]
    devices: tuple[str, ...] | None = None
    since: float = 0.0


@dataclass(frozen=True)
class Pulse:
    """Something that is done every so many steps: inside the step, as "other", or between two steps."""

    what: str  # "eval", "checkpoint", "log"; anything else is told in a warning
    every: int
    seconds: float
    inside: bool = True
    text: str = ""  # of the warning


@dataclass(frozen=True)
class Compiling:
    """A compilation inside a step of the role that counts."""

    step: int
    name: str
    seconds: float
    hits: int = 0
    misses: int = 0
    reason: str = ""


@dataclass(frozen=True)
class Gauge:
    """A level of the telemetry, and the one that it takes from a share of the run on."""

    value: float
    late: float
    since: float = 0.0


@dataclass(frozen=True)
class Noise:
    """How lucky runs and steps are. Standard deviations of logarithms."""

    between: float  # from run to run
    step: float  # from step to step
    memory: float  # correlation of successive steps
    spikes: float  # share of steps in which one phase takes far longer
    drift: float = 0.0  # over the whole run


@dataclass
class Plan:
    """One run. The first role counts the tokens; a second one, where there is one, feeds it through a queue."""

    base: str
    spec: RunSpec
    config: dict[str, Value]
    kinds: dict[str, Kind]
    facts: dict[str, Value]  # environment, code, state and context facts
    told: dict[str, Value]  # what the child says when it starts
    roles: dict[str, RolePlan]
    steps: int
    tokens: float  # useful, a step and device
    padding: float  # a step and device
    noise: Noise
    start_s: float  # until the child says that it starts
    gauges: dict[str, Gauge]
    cache_before: CacheState
    cache_after: CacheState
    stretches: list[Stretch] = field(default_factory=list)
    pulses: list[Pulse] = field(default_factory=list)
    compiles: list[Compiling] = field(default_factory=list)
    throttled: dict[str, Gauge] = field(default_factory=dict)  # reason -> share of the samples
    throttled_cards: tuple[int, ...] | None = None  # None: all
    notes: list[str] = field(default_factory=list)  # warnings
    evals_before: tuple[tuple[str, float], ...] = ()  # name, seconds
    metrics: dict[str, Gauge] = field(default_factory=dict)  # what a step counts more of, each step, on average
    stderr: list[str] = field(default_factory=list)
    patch: str = ""

    @property
    def synthetic(self) -> bool:
        """Whether no machine like this one has been recorded here."""
        return self.base == "box"

    @property
    def counting(self) -> RolePlan:
        return next(iter(self.roles.values()))

    @property
    def counting_name(self) -> str:
        return next(iter(self.roles))

    def copy(self) -> Plan:
        """A plan of its own: what is altered in it is not altered in this one."""
        mine = {f.name: copy.copy(getattr(self, f.name)) for f in fields(self)}
        mine["roles"] = {name: RolePlan(role.devices, dict(role.phases)) for name, role in self.roles.items()}
        return Plan(**mine)

    def set(self, key: str, value: Value, kind: Kind = "workload") -> None:
        """A setting; one that the recipe does not have yet is one of a later version's."""
        self.config[key] = value
        self.kinds.setdefault(key, kind)

    def package(self, name: str, version: str) -> None:
        self.facts[f"environment.package.{name}"] = version

    def turn(self, gauge: str, value: float, since: float = 0.0) -> None:
        """Let a level of the telemetry be ``value``, from ``since`` on."""
        before = self.gauges[gauge].value if since else value
        self.gauges[gauge] = Gauge(before, value, since)


# --- what it costs, on average ---------------------------------------------------------------------------


def factors(plan: Plan, role: str, device: str, late: bool) -> dict[str, float]:
    """What each phase of ``role`` on ``device`` is multiplied with, before or after what sets in late has set in."""
    found = dict.fromkeys(plan.roles[role].phases, 1.0)
    for stretch in plan.stretches:
        if (
            stretch.role == role
            and (stretch.devices is None or device in stretch.devices)
            and (late or not stretch.since)
        ):
            for phase, factor in stretch.factors.items():
                found[phase] *= factor
    return found


def busy(plan: Plan, role: str, device: str, late: bool) -> float:
    """Seconds that a step keeps ``device`` at work."""
    stretched = factors(plan, role, device, late)
    return sum(seconds * stretched[phase] for phase, seconds in plan.roles[role].phases.items())


def role_seconds(plan: Plan, late: bool) -> dict[str, float]:
    """Mean wall time of a step if it were for each role alone: its slowest device's, or that in which it is fed."""
    names = list(plan.roles)
    consumers = plan.counting.devices
    times = {names[0]: max(busy(plan, names[0], device, late) for device in consumers)}
    for role in names[1:]:
        rate = sum(1 / busy(plan, role, device, late) for device in plan.roles[role].devices)
        times[role] = len(consumers) / rate
    return times


def step_seconds(plan: Plan, late: bool) -> float:
    """Mean wall time of a step: the slowest role's."""
    return max(role_seconds(plan, late).values())


def bottleneck(plan: Plan) -> str:
    """The role that holds the others up, at the end of the run."""
    times = role_seconds(plan, late=True)
    return max(times, key=times.__getitem__)


def cost(plan: Plan) -> float:
    """Mean seconds of a useful token over the whole run, the first step's compiling left out."""
    since = max((s.since for s in plan.stretches), default=0.0)
    step = since * step_seconds(plan, late=False) + (1 - since) * step_seconds(plan, late=True)
    beside = sum(p.seconds / p.every for p in plan.pulses)
    beside += sum(c.seconds for c in plan.compiles if c.step > 1) / plan.steps
    return (step + beside) / (plan.tokens * len(plan.counting.devices))


def solve(plan: Plan, size: float, alter: Callable[[Plan, float], None], most: float = 1e4) -> None:
    """Alter ``plan`` just so much that a useful token costs ``size`` times as much.

    ``alter(plan, x)`` alters a little for a small x above 0, and more for a larger one. Raises ValueError where even
    ``most`` is not enough.
    """
    goal = cost(plan) * size

    def reaches(x: float) -> bool:
        tried = plan.copy()
        alter(tried, x)
        return cost(tried) >= goal

    low, high = 0.0, 1e-3
    while not reaches(high):
        low, high = high, high * 4
        if high > most:
            raise ValueError(f"{plan.base}: no alteration makes it {size:.2f} times as slow")
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (low, middle) if reaches(middle) else (middle, high)
    alter(plan, high)


def stretch(
    plan: Plan,
    size: float,
    phases: Sequence[str],
    devices: tuple[str, ...] | None = None,
    since: float = 0.0,
) -> float:
    """Let phases, as "drafter.forward", take longer alike until a token costs ``size`` times as much; the factor."""
    by_role: dict[str, list[str]] = {}
    for name in phases:
        role, _, phase = name.partition(".")
        if role in plan.roles and phase in plan.roles[role].phases:
            by_role.setdefault(role, []).append(phase)
    if not by_role:
        raise ValueError(f"{plan.base} has none of the phases {', '.join(phases)}")
    found = [1.0]

    def alter(tried: Plan, x: float) -> None:
        found.append(1 + x)
        tried.stretches += [Stretch(r, dict.fromkeys(names, 1 + x), devices, since) for r, names in by_role.items()]

    solve(plan, size, alter)
    return found[-1]
