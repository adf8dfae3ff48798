"""A container in the foreground: what is typed and sent here reaches it, and it ends with whoever started it."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator, Sequence

from harness.errors import INTERRUPTED, HarnessError
from harness.run import container_watchdog
from harness.run.engine import Engine
from harness.run.process import signals_taken

_POLL_S = 0.1
_ENGINE_FAILED = (125, 126, 127)
"""Exit codes of docker and podman themselves; the harness has none of them."""


def attend(engine: Engine, name: str, command: Sequence[str], terminal: bool) -> int:
    """Run the engine's client until the container ``name`` has ended; the exit code of what ran in it.

    Every signal is passed on once, and from the third one on the container is killed. In a terminal the client has the
    keyboard, and the container's own terminal makes a signal of Ctrl-C.

    Raises HarnessError where the engine failed, or the container was ended from outside.
    """
    noted: list[int] = []
    with _watched(engine, name), _terminal_kept(), signals_taken(noted.append):
        client = subprocess.Popen(
            command,
            stdin=None if terminal else subprocess.DEVNULL,
            start_new_session=not terminal,  # Ctrl-C reaches the harness alone, which passes it on
        )
        passed_on = 0
        while (code := _ended(client)) is None:
            # Until the container is there, nobody can be sent a signal: it is tried again.
            if passed_on < len(noted) and _send(engine, name, signal.SIGKILL if passed_on > 1 else noted[passed_on]):
                passed_on += 1
        left_alone = engine.ask("inspect", "--format={{.State.Running}}", name).stdout.strip() == "true"
        if left_alone:  # somebody killed the client, or detached it by its keys
            container_watchdog.end(engine.program, name)
    return _judged(code, bool(noted), left_alone, engine, name)


def _ended(client: subprocess.Popen[bytes]) -> int | None:
    try:
        return client.wait(_POLL_S)
    except subprocess.TimeoutExpired:
        return None


def _send(engine: Engine, name: str, number: int) -> bool:
    return engine.ask("kill", f"--signal={signal.Signals(number).name}", name).returncode == 0


def _judged(code: int, interrupted: bool, left_alone: bool, engine: Engine, name: str) -> int:
    see = "its run's record says how far it got: harness show @1"
    if left_alone:
        raise HarnessError(f"{engine.kind} let go of the container {name} before it ended, so it was stopped; {see}")
    if interrupted and (code < 0 or code >= 125):
        return INTERRUPTED
    if code in _ENGINE_FAILED:
        raise HarnessError(
            f"{engine.kind} could not start the container, its own words are above; "
            "what this machine needs beside the usual options goes into HARNESS_CONTAINER_OPTIONS"
        )
    if code < 0 or (code > 128 and code != INTERRUPTED):
        raise HarnessError(f"the container {name} was ended by signal {abs(code) % 128} from outside; {see}")
    return code


@contextlib.contextmanager
def _watched(engine: Engine, name: str) -> Iterator[None]:
    """While inside, the death of this process ends the container, and so does an error."""
    watch = subprocess.Popen(
        [sys.executable, "-S", "-E", container_watchdog.__file__, engine.program, name],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )
    assert watch.stdin is not None
    try:
        yield
    except BaseException:
        watch.stdin.close()
        raise
    with contextlib.suppress(BrokenPipeError):  # somebody killed the watchdog; nothing is lost by it now
        watch.communicate(b"over\n")


@contextlib.contextmanager
def _terminal_kept() -> Iterator[None]:
    """The terminal as it was: a client that is killed leaves it without echo and without line ends."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
