"""Ends every process of a run when the harness is gone, however it went. Standard library only, and run as a script.

    python watchdog.py MARKER GRACE

It is told the child's process id on standard input, and "over" at the end; where the input ends without, the harness
died.

The child leads a session of its own; a process of the run is one in that session, or one whose environment has
``HARNESS_RUN`` set to the run's folder (a launcher such as torchrun gives its workers sessions of their own).
``PR_SET_PDEATHSIG`` would not do: it reaches the child and not its children, a child may ignore its signal, and it
needs code between fork and exec in a process that has threads.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

POLL_S = 0.05
NO_SESSION = -1


def members(session: int, marker: str) -> list[int]:
    """The living processes of a run: those of ``session``, and those with ``HARNESS_RUN=marker``."""
    wanted = f"HARNESS_RUN={marker}".encode()
    own = os.getpid()
    return [pid for pid in _pids() if pid != own and _belongs(pid, session, wanted)]


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]


def _belongs(pid: int, session: int, wanted: bytes) -> bool:
    try:
        # The name in parentheses may hold anything; the state is the first field after it, the session the fourth.
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        if fields[0] in (b"Z", b"X"):
            return False  # dead, and only waits to be collected
        return int(fields[3]) == session or wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False  # gone meanwhile, or another user's


def send(pids: list[int], number: int) -> None:
    """Send a signal to each process that is still there."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def end(session: int, marker: str, grace: float, hurry: Callable[[], bool] = lambda: False) -> list[int]:
    """End every process of the run: SIGTERM, ``grace`` seconds or until ``hurry()``, then SIGKILL until none is left.

    Returns the processes that had to be killed.
    """
    first = members(session, marker)
    send(first, signal.SIGTERM)
    deadline = time.monotonic() + grace
    left = first
    while left and time.monotonic() < deadline and not hurry():
        time.sleep(POLL_S)
        left = members(session, marker)
    killed = set(left)
    deadline = time.monotonic() + 5.0  # a process in an uninterruptible wait outlives SIGKILL; do not wait for ever
    while left and time.monotonic() < deadline:
        send(left, signal.SIGKILL)
        time.sleep(POLL_S)
        left = members(session, marker)
        killed |= set(left)
    return sorted(killed)


def main(marker: str, grace: float) -> None:
    """Watch one run: standard input that ends before it said "over" is the harness's death."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # whatever ends the harness must not end this first
    told = sys.stdin.read().split()
    if "over" not in told:
        end(int(told[0]) if told else NO_SESSION, marker, grace)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
