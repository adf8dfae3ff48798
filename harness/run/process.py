"""The child process of a run: started in a session of its own, ended with all that it started, whatever happens."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from harness.errors import UsageError
from harness.run import watchdog

GRACE_S = 10.0
"""Seconds that a process has to end by itself after a signal, before it is killed."""


def resolved(argv: Sequence[str], path: str | None = None) -> tuple[str, ...]:
    """``argv`` with its program's absolute path. Raises UsageError where there is no such program."""
    program = shutil.which(argv[0], path=path)
    if program is None:
        raise UsageError(f"{argv[0]}: no such command; nothing was started")
    return (str(Path(program).absolute()), *argv[1:])


@dataclass
class Child:
    """A running child. ``signals`` are those that the harness sent it, or passed on to it."""

    process: subprocess.Popen[bytes]
    watch: subprocess.Popen[str]
    marker: str
    grace: float
    signals: list[int] = field(default_factory=list)
    _deadline: float | None = None

    @property
    def pid(self) -> int:
        return self.process.pid

    def pids(self) -> list[int]:
        """Every process of the run that lives."""
        return watchdog.members(self.pid, self.marker)

    def interrupt(self, number: int) -> None:
        """Pass a signal on to every process of the run; a second one kills them at once. Safe in a signal handler."""
        repeated = bool(self.signals)
        self.signals.append(signal.SIGKILL if repeated else number)
        if self._deadline is None:
            self._deadline = time.monotonic() + self.grace
        watchdog.send(watchdog.members(self.pid, self.marker), signal.SIGKILL if repeated else number)

    def wait(self, timeout: float) -> int | None:
        """The exit code as ``subprocess`` has it (minus a signal's number), or None if it runs after ``timeout`` s."""
        if self._deadline is not None and time.monotonic() > self._deadline:
            self._kill()
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None

    def _kill(self) -> None:
        if signal.SIGKILL not in self.signals:
            self.signals.append(signal.SIGKILL)
        watchdog.send(watchdog.members(self.pid, self.marker), signal.SIGKILL)

    def close(self) -> list[int]:
        """End what the child left behind, and the child itself if it runs. Returns those that had to be killed."""
        in_hurry = signal.SIGKILL in self.signals
        killed = watchdog.end(self.pid, self.marker, 0.0 if in_hurry else self.grace, lambda: len(self.signals) > 1)
        self.process.wait()
        _dismiss(self.watch)
        return killed


def spawn(
    argv: Sequence[str],
    cwd: Path,
    variables: Mapping[str, str],
    folder: Path,
    grace: float = GRACE_S,
    stdin: int | None = subprocess.DEVNULL,
) -> Child:
    """Start ``argv`` with its output straight into ``stdout.log`` and ``stderr.log`` of the run ``folder``.

    ``stdin`` None: it reads what the harness would; a recipe reads nothing.
    Raises UsageError where the program cannot be started.
    """
    watch = _start_watchdog(folder, grace)
    try:
        with (folder / "stdout.log").open("ab") as out, (folder / "stderr.log").open("ab") as err:
            process = subprocess.Popen(
                argv,
                cwd=cwd,
                env=variables,
                stdin=stdin,
                stdout=out,
                stderr=err,
                start_new_session=True,  # the terminal's Ctrl-C reaches the harness alone, which passes it on
            )
    except OSError as error:
        _dismiss(watch)
        raise UsageError(f"{argv[0]} cannot be started: {error.strerror}") from None
    _tell(watch, f"{process.pid}\n")
    return Child(process, watch, str(folder), grace)


def _start_watchdog(folder: Path, grace: float) -> subprocess.Popen[str]:
    """It starts before the child, so that there is no moment at which the child has none."""
    return subprocess.Popen(
        [sys.executable, "-S", "-E", watchdog.__file__, str(folder), str(grace)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
        text=True,
    )


def _tell(watch: subprocess.Popen[str], text: str) -> None:
    assert watch.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # somebody killed the watchdog; the run is still worth having
        watch.stdin.write(text)
        watch.stdin.flush()


def _dismiss(watch: subprocess.Popen[str]) -> None:
    _tell(watch, "over\n")
    assert watch.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        watch.stdin.close()
    watch.wait()


def end_left_over(folder: Path, grace: float = GRACE_S) -> list[int]:
    """End every process of the run in ``folder``, whose harness is gone. Returns those that had to be killed."""
    return watchdog.end(watchdog.NO_SESSION, str(folder), grace)


@contextlib.contextmanager
def signals_taken(take: Callable[[int], None]) -> Iterator[None]:
    """While inside, Ctrl-C, SIGTERM and a closed terminal go to ``take``, by number, and do not raise here.

    Only the main thread can take signals; in another thread, whoever has the main thread has to.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def taken(number: int, _: FrameType | None) -> None:
        take(number)

    before = {}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup stays nohup
            before[number] = signal.signal(number, taken)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
