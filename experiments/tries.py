"""A piece of work done several times, each time in a process of its own, forked from this one. Standard library only.

What takes long and changes nothing, as importing torch, is done once before. A try's output goes to ``NUMBER.out`` and
``NUMBER.err`` of the current folder. This process says on its standard output how each ended and in how many seconds;
the code is as ``subprocess`` has it, or null where the try was killed as too slow:

    {"event": "ended", "number": 1, "code": -11, "seconds": 4.2}
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

STACKS_S = 2.0
"""Seconds that a try which hangs has to write its stacks, before it is killed."""

POLL_S = 0.02


def say(event: str, **what: Any) -> None:
    """Write one line at once, so that nothing of it is lost and no other thread writes into it."""
    os.write(1, (json.dumps({"event": event, **what}) + "\n").encode())


def make_tries(count: int, timeout: float, work: Callable[[], None]) -> None:
    """Do ``work`` ``count`` times, one after the other; one that takes longer than ``timeout`` seconds is killed."""
    for number in range(1, count + 1):
        began = time.monotonic()
        pid = _forked(number, work)
        code = _ended(pid, timeout)
        if code is None:
            _kill(pid)
        say("ended", number=number, code=code, seconds=time.monotonic() - began)


def _forked(number: int, work: Callable[[], None]) -> int:
    """Start a try in a process group of its own; its pid."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setpgid(0, 0)
        for descriptor, ending in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"{number:03}.{ending}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), descriptor)
        faulthandler.enable()
        faulthandler.register(signal.SIGUSR1)  # sent where it hangs: every thread's stack
        work()
        code = 0
    except BaseException:  # whatever it raises is its end, and must not run on into the parent's code
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _ended(pid: int, seconds: float) -> int | None:
    """The exit code of ``pid``, or None where it still runs after ``seconds``."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(POLL_S)
    return None


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGUSR1)
    ended = _ended(pid, STACKS_S) is not None
    try:
        os.killpg(pid, signal.SIGKILL)  # with whatever it started
    except ProcessLookupError:
        return  # nothing is left of it
    if not ended:
        os.waitpid(pid, 0)
