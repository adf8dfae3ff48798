"""What is asked of the doctor, and what every check is given."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.findings import Finding
from harness.pin.doctor.installed.installation import Claim, Distribution, Installation
from harness.records import Environment, Lock, Pin


@dataclass(frozen=True)
class Question:
    """What to diagnose, and against what.

    environment  the table of envs.toml that the lock is of, where it is one of ours
    name         of the environment, where it stands where the harness builds them
    command    what asks it, for the mending commands: "harness doctor cu130"
    variables  and cwd: of the process that would run in the environment
    """

    python: Path
    lock: Lock | None = None
    environment: Environment | None = None
    name: str = ""
    command: str = "harness doctor"
    variables: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    cwd: str = field(default_factory=os.getcwd)


@dataclass(frozen=True)
class Case:
    """An environment, what it should be, and the bytes that were found.

    pins     the lock's pins whose markers hold for this Python, by normalised name; empty without a lock
    digests  (path, algorithm) -> the digest of the bytes as they are, spelled as in a RECORD. A claimed file that is
             not a key was not hashed (no hash in RECORD, missing, unreadable, or this is the fast form)
    command  what diagnoses this environment: "harness doctor cu130"; ``--fix`` is added to mend from a lock
    variables, cwd   of the process that would run in it: PYTHONPATH and LD_LIBRARY_PATH are read from here
    """

    installation: Installation
    lock: Lock | None = None
    pins: Mapping[str, Pin] = field(default_factory=dict)
    environment: Environment | None = None
    digests: Mapping[tuple[str, str], str] = field(default_factory=dict)
    command: str = "harness doctor"
    variables: Mapping[str, str] = field(default_factory=dict)
    cwd: str = ""
    driver: str | None = None  # "580.65.06"; None where there is no NVIDIA driver
    driver_cuda: str | None = None  # the newest CUDA that the driver runs: "13.0"

    def digest(self, claim: Claim) -> str | None:
        """The digest of the claimed file as it is now, in the claim's spelling; None where it is not known."""
        return self.digests.get((claim.path, claim.algorithm))

    def reinstall(self, *names: str) -> str:
        """The command that puts the files of ``names`` back: from the lock where there is one, else by pip."""
        if self.lock is not None:
            return f"{self.command} --fix"
        known = self.installation.by_name
        wanted = " ".join(f"{n}=={known[n].version}" if n in known and known[n].version else n for n in names)
        return f"{self._python} -m pip install --force-reinstall --no-deps {wanted}"

    def uninstall(self, *names: str) -> str:
        """The command that takes ``names`` away, and puts back what an uninstall of them takes from others."""
        if self.lock is not None and self.environment and (locked := [name for name in names if name in self.pins]):
            env = self.environment.name
            return f"nox -s lock -- {env}  # once {', '.join(locked)} is out of envs/{env}.in"
        if self.lock is not None:
            return f"{self.command} --fix {' '.join(f'--remove {name}' for name in names)}"
        command = f"{self._python} -m pip uninstall -y {' '.join(names)}"
        losers = self._losers(names)
        return f"{command} && {self.reinstall(*losers)}" if losers else command

    def _losers(self, names: tuple[str, ...]) -> list[str]:
        """Who shares files with ``names`` that Python or the loader would miss."""
        shared = (claims for claims in self.installation.owners.values() if len(claims) > 1 and claims[0][1].size)
        owners = ({distribution.name for distribution, _ in claims} for claims in shared)
        return sorted(set().union(*(found for found in owners if found & set(names))) - set(names))

    @property
    def _python(self) -> str:
        return shlex.quote(str(self.installation.layout.python))


Check = Callable[[Case], Iterator[Finding]]
"""Every check is this: pure, of the case alone, and lazy."""


def names(distributions: Iterable[Distribution]) -> tuple[str, ...]:
    """The names of ``distributions``, sorted, for evidence."""
    return tuple(sorted({distribution.name for distribution in distributions}))
