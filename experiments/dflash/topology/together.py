"""Threads that do one thing together: they end together, and of those that died the first is named."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable

from experiments.dflash.layout import Seat
from experiments.dflash.topology.channel import Stopped, WaitingRoom
from harness.errors import WorkerError

GRACE_S = 10.0
"""How long is waited for threads to end that have been told to. They do where they next wait for another."""


class Workers:
    """A thread for each seat of a training. The training lasts until all its drafters are done, or anybody dies."""

    def __init__(self, room: WaitingRoom) -> None:
        self._room = room
        self._threads: list[threading.Thread] = []
        self._drafting: set[str] = set()
        self._died: list[tuple[str, BaseException]] = []

    def add(self, seat: Seat, work: Callable[[], None]) -> None:
        """``work`` is done at ``seat`` once all are started."""
        name = seat.name
        if seat.role == "drafter":
            self._drafting.add(name)
        # A daemon, so that one stuck in a library does not keep a process that has failed or was interrupted.
        self._threads.append(threading.Thread(target=self._do, args=(name, work), name=name, daemon=True))

    def run(self) -> None:
        """All of the work, to its end. Raises WorkerError where a worker died, or does not end."""
        try:
            for thread in self._threads:
                thread.start()
            with self._room.changed:
                self._room.changed.wait_for(lambda: self._room.closed() or not self._drafting)
        finally:  # also when interrupted
            self._room.close()
            stuck = self._join()
        if self._died:
            self._raise_first(f"; {stuck} still had not ended {GRACE_S:g} s later" if stuck else "")
        if stuck:
            raise WorkerError(f"{stuck} had not ended {GRACE_S:g} s after the training")

    def _do(self, name: str, work: Callable[[], None]) -> None:
        try:
            work()
        except Stopped:
            pass  # told to end: whoever told knows why
        except BaseException as error:  # SystemExit too: a worker that ends early is missed, whatever ended it
            with self._room.changed:
                self._died.append((name, error))
                self._room.close()
            traceback.print_exception(error)
        finally:
            with self._room.changed:
                self._drafting.discard(name)
                self._room.changed.notify_all()

    def _join(self) -> str:
        """Wait for all threads, and name those that do not end."""
        deadline = time.monotonic() + GRACE_S
        started = [thread for thread in self._threads if thread.ident is not None]
        for thread in started:
            thread.join(max(0.0, deadline - time.monotonic()))
        return " and ".join(thread.name for thread in started if thread.is_alive())

    def _raise_first(self, more: str) -> None:
        name, error = self._died[0]
        if isinstance(error, WorkerError):  # it says itself who waited for whom
            raise WorkerError(f"{error}{more}") from error
        said = (str(error).strip().splitlines() or ["it says nothing more"])[0]
        raise WorkerError(f"{name} failed: {type(error).__name__}: {said}{more}") from error
