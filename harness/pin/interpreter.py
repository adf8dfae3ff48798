"""Which Python a command runs with, asked without importing anything that is installed beside it."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import EnvironmentFault
from harness.records import BuiltEnvironment

_QUESTION = """
import json, platform, sys, sysconfig
print(json.dumps({
    "version": platform.python_version(),
    "implementation": platform.python_implementation(),
    "compiler": platform.python_compiler(),
    "site_packages": sysconfig.get_path("purelib"),
}))
"""


@dataclass(frozen=True)
class Interpreter:
    """What a Python says of itself."""

    version: str
    implementation: str
    compiler: str
    site_packages: Path


def ask(python: Path) -> Interpreter:
    """What ``python`` says of itself. Raises EnvironmentFault where it does not start."""
    answer = answer_of(python, _QUESTION)
    return Interpreter(**{**answer, "site_packages": Path(answer["site_packages"])})


def answer_of(python: Path, question: str) -> dict[str, Any]:
    """Start ``python`` alone, without variables and user site, and read the JSON object that ``question`` prints.

    Raises EnvironmentFault where it fails.
    """
    # Without -S: a virtual environment's paths are found by the site module.
    command = [str(python), "-I", "-B", "-c", question]  # -B: what a .pth file imports leaves no bytecode
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, timeout=60)
    except subprocess.TimeoutExpired:
        raise EnvironmentFault(f"{python} does not start as a Python: no answer in 60 s") from None
    except OSError as error:
        raise EnvironmentFault(f"{python} does not start as a Python: {error}") from None
    try:
        answer = json.loads(done.stdout.splitlines()[-1])  # above it may stand what a .pth file prints
        if done.returncode == 0 and isinstance(answer, dict):
            return answer
    except (IndexError, ValueError):
        pass
    words = (done.stderr.strip() or done.stdout.strip() or "no word").splitlines()[-1]
    raise EnvironmentFault(f"{python} does not start as a Python: exit code {done.returncode}, {words[:200]!r}")


def of_command(argv: Sequence[str], path: str | None = None) -> Path | None:
    """The Python that ``argv`` runs with: itself, that of its first line, or the first on ``path``; None if none is.

    A shell script can start any Python; what it finds first is the best that can be said before it runs.
    """
    program = shutil.which(argv[0], path=path)
    if program is not None:
        if Path(program).name.startswith("python"):
            return Path(program).absolute()
        named = _first_line_python(Path(program), path)
        if named is not None:
            return named
    found = shutil.which("python", path=path) or shutil.which("python3", path=path)
    return Path(found).absolute() if found else None


def _first_line_python(script: Path, path: str | None) -> Path | None:
    """The Python that a script's ``#!`` line names, straight or through env, or None."""
    with script.open("rb") as file:
        first = file.readline(500)
    if not first.startswith(b"#!"):
        return None
    words = shlex.split(first[2:].decode(errors="replace"))
    if words and Path(words[0]).name == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    if not words or not Path(words[0]).name.startswith("python"):
        return None
    found = shutil.which(words[0], path=path)
    return Path(found).absolute() if found else None


def environment_of(python: Path) -> BuiltEnvironment:
    """The environment that ``python`` belongs to, one that no lock describes."""
    return BuiltEnvironment(name="", python=python, site_packages=ask(python).site_packages)
