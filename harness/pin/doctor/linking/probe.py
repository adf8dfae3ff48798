"""Starts an environment's Python, imports what is there, and asks the process what it loaded.

In a process of its own: an import may fail, crash or hang, and each of these is an answer.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.pin.doctor.linking.maps import LoadedLibrary, identified, mapped

TIMEOUT_S = 300.0

_SCRIPT = """
import json, os, sys
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what the modules print is not an answer
modules, sys.argv[1:] = sys.argv[1:], []
if sys.path and sys.path[0] == "":
    del sys.path[0]
import importlib, importlib.util
def tell(**answer):
    print(json.dumps(answer), file=answers, flush=True)
for name in modules:
    try:
        if importlib.util.find_spec(name) is None:
            continue
    except (ImportError, ValueError):
        continue
    tell(importing=name)
    try:
        importlib.import_module(name)
    except BaseException as error:
        tell(failed=name, error=f"{type(error).__name__}: {error}")
with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
    tell(maps=maps.read())
"""


@dataclass(frozen=True)
class Failure:
    """A module that could not be imported."""

    module: str
    error: str  # one line: "ImportError: libcudnn.so.9: cannot open shared object file: No such file or directory"
    output: str = ""  # the end of what it printed


@dataclass(frozen=True)
class Probe:
    """What the process had loaded at its end; nothing where it did not come to its end."""

    libraries: tuple[LoadedLibrary, ...] = ()
    failures: tuple[Failure, ...] = ()


def probe(
    python: Path,
    modules: Sequence[str] = ("torch",),
    variables: Mapping[str, str] | None = None,
    cwd: str = "/",
    timeout: float = TIMEOUT_S,
) -> Probe:
    """Import those of ``modules`` that are installed, in a process with ``variables`` (None: this process's)."""
    command = [str(python), "-X", "faulthandler", "-c", _SCRIPT, *modules]
    environment = dict(os.environ if variables is None else variables)
    try:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            cwd=cwd, env=environment, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        return Probe(failures=(Failure("python", f"{python} does not start: {error.strerror}"),))
    end = ""
    try:
        out, err = child.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        end = f"no answer within {timeout:.0f} seconds"
    finally:
        _end(child.pid)  # and what the imports started
    if end:
        out, err = child.communicate()
    elif child.returncode < 0:
        end = f"Python was killed by {signal.Signals(-child.returncode).name}"
    elif child.returncode > 0:
        end = f"Python ended with exit code {child.returncode}"
    return _read(out, err, end)


def _end(session: int) -> None:
    try:
        os.killpg(session, signal.SIGKILL)
    except ProcessLookupError:
        return  # all have ended


def _read(out: bytes, err: bytes, end: str) -> Probe:
    answers = [answer for line in out.splitlines() if isinstance(answer := _answer(line), dict)]
    output = err.decode(errors="replace")[-2000:]
    failures = [Failure(answer["failed"], _line(answer["error"]), output) for answer in answers if "failed" in answer]
    text = next((answer["maps"] for answer in answers if "maps" in answer), None)
    if text is None:
        module = next((answer["importing"] for answer in reversed(answers) if "importing" in answer), "python")
        failures.append(Failure(module, end or "no answer", output))
    return Probe(tuple(identified(library) for library in mapped(text or "")), tuple(failures))


def _answer(line: bytes) -> object:
    try:
        return json.loads(line)
    except ValueError:  # a line that was being written when the process ended
        return None


def _line(text: str) -> str:
    return " ".join(text.split())[:500]
