"""An environment that real uv installed from a lock, and the folder that stands for its index; to break and to mend."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.findings import Finding, Plan
from harness.pin.doctor.case import Question
from harness.pin.doctor.examine import Examined, examine
from harness.pin.doctor.mending import mend
from harness.pin.locks import read_lock
from harness.places import Places, places
from harness.records import Lock
from tests.pin.doctor.trees import File, snapshot
from tests.pin.doctor.wheels import site_packages


@dataclass(frozen=True)
class Locked:
    """One environment, its lock, and everything that the doctor needs to know of it."""

    prefix: Path
    index: Path  # the folder of wheels that a mender finds
    lock: Lock
    uv: Path
    where: Places

    @property
    def python(self) -> Path:
        return self.prefix / "bin" / "python"

    @property
    def site(self) -> Path:
        return site_packages(self.python)

    def examine(self) -> Examined:
        variables: Mapping[str, str] = {}
        return examine(Question(self.python, self.lock, None, "", "harness doctor x", variables, "/"), self.where)

    def findings(self) -> list[Finding]:
        """Everything above a note."""
        return [finding for finding in self.examine().diagnosis.findings if finding.severity != "note"]

    def plan(self, *remove: str) -> Plan:
        found = self.examine()
        return mend.plan(found.case, found.diagnosis.findings, remove)

    def mend(self, *remove: str) -> Plan:
        """Plan, carry it out, and return it."""
        found = self.examine()
        made = mend.plan(found.case, found.diagnosis.findings, remove)
        mend.carry_out(made, found.case, self.uv, lambda _: None)
        return made

    def install(self, *wheels: Path) -> None:
        """Install wheels over what is there, and nothing that they ask for."""
        self.run_uv("install", "--no-deps", *wheels)

    def uninstall(self, *names: str) -> None:
        self.run_uv("uninstall", *names)

    def run_uv(self, command: str, *arguments: str | Path) -> None:
        """``uv pip COMMAND`` as a user of this environment would call it."""
        words = (self.uv, "pip", command, "--quiet", "--python", self.python, *arguments)
        environ = {**os.environ, "UV_FIND_LINKS": str(self.index)}
        subprocess.run([str(word) for word in words], check=True, env=environ)

    def pip_check(self) -> str:
        """What ``pip check`` says."""
        command = [sys.executable, "-m", "pip", "--python", self.python, "--disable-pip-version-check", "check"]
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
        return done.stdout.strip()

    def bytes(self) -> dict[str, str]:
        """The SHA-256 of every file but those that Python and uv write as they run."""
        files = {path: file for path, file in snapshot(self.prefix).items() if isinstance(file, File)}
        return {path: file.content for path, file in files.items() if "__pycache__" not in path}


def write_lock(path: Path, wheels: Sequence[Path]) -> Lock:
    """A lock that pins each of ``wheels``."""
    lines = []
    for wheel in wheels:
        name, version, *_ = wheel.name.split("-")
        lines.append(f"{name}=={version} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n")
    path.write_text("".join(lines))
    return read_lock(path, "x", ("3.11",))


def build(folder: Path, uv: Path, wheels: Sequence[Path], relocatable: bool = False) -> Locked:
    """Install ``wheels`` with uv as a user would, copied; the variables for it are those of ``only_from``."""
    index, prefix = folder / "index", folder / "venv"
    index.mkdir(parents=True)
    for wheel in wheels:
        shutil.copy(wheel, index)
    lock = write_lock(folder / "lock.txt", wheels)
    options = ("--relocatable",) if relocatable else ()
    command = [uv, "venv", "--quiet", "--no-project", *options, "--python", sys.executable, prefix]
    subprocess.run([str(part) for part in command], check=True)
    made = Locked(prefix, index, lock, uv, Places(places().root, folder / "state", folder / "runs"))
    made.run_uv("sync", "--link-mode=copy", lock.path)
    return made


def only_from(index: Path, cache: Path) -> dict[str, str]:
    """The variables of a process for which ``index`` is the only place with packages."""
    return {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_FIND_LINKS": str(index),
        "PIP_EXTRA_INDEX_URL": "",
        "UV_OFFLINE": "1",
        "UV_CACHE_DIR": str(cache),
    }


def download(folder: Path, *pins: str) -> list[Path]:
    """The real wheels of pins like "torch==2.11.0", from wherever pip finds them."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", folder]
    subprocess.run([str(part) for part in (*command, *pins)], check=True)
    return [next(folder.glob(f"{pin.replace('-', '_').replace('==', '-')}-*.whl")) for pin in pins]
