"""What the doctor says of an environment: the records that cross from ``pin`` to the run and to the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, NamedTuple, get_args

from harness.records import Value, canonical, digest, known_fields

Severity = Literal["broken", "dangerous", "drift", "note"]
"""How bad a finding is.

broken     it fails, or computes with files that nobody pinned: a run is not started
dangerous  it works until it does not: a run is started, and its record says so
drift      not what the lock says, and harmless as far as is known
note       worth knowing; nothing to mend
"""

SEVERITIES: tuple[Severity, ...] = get_args(Severity)  # the worst first

Evidence = str | int | float | bool | None | tuple[str, ...] | Mapping[str, str]


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, or worth knowing, about an environment."""

    kind: str  # "file.missing": the check, a dot, what it found
    severity: Severity
    subject: str  # the distribution's normalised name, or "python" for the environment itself
    summary: str  # one sentence for a person; names the subject
    evidence: Mapping[str, Evidence] = field(default_factory=dict)  # paths, hashes, versions
    fix: str = ""  # the exact command that mends it; "" for a note

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Finding:
        evidence = {k: tuple(v) if isinstance(v, list) else v for k, v in data.get("evidence", {}).items()}
        return known_fields(cls, {**data, "evidence": evidence})


@dataclass(frozen=True)
class Loaded:
    """A library that a process had mapped, and whose it is."""

    path: str
    name: str  # its soname; the file's name where it has none
    build_id: str  # hexadecimal; "" where it has none
    sha256: str | None  # hexadecimal; None where the file that was mapped is not there any more
    owner: str  # the distribution that claims the file; "" for the system's, and for what nobody claims
    version: str  # the owner's
    locked: bool | None  # whether the lock has the owner in this version; None without a lock or an owner


@dataclass(frozen=True)
class Diagnosis:
    """Everything that the doctor found in one environment, the worst first."""

    python: str
    prefix: str
    env: str  # its name in envs.toml; "" where it is not one of ours
    lock: str | None  # the lock's digest; None where no lock was given
    findings: tuple[Finding, ...] = ()
    files: int = 0  # claimed files whose bytes are known to be as they were found
    bytes: int = 0
    hashed_bytes: int = 0  # read and hashed this time; the rest had not changed since the last time
    seconds: float = 0.0
    unchecked: tuple[str, ...] = ()  # "what: why" for each check that could not be made
    loaded: tuple[Loaded, ...] = ()  # what a process has once it has imported torch and its kind, where that was asked

    @property
    def ok(self) -> bool:
        """Nothing broken and nothing dangerous."""
        return not any(finding.severity in ("broken", "dangerous") for finding in self.findings)

    @property
    def worst(self) -> Severity | None:
        """The worst severity among the findings; None without findings."""
        return min((f.severity for f in self.findings), key=SEVERITIES.index, default=None)

    def sorted(self) -> Diagnosis:
        """The same, with the worst findings first and those of one subject together."""
        key = lambda f: (SEVERITIES.index(f.severity), f.subject, f.kind, f.summary)  # noqa: E731
        return replace(self, findings=tuple(sorted(self.findings, key=key)))

    def facts(self) -> dict[str, Value]:
        """For a fingerprint: the verdict, and each finding that is more than a note, named by kind and subject."""
        worst = self.worst or "nothing found"
        facts: dict[str, Value] = {"environment.doctor": worst, "state.doctor.files": self.files}
        for finding in self.findings:
            if finding.severity != "note":
                name = f"doctor.{finding.kind}.{finding.subject}"
                seen = canonical(finding.evidence).replace(self.prefix, "")  # the same wherever the environment stands
                facts[f"environment.{name}"] = f"{finding.severity} {digest(seen)[:12]}"
                facts[f"context.{name}"] = finding.summary
        if self.unchecked:
            facts["state.doctor.unchecked"] = "; ".join(self.unchecked)
        return facts

    def to_json(self) -> dict[str, Any]:
        return {"ok": self.ok, "worst": self.worst, **asdict(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Diagnosis:
        parts = {
            "findings": tuple(Finding.from_json(f) for f in data.get("findings", ())),
            "unchecked": tuple(data.get("unchecked", ())),
            "loaded": tuple(known_fields(Loaded, library) for library in data.get("loaded", ())),
        }
        return known_fields(cls, {**data, **parts})


class Step(NamedTuple):
    """One thing to do to one distribution; the environment's own, where ``name`` is empty."""

    action: Literal["roll back", "remove", "reinstall"]
    name: str
    version: str
    why: str


class Untouched(NamedTuple):
    """What the plan leaves as it is, why, and what would change it."""

    subject: str
    why: str
    command: str


@dataclass(frozen=True)
class Plan:
    """What mending does, in this order, and what it does not."""

    steps: tuple[Step, ...]
    untouched: tuple[Untouched, ...]

    @property
    def nothing(self) -> bool:
        """Whether there is nothing that it may do."""
        return not self.steps

    def names(self, action: str) -> frozenset[str]:
        return frozenset(step.name for step in self.steps if step.action == action)
