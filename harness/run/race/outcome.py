"""How a try ended, from what its child left: its exit code and what it wrote. Pure."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Outcome = Literal["passed", "tracing error", "segfault", "hang", "wrong result", "error"]
"""The tracing error is the seeds' RuntimeError. "error": any other exception, or another signal than a segfault's."""

HEAD = 12
"""Lines of a stack that are kept: the innermost say where it broke."""

_THREAD = re.compile(r"(Current thread|Thread) 0x[0-9a-f]+")
_LONG_PATH = re.compile(r'File "[^"]*/(?:site-packages|python3\.\d+)/')


@dataclass(frozen=True)
class Verdict:
    """How a try ended.

    seen     how many calls raised the seeds' error, also where a segfault followed
    detail   the first line of the error, the difference, or the signal
    stack    the first lines of the stack, the innermost call first; of an exception, its last lines
    note     a remark of the child on its guard
    """

    outcome: Outcome
    detail: str = ""
    seen: int = 0
    stack: tuple[str, ...] = ()
    torch: str = ""
    note: str = ""


def judge(code: int | None, stdout: str, stderr: str) -> Verdict:
    """The verdict on a child that ended with ``code``, as ``subprocess`` has it; None: it was killed as too slow.

    The worst decides: a child that died, then a wrong result, another error, the tracing error. A line that the child's
    death tore is passed over; a child that ends well has said so in its last line, or else it is an error too.
    """
    lines = list(said(stdout))
    started = _first(lines, "started") or {}
    common = {
        "seen": sum(line["event"] == "tracing error" for line in lines),
        "torch": str(started.get("torch", "")),
        "note": str(started.get("note", "")),
    }
    if code is None:
        return Verdict("hang", "it did not end in time", stack=_every_thread(stderr), **common)
    if code in (-signal.SIGSEGV, -signal.SIGBUS):
        return Verdict("segfault", signal.Signals(-code).name, stack=_dying_thread(stderr), **common)
    if code < 0:
        detail = f"{signal.Signals(-code).name}: {_fatal(stderr)}".removesuffix(": ")
        return Verdict("error", detail, stack=_dying_thread(stderr), **common)
    if wrong := _first(lines, "wrong result"):
        return Verdict("wrong result", _text(wrong), **common)
    if failed := _first(lines, "error"):
        return Verdict("error", _text(failed), stack=_tail(failed.get("stack", ())), **common)
    if code or not _first(lines, "done"):
        written = stderr.strip().splitlines()
        last = written[-1] if written else f"it ended with exit code {code} and without its last word"
        return Verdict("error", last, stack=_tail(written), **common)
    if told := _first(lines, "tracing error"):
        return Verdict("tracing error", _text(told), **common)
    return Verdict("passed", **common)


def said(stdout: str) -> Iterator[dict[str, Any]]:
    """A child's lines. Anything else on its standard output is not its word, and neither is a torn line."""
    for text in stdout.splitlines():
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            continue
        if isinstance(line, dict) and "event" in line:
            yield line


def _first(lines: Sequence[dict[str, Any]], event: str) -> dict[str, Any] | None:
    return next((line for line in lines if line["event"] == event), None)


def _text(line: dict[str, Any]) -> str:
    """The first line of what it says that has words: some of torch's messages begin with an empty one."""
    words = (part.strip() for part in str(line.get("text", "")).splitlines())
    return next((part for part in words if part and not part.endswith("Error:")), str(line.get("text", "")).strip())


def _fatal(stderr: str) -> str:
    """What the interpreter or the C library said as it died."""
    last = stderr.strip().splitlines()[-1:]
    return next((line for line in stderr.splitlines() if line.startswith("Fatal Python error")), "".join(last))


def _threads(stderr: str) -> list[list[str]]:
    """faulthandler's stacks, one a thread, the innermost call first."""
    stacks: list[list[str]] = []
    for line in stderr.splitlines():
        if _THREAD.match(line):
            stacks.append([line])
        elif stacks and line.startswith("  File "):
            stacks[-1].append(line)
    return stacks


def _dying_thread(stderr: str) -> tuple[str, ...]:
    current = next((stack for stack in _threads(stderr) if stack[0].startswith("Current")), [])
    return _short(current[: HEAD + 1])


def _every_thread(stderr: str) -> tuple[str, ...]:
    return _short([line for stack in _threads(stderr) for line in stack[: HEAD // 2 + 1]])


def _tail(lines: Sequence[str]) -> tuple[str, ...]:
    return _short(list(lines)[-HEAD:])


def _short(lines: Sequence[str]) -> tuple[str, ...]:
    """Paths from the package on: the folder of the environment says nothing, and differs between machines."""
    return tuple(_LONG_PATH.sub('File "', line.rstrip()) for line in lines)
