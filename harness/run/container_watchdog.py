"""Ends a run's container when the harness that started it is gone. Standard library only, and run as a script.

    python container_watchdog.py ENGINE NAME

It is told "over" on standard input at the end; where the input ends without, the harness died. A container belongs to
its engine and not to whoever started it: nothing else would end it.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time

GRACE_S = 30
"""Seconds that the harness inside has to write down how its run ended."""

_START_S = 120.0
"""Seconds that an engine may take to make a container: it may have to copy a whole image for another user."""


def end(engine: str, name: str) -> bool:
    """End the container and leave nothing of it. False where it is not there."""
    there = _done(engine, "stop", "-t", str(GRACE_S), name)
    _done(engine, "rm", "--force", name)  # --rm has done it, unless the container never ran
    return there


def _done(*command: str) -> bool:
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 0


def main(engine: str, name: str) -> None:
    """Watch one container: standard input that ends before it said "over" is the harness's death."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # whatever ends the harness must not end this first
    if "over" in sys.stdin.read().split():
        return
    deadline = time.monotonic() + _START_S
    while not end(engine, name) and time.monotonic() < deadline:
        time.sleep(1.0)  # its client may be at work on it still


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
