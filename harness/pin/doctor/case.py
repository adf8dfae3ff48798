"""What is asked of the doctor, and what every check is given."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.findings import Finding
from harness.pin.doctor import by_pip
from harness.pin.doctor.installed.installation import Claim, Distribution, Installation
from harness.pin.doctor.spelling import quoted
from harness.pin.locks import normalise
from harness.places import program
from harness.records import Environment, Lock, Pin


def command_on(python: Path, lock: str | Path | None = None) -> str:
    """What a person types to diagnose a Python that is not an environment of ours where we build it."""
    command = f"{program()} doctor --python {shlex.quote(str(python))}"
    return command if lock is None else f"{command} --lock {shlex.quote(str(lock))}"


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
        """The command that puts the files of ``names`` back: from the lock where there is one, else by pip.

        What is seen from outside the environment and is not in the lock is put back where it is; of an empty dist-info
        that nobody pins, nothing can be put back, and the folder goes.
        """
        husks, names = self._without_husks(names)
        theirs = [name for name in names if self.lock is None or (name not in self.pins and self._is_elsewhere(name))]
        known = self.installation.by_name
        wanted = {n: f"{n}=={known[n].version}" if n in known and known[n].version else n for n in theirs}
        locked = [f"{self.command} --fix"] if len(theirs) < len(names) else []
        return " && ".join([*husks, *locked, *self._installs(wanted)])

    def install(self, *requirements: str) -> str:
        """The pip command that installs ``requirements``, "name==version", over what is there, without their needs."""
        return " && ".join(self._installs({normalise(re.split(r"[^\w.-]", text)[0]): text for text in requirements}))

    def uninstall(self, *names: str) -> str:
        """The command that takes ``names`` away, and puts back what an uninstall of them takes from others."""
        if self.lock is not None and self.environment and (locked := [name for name in names if name in self.pins]):
            env = self.environment.name
            return f"nox -s lock -- {env}  # once {', '.join(locked)} is out of envs/{env}.in"
        husks, names = self._without_husks(names)
        theirs = [name for name in names if self.lock is None or self._is_elsewhere(name)]
        removals = "".join(f" --remove {name}" for name in names if name not in theirs)
        commands = [*husks, *([f"{self.command} --fix{removals}"] if removals else [])]
        for place, some in self._by_place(theirs).items():
            if place.has_uninstall:
                commands.append(by_pip.uninstall(self.installation, place, some, self.digests))
        losers = self._losers(tuple(theirs))
        return " && ".join([*commands, *([self.reinstall(*losers)] if losers else [])])

    def _installs(self, wanted: Mapping[str, str]) -> list[str]:
        """One command for each Python that some of ``wanted``, requirements by name, are of."""
        return [
            by_pip.install(self.installation, place, {name: wanted[name] for name in some}, self.digests)
            for place, group in self._by_place(wanted).items()
            for some in by_pip.apart(self.installation, group)
        ]

    def _by_place(self, names: Iterable[str]) -> dict[by_pip.Place, list[str]]:
        """What is not installed anywhere comes into the environment itself."""
        layout, known = self.installation.layout, self.installation.by_name
        found: dict[by_pip.Place, list[str]] = {}
        for name in names:
            there = known.get(name)
            place = by_pip.place_of(layout, there.site, self.variables) if there else by_pip.own_place(layout)
            found.setdefault(place, []).append(name)
        return found

    def _is_elsewhere(self, name: str) -> bool:
        there = self.installation.by_name.get(name)
        return there is not None and not self.is_here(there)

    def is_here(self, distribution: Distribution) -> bool:
        """Whether it is in the environment itself; others are seen from it, and not its own to change."""
        return distribution.site.startswith(self.installation.layout.prefix.rstrip("/") + "/")

    def _without_husks(self, names: tuple[str, ...]) -> tuple[list[str], tuple[str, ...]]:
        """The command that removes the folders of those of ``names`` of which nothing else is there, and the others."""
        folders = [d.info for d in self.installation.distributions if d.name in names and self.is_husk(d)]
        sound = {d.name for d in self.installation.distributions if not self.is_husk(d)}
        gone = {n for n in names if n not in self.pins and n in self.installation.by_name and n not in sound}
        left = tuple(name for name in names if name not in gone)
        return [f"rm -r -- {quoted(folders)}"] if gone else [], left

    def is_husk(self, distribution: Distribution) -> bool:
        return is_husk(self.installation, distribution)

    def _losers(self, names: tuple[str, ...]) -> list[str]:
        """Who shares files with ``names`` that Python or the loader would miss."""
        shared = (claims for claims in self.installation.owners.values() if len(claims) > 1 and claims[0][1].size)
        owners = ({distribution.name for distribution, _ in claims} for claims in shared)
        return sorted(set().union(*(found for found in owners if found & set(names))) - set(names))


def is_husk(installation: Installation, distribution: Distribution) -> bool:
    """Whether it is only a name: a dist-info with neither METADATA nor RECORD, and no module beside it.

    Of whom the name is, nobody knows: what an index has under it may be a stranger's.
    """
    if not {"METADATA is missing", "RECORD is missing"}.issubset(distribution.problems):
        return False
    module = f"{distribution.site}/{distribution.name.replace('-', '_')}"
    beside = (path for path in installation.files if path.startswith((f"{module}/", f"{module}.py")))
    return all(path in installation.owners for path in beside)


Check = Callable[[Case], Iterator[Finding]]
"""Every check is this: pure, of the case alone, and lazy."""


def names(distributions: Iterable[Distribution]) -> tuple[str, ...]:
    """The names of ``distributions``, sorted, for evidence."""
    return tuple(sorted({distribution.name for distribution in distributions}))
