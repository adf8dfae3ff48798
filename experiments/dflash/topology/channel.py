"""How threads of one training wait for each other: in a known order, not longer than their patience, not past its end.

Standard library only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Generic, TypeVar

from harness.errors import WorkerError

T = TypeVar("T")


class Stopped(Exception):
    """The training ends: what this thread waits for will not come."""


class WaitingRoom:
    """Where threads wait for each other until it is closed. One for all of a training, so that closing wakes everybody.

    changed  the condition that guards whatever is waited for; who changes that notifies all
    """

    def __init__(self, patience: float, away: Callable[[], AbstractContextManager[object]] = nullcontext) -> None:
        """``patience``: the seconds that one may wait for another. ``away``: around each visit, what else a thread
        must let go while it may have to wait."""
        self._away = away
        self.changed = threading.Condition()
        self._patience = min(patience, threading.TIMEOUT_MAX)
        self._closed = False
        self._waits: dict[str, Callable[[], str]] = {}

    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """End every wait, and each that begins from now on, with Stopped."""
        with self.changed:
            self._closed = True
            self.changed.notify_all()

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Be here, holding ``changed``. What was let go is taken back after ``changed``, never under it."""
        with self._away(), self.changed:
            yield

    def wait(self, ready: Callable[[], bool], who: str, for_whom: Callable[[], str]) -> None:
        """Wait, holding ``changed``, until ``ready()``.

        A name is one thread's. Raises Stopped once the room is closed, and after too long WorkerError, which says
        ``who`` waited ``for_whom``.
        """
        self._waits[who] = for_whom
        try:
            came = self.changed.wait_for(lambda: self._closed or ready(), self._patience)
        finally:
            del self._waits[who]
        if not came:
            others = ", ".join(f"{other} waits for {whom()}" for other, whom in self._waits.items())
            more = f" ({others})" if others else ""
            raise WorkerError(
                f"{who} has waited {self._patience:g} s for {for_whom()}{more}: "
                "see what keeps it, or set topology.patience higher"
            )
        if self._closed:
            raise Stopped


class Channel(Generic[T]):
    """A bounded queue to one receiver. Items are numbered from 1 and taken in that order, whoever sends them when."""

    def __init__(self, room: WaitingRoom, receiver: str, size: int) -> None:
        """``size``: how many items may wait in it."""
        self._room = room
        self._receiver = receiver
        self._size = size
        self._items: dict[int, T] = {}
        self._taken = 0

    def await_place(self, number: int, sender: str) -> None:
        """Wait until ``number`` is one of the next ``size`` to be taken: what comes late always has its place."""
        with self._room.entered():
            self._await_place(number, sender)

    def put(self, number: int, item: T, sender: str) -> None:
        """Send ``item``, once there is a place for it."""
        with self._room.entered():
            self._await_place(number, sender)
            self._items[number] = item
            self._room.changed.notify_all()

    def _await_place(self, number: int, sender: str) -> None:
        self._room.wait(lambda: number <= self._taken + self._size, sender, lambda: self._receiver)

    def take(self, sender: str) -> T:
        """The next item, which ``sender`` sends."""
        with self._room.entered():
            number = self._taken + 1
            self._room.wait(lambda: number in self._items, self._receiver, lambda: sender)
            self._taken = number
            self._room.changed.notify_all()
            return self._items.pop(number)
