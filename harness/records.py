"""Every type that crosses a boundary between rooms. Frozen, JSON, standard library only.

Data flows one way: ``pin`` makes fingerprints, ``run`` makes events and results, ``explain`` reads them.
A reader accepts fields that it does not know, so a later version's record can be read by an earlier one of
the same ``SCHEMA``; a greater ``SCHEMA`` is refused with a clear line.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

SCHEMA = 1

Value = str | int | float | bool | None
"""What a fact or a setting may be."""

Kind = Literal["workload", "execution", "environment", "code", "state", "context"]
"""What a fact says: what is computed, how, with what, by which code, in what state; or only names and times."""

KINDS: tuple[Kind, ...] = ("workload", "execution", "environment", "code", "state", "context")

IMPORTED = "context.imported.from"
"""The fact of a run that happened elsewhere: where its record came from. It cannot run again."""

FIRST_STEP = "context.imported.first_step"
"""The fact that is "unknown" where nothing says when a run began: then nobody knows the time to its first step."""

Status = Literal["running", "finished", "failed", "killed"]

R = TypeVar("R")


def canonical(data: object) -> str:
    """One spelling of a JSON value, for digests."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(data: object) -> str:
    """SHA-256 of the canonical JSON of ``data``, as 64 hexadecimal digits."""
    return hashlib.sha256(canonical(data).encode()).hexdigest()


def known_fields(cls: type[R], data: Mapping[str, Any]) -> R:
    """``cls`` from the keys of ``data`` that it knows; a later writer's extra keys are passed over."""
    names = _field_names(cls)  # type: ignore[arg-type]
    return cls(**{key: value for key, value in data.items() if key in names})


@cache
def _field_names(cls: type) -> frozenset[str]:
    """Kept: a run of a million steps asks a million times."""
    return frozenset(f.name for f in fields(cls))


# --- pin -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Environment:
    """One table of ``envs/envs.toml``: an environment that can be locked and built."""

    name: str
    purpose: str
    python: tuple[str, ...]  # "3.11", ... : the versions its locks hold for
    cuda: str | None = None  # "13.0", or None for an environment without CUDA
    dependencies: bool = True  # False: installed as named, without what it asks for (packages of data)
    extra_index: str | None = None  # an index to ask where no configured place has the pinned file
    wheels: tuple[str, ...] = ()  # indexes in folders, of wheels that no other has; envs.toml names them from envs/
    captured: str | None = None  # the day on which a Python was frozen into it: such a lock is not compiled


@dataclass(frozen=True)
class Pin:
    """One line of a lock: a distribution at a version, and the hashes of the files that may stand for it."""

    name: str  # normalised (PEP 503)
    version: str
    hashes: tuple[str, ...]  # "sha256:..."
    marker: str | None = None


@dataclass(frozen=True)
class Lock:
    """A compiled lock file for one environment and the Python versions it holds for."""

    env: str
    python: tuple[str, ...]
    digest: str  # SHA-256 of the pins, so that a comment changes nothing
    pins: tuple[Pin, ...]
    path: str


@dataclass(frozen=True)
class BuiltEnvironment:
    """An interpreter and what is installed beside it: what a run starts in, and what a fingerprint reads."""

    name: str  # "" where the interpreter is not one of ours
    python: Path
    site_packages: Path
    lock: Lock | None = None  # None where no lock says what should be there


@dataclass(frozen=True)
class Listed:
    """One line of ``harness envs``: an environment, what its lock pins, and whether it is built here."""

    name: str
    purpose: str
    python: tuple[str, ...]
    torch: str | None
    cuda: str | None
    lock_digest: str
    built: bool
    path: str  # where it is, or would be


@dataclass(frozen=True)
class Fingerprint:
    """Where a run ran: flat facts, each named ``kind.dotted.name``. A fact that is absent is unknown, not equal."""

    facts: Mapping[str, Value]

    @property
    def digest(self) -> str:
        """Identity of the place: the environment facts alone, so that load, clocks and times do not move it."""
        return digest({k: v for k, v in self.facts.items() if k.startswith("environment.")})

    def to_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, "digest": self.digest, "facts": dict(sorted(self.facts.items()))}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Fingerprint:
        return cls(facts=dict(data["facts"]))


