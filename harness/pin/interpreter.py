"""Which Python a command runs with, asked without running anything that is installed beside it."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import EnvironmentFault, HarnessError, UsageError
from harness.records import BuiltEnvironment

_PYTHON_SPEAKS = ("Fatal Python error", "Traceback (most recent call last)")


@dataclass(frozen=True)
class Interpreter:
    """What a Python says of itself."""

    version: str
    implementation: str
    compiler: str
    site_packages: Path


def ask(python: Path) -> Interpreter:
    """What ``python`` says of itself. Raises as ``answer_of`` does."""
    answer = describe(python)
    known = {name: answer[name] for name in ("version", "implementation", "compiler")}
    return Interpreter(**known, site_packages=Path(answer["purelib"]))


def describe(python: Path) -> dict[str, Any]:
    """What ``harness.pin.introspect`` answers in ``python``. Raises as ``answer_of`` does."""
    code = Path(__file__).with_name("introspect.py").read_text(encoding="utf-8")
    answer = answer_of(python, f"{code}\nimport json\nprint(json.dumps(describe()))")
    if "purelib" not in answer:
        raise _fault(python, f"it answers {str(answer)[:200]!r}")
    return answer


def answer_of(python: Path, question: str) -> dict[str, Any]:
    """Start ``python`` alone and read the JSON object that ``question`` prints.

    Alone: without its site module, variables and user site, so that no code of the environment runs. Raises
    EnvironmentFault for a Python that fails, UsageError for what is no Python at all.
    """
    command = [str(python), "-I", "-S", "-B", "-c", question]
    options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "errors": "replace"}
    try:
        done = subprocess.run(command, check=False, timeout=60, **options)
    except subprocess.TimeoutExpired:
        raise _fault(python, "no answer in 60 s") from None
    except OSError as error:
        raise _not_started(python, error) from None
    try:
        answer = json.loads(done.stdout.splitlines()[-1])  # above it may stand what a script around Python prints
        if done.returncode == 0 and isinstance(answer, dict):
            return answer
    except (IndexError, ValueError):
        pass
    raise _fault(python, _why(done), done.stderr)


def _not_started(python: Path, error: OSError) -> HarnessError:
    """Why the system started nothing."""
    if python.is_dir():
        return UsageError(f"{python} is a folder, not a Python")
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        if python.is_symlink() and not python.exists():
            base = os.path.realpath(python)
            mend = "make the venv anew, or install that Python again"
            return EnvironmentFault(f"{python} does not start: its base Python {base} is gone: {mend}")
        there = "the program that its #! line, or its header, names is not there"
        return _fault(python, there if python.exists() else "no such file")
    if isinstance(error, PermissionError):
        return _fault(python, "the file may not be executed")
    return _fault(python, error.strerror or str(error))


def _why(done: subprocess.CompletedProcess[str]) -> str:
    """What a process that gave no answer ended with, and the most telling line of what it said."""
    if "No module named 'encodings'" in done.stderr:
        return "it does not find its standard library: make the venv anew, or install that Python again"
    lines = (done.stderr.strip() or done.stdout.strip() or "no word").splitlines()
    words = next((line for line in reversed(lines) if "rror" in line), lines[0]).strip()
    code = done.returncode
    known = {int(number): number.name for number in signal.Signals}
    end = f"exit code {code}" if code >= 0 else f"killed by {known.get(-code, f'signal {-code}')}"
    return f"{end}, {words[:200]!r}"


def _fault(python: Path, why: str, said: str = "") -> HarnessError:
    """A Python that fails is a broken one; anything else was named by mistake."""
    names = (python.name, Path(os.path.realpath(python)).name)
    if any(name.startswith(("python", "pypy")) for name in names) or any(words in said for words in _PYTHON_SPEAKS):
        return EnvironmentFault(f"{python} does not start as a Python: {why}")
    return UsageError(f"{python} is not a Python: {why}")


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