@dataclass(frozen=True)
class CacheState:
    """What a compile-cache root held at one moment: bytes and entries, in all and by kind."""

    bytes: int
    entries: int
    by_kind: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # {"fxgraph": {"bytes": 1, "entries": 1}}


# --- run: what was asked ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunSpec:
    """What was asked: complete, resolved, and enough to ask for it again.

    ``argv`` starts with ``"python"`` where the environment's own interpreter is meant. ``config`` is flat and
    dotted; ``kinds`` says of each key whether it is a workload or an execution fact.
    """

    recipe: str  # "" for a command that is not ours
    env: str  # "" for whatever the command finds
    argv: tuple[str, ...]
    config: Mapping[str, Value] = field(default_factory=dict)
    kinds: Mapping[str, Kind] = field(default_factory=dict)
    summary: str = ""  # one line for a person
    devices: tuple[str, ...] = ()  # "target:cpu", "drafter:cuda:5"
    needs_gpus: int = 0
    needs_gpu_name: str = ""  # a part of the name that each of them must have
    data: bool = False  # wants the data environment's folder
    plan_argv: tuple[str, ...] = ()  # prints the memory plan as JSON; reads the same spec
    plan_only: str = ""  # why this version plans it and does not start it; "" where it does
    tokens_regex: str | None = None  # for a command: a group named tokens (and perhaps step, loss, seconds)

    @property
    def id(self) -> str:
        """Identity of what was asked, as 12 hexadecimal digits."""
        return digest(asdict(self))[:12]

    def to_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, "id": self.id, **asdict(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RunSpec:
        lists = {k: tuple(data.get(k, ())) for k in ("argv", "devices", "plan_argv")}
        return known_fields(cls, {**data, **lists})


# --- run: what happened ----------------------------------------------------------------------------------
# ``t`` is seconds since the run began, on CLOCK_MONOTONIC, the same clock for the child and the harness.

PHASES = ("data", "wait", "target", "forward", "backward", "optimizer", "communication", "compile", "other")
"""What the wall time of a step is spent on. "other" is what no phase covers."""


@dataclass(frozen=True)
class Started:
    """The child is alive and knows what it will compute. ``facts`` are named as in a fingerprint."""

    kind: ClassVar[str] = "started"
    t: float
    pid: int
    total_steps: int | None = None
    facts: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class Compile:
    """A compilation, or a load from the compile cache, with the counters since the event before it."""

    kind: ClassVar[str] = "compile"
    t: float
    name: str
    seconds: float
    step: int = 0
    hits: int = 0
    misses: int = 0
    bypasses: int = 0
    reason: str = ""


@dataclass(frozen=True)
class Step:
    """One optimizer step of one role on one device.

    seconds  wall time of the step; the phases, "other" among them, sum to it
    tokens   non-padding tokens of training sequences that this step consumed
    padding  padding tokens that were computed beside them
    """

    kind: ClassVar[str] = "step"
    t: float  # at the end of the step
    step: int  # from 1
    role: str
    device: str
    seconds: float
    tokens: int
    padding: int = 0
    phases: Mapping[str, float] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Eval:
    """An evaluation named for what was evaluated: "before", "after", a baseline, or "step"."""

    kind: ClassVar[str] = "eval"
    t: float
    name: str
    metrics: Mapping[str, float] = field(default_factory=dict)
    lossless: bool | None = None  # whether speculative decoding gave the target's own greedy output
    step: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Checkpoint:
    """A file that can be kept was written."""

    kind: ClassVar[str] = "checkpoint"
    t: float
    path: str
    step: int = 0


@dataclass(frozen=True)
class Note:
    """Something a person should know: ``level`` is "info" or "warning"."""

    kind: ClassVar[str] = "note"
    t: float
    text: str
    level: str = "info"


@dataclass(frozen=True)
class Finished:
    """The child came to its own end. ``ok`` False: it judged its own run a failure, for ``reason``."""

    kind: ClassVar[str] = "finished"
    t: float
    ok: bool = True
    reason: str = ""


Event = Started | Compile | Step | Eval | Checkpoint | Note | Finished

EVENTS: Mapping[str, type[Event]] = {
    cls.kind: cls for cls in (Started, Compile, Step, Eval, Checkpoint, Note, Finished)
}


def event_to_json(event: Event) -> dict[str, Any]:
    """The one JSON object that stands for ``event`` on a line of ``events.jsonl``."""
    return {"kind": event.kind, **vars(event)}


def event_from_json(data: Mapping[str, Any]) -> Event | None:
    """The event, or None for a kind that only a later version knows. A metric of null is one that was not finite."""
    cls = EVENTS.get(data["kind"])
    if cls is None:
        return None
    if "metrics" in data:
        data = {**data, "metrics": {k: float("nan") if v is None else v for k, v in data["metrics"].items()}}
    return known_fields(cls, data)


# --- run: what came of it --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Interval:
    """A figure and the 95 % interval around it."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class DeviceShare:
    """How one device of a role spent the steady time of the run, in shares of it that sum to 1."""

    role: str
    device: str
    steps: int  # all that it took, steady or not
    busy: float
    waiting: float  # for another worker
    communication: float


@dataclass(frozen=True)
class Summary:
    """The figures of a run, computed from its events alone."""

    steps: int = 0
    tokens: int = 0
    padding: int = 0
    throughput_tok_s: Interval | None = None  # useful tokens a second, steady state
    whole_run_tok_s: float | None = None  # useful tokens over all of the child's time
    first_step_s: float | None = None  # from the start of the child to the end of its first step
    warmup_steps: int = 0
    compile_steps: int = 0
    compile_s: float = 0.0
    cache_hits: int = 0
    cache_misses: int = 0
    cache_bypasses: int = 0
    cache_start: str = "unknown"  # cold | warm | partial | unknown
    phases: Mapping[str, float] = field(default_factory=dict)  # seconds, steady state, of the counting role
    waits: Mapping[str, float] = field(default_factory=dict)  # by role, the share of the steady time that it waited
    bound: str = ""  # the role that the others wait for; "" where none clearly is, or there is one role alone
    devices: tuple[DeviceShare, ...] = ()
    evals: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # by name, the last of each
    lossless: bool | None = None
    loss_first: float | None = None
    loss_last: float | None = None
    warnings: tuple[str, ...] = ()  # what the run warned of, each once, the first ones

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Summary:
        interval = data.get("throughput_tok_s")
        parts = {
            "throughput_tok_s": Interval(**interval) if interval else None,
            "warnings": tuple(data.get("warnings", ())),
            "devices": tuple(known_fields(DeviceShare, device) for device in data.get("devices", ())),
        }
        return known_fields(cls, {**data, **parts})


@dataclass(frozen=True)
class Result:
    """``result.json``: how a run ended."""

    status: Status
    exit_code: int | None  # of the child; None while it runs or where nobody saw it end
    signal: int | None = None
    reason: str = ""  # one line for a person
    started_at: float = 0.0  # unix seconds
    ended_at: float | None = None
    summary: Summary = Summary()

    def to_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **asdict(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Result:
        return known_fields(cls, {**data, "summary": Summary.from_json(data.get("summary", {}))})


@dataclass(frozen=True)
class Run:
    """A run as its folder tells it; what ``explain`` reads. Absent parts are None or empty, never invented."""

    id: str
    folder: str
    spec: RunSpec
    result: Result
    fingerprint: Fingerprint | None
    cache_before: CacheState | None
    cache_after: CacheState | None
    mlflow_run_id: str | None = None
    tags: tuple[str, ...] = ()  # names that a person gave it
