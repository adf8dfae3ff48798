"""A gate for many readers or one writer, whose places belong to work, not to threads. Standard library only.

    gate = Gate()
    call = gate.reads(function)      # any number of calls at once, none while somebody writes
    with gate.writing():             # alone; a reader that writes gives up its place first and takes it again after
        ...
    with gate.lending():             # this thread only waits now, for others who work for it
        ...

Two things make it more than a reader/writer lock. While a thread writes it sits in a *hall* of its own, a gate inside
the gate: what it calls or writes there is part of its writing, however deep, and meets no foreign writer. And a thread
that waits for others *lends* its place: a reader gives it up until they are done, a writer lets them into its hall,
which they find through ``lent`` (torch's autograd threads inherit an object from the caller of ``backward``).

The fast path is Dekker's: a reader counts itself in and then looks whether anybody writes or wants to; a writer says so
and then looks who is counted in. Each of those is one bytecode, which the GIL puts in one order for all threads. A
Python without GIL promises no such order: there ``busy`` stays True, and every reader takes the lock.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from harness.run.halls import Hall, Seat, held

F = TypeVar("F", bound=Callable[..., Any])

LOOK_AGAIN_S = 0.5
"""How often one who waits looks by itself: a thread that died gave its place back and woke nobody."""


@dataclass(frozen=True)
class Stats:
    """What the gate has cost so far: outermost writes, and the seconds that threads waited, summed over them."""

    compiles: int = 0
    writers_waited_s: float = 0.0
    readers_waited_s: float = 0.0
    longest_wait_s: float = 0.0


class _Here(threading.local):
    """The seat that the running thread has now; the outermost hall's when it comes for the first time."""

    def __init__(self, gate: Gate) -> None:
        with gate.changed:
            self.seat = Seat(gate.everybody)


class Gate:
    """Calls that may run together and work that must be alone; see the module. Threads share it."""

    def __init__(
        self,
        lent: Callable[[], Hall | None] = lambda: None,
        say: Callable[[str], None] = lambda line: void(sys.stderr.write(line + "\n")),
        patience_s: float = 60.0,
    ) -> None:
        """``lent`` is the hall that this thread works for, if any; ``say`` hears of waits over ``patience_s``."""
        self._lent = lent
        self._say = say
        self._patience_s = patience_s
        self._without_gil = not getattr(sys, "_is_gil_enabled", lambda: True)()
        self.busy = self._without_gil  # somebody writes or wants to, in the outermost hall
        self.changed = threading.Condition()  # an RLock: a finalizer may run on a thread that has it
        self.everybody = Hall(0)
        self._here = _Here(self)
        self._stats = Stats()

    def stats(self) -> Stats:
        return self._stats

    def forget_others(self) -> None:
        """After a fork: the other threads are not here, and one of them may have held the lock."""
        self.changed = threading.Condition()
        self.everybody.wanting.clear()
        with self.changed:
            self._live(self.everybody)
            self._tell()

    def reads(self, function: F) -> F:
        """``function`` as a reader; under a microsecond where nobody writes."""
        begin, end = self.begin_read, self.end_read

        @functools.wraps(function)
        def reader(*args: Any, **kwargs: Any) -> Any:
            seat = begin()
            try:
                return function(*args, **kwargs)
            finally:
                end(seat)

        return reader  # type: ignore[return-value]

    def begin_read(self) -> Seat:
        """Count this thread in; waits while a foreign writer writes or wants to, unless it reads already."""
        seat = self._here.seat
        seat.depth += 1
        if self.busy and seat.depth == 1:
            return self._admit(seat)
        return seat

    def end_read(self, seat: Seat) -> None:
        """Count this thread out of ``seat``, which ``begin_read`` gave."""
        seat.depth -= 1
        if not seat.depth and (self.busy or seat.borrowed):
            with self.changed:
                if seat.borrowed and seat.outer is not None:
                    self._here.seat = seat.outer
                self._tell()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Be alone but for those who work for this thread. Ends as a reader again where it was one, without waiting."""
        nested = self.begin_write()
        try:
            yield
        finally:
            self.end_write(nested)

    def only_waits(self) -> bool:
        """Whether this thread has nothing to lend, so that ``lending`` would change nothing."""
        seat = self._here.seat
        return not seat.depth and not seat.hall.level

    @contextmanager
    def lending(self) -> Iterator[Hall | None]:
        """While this thread waits for others: its reads are given up; its hall, where it writes, is what they need."""
        seat = self._here.seat
        kept, given = seat.depth, seat.kept
        with self.changed:
            seat.depth, seat.kept = 0, given + kept
            self._tell()
        try:
            yield seat.hall if seat.hall.level else None
        finally:
            with self.changed:
                self._here.seat = seat
                try:
                    if kept:
                        self._wait(seat, "call compiled code again", lambda: self._open(seat.hall))
                finally:  # an interrupt leaves the count right for those who unwind
                    seat.depth, seat.kept = kept, given
                    self._tell()

    def _admit(self, seat: Seat) -> Seat:
        """A seat for the read that ``seat`` has counted; ``changed`` orders it against every writer."""
        with self.changed:
            seat.depth = 0  # an interrupt while it waits leaves it so: there was no read
            self._tell()
            self._wait(seat, "call compiled code", lambda: self._open(self._mine(seat).hall))
            mine = self._mine(seat)
            mine.depth = 1
            self._here.seat = mine
            return mine

    def begin_write(self) -> Seat:
        """The seat in a hall of this thread's own, for ``end_write``."""
        with self.changed:
            seat = self._mine(self._here.seat)
            hall, kept = seat.hall, seat.depth
            seat.depth = 0
            hall.wanting.append(seat)
            self._tell()
            try:
                self._wait(seat, "compile", lambda: self._live(hall) is None and not hall.reading())
                hall.writer = weakref.ref(seat)
            except BaseException:
                seat.depth = kept
                raise
            finally:
                hall.wanting.remove(seat)
                self._tell()
            nested = Seat(Hall(hall.level + 1), outer=seat)
            nested.kept = kept
            self._here.seat = nested
            if not hall.level:
                self._stats = replace(self._stats, compiles=self._stats.compiles + 1)
            return nested

    def end_write(self, nested: Seat) -> None:
        """Leave the hall that ``begin_write`` gave, once all who work there are done."""
        seat, hall = nested.outer, nested.hall
        assert seat is not None
        with self.changed:
            try:  # helpers outlive the wait for them where it was cut short by an error
                self._wait(nested, "finish compiling", lambda: self._empty(hall, nested))
            finally:
                hall.over = True
                seat.hall.writer = None
                seat.depth = nested.kept
                left = seat.borrowed and not seat.depth
                self._here.seat = seat.outer if left and seat.outer is not None else seat
                self._tell()

    def _mine(self, seat: Seat) -> Seat:
        """``seat``, or a borrowed one in the hall of the writing that this thread works for.

        Halls nest in one line, so the deeper one is right: one that the thread has beneath it on its own stack it must
        never wait for, not even for foreign work that the engine gave it meanwhile.
        """
        hall = self._lent()
        if hall is not None and not hall.over and hall.level > seat.hall.level:
            return next((s for s in hall.seats if s.outer is seat), None) or Seat(hall, outer=seat, borrowed=True)
        return seat

    def _open(self, hall: Hall) -> bool:
        return self._live(hall) is None and not hall.wanting

    @staticmethod
    def _live(hall: Hall) -> Seat | None:
        """The writer of ``hall``; the place of one whose thread has died is free."""
        seat = hall.writing()
        if seat is None:
            hall.writer = None
        return seat

    def _empty(self, hall: Hall, own: Seat) -> bool:
        held = any(seat.depth or seat.kept for seat in hall.seats if seat is not own)
        return not held and not hall.wanting and self._live(hall) is None

    def _tell(self) -> None:
        hall = self.everybody
        self.busy = self._without_gil or hall.writer is not None or bool(hall.wanting)
        self.changed.notify_all()

    def _wait(self, seat: Seat, what: str, ready: Callable[[], bool]) -> None:
        """Wait, holding ``changed``, until ``ready``; count the time, and say once who waits for whom."""
        if ready():
            return
        start = time.monotonic()
        told = False
        while not ready():
            self.changed.wait(LOOK_AGAIN_S)
            waited = time.monotonic() - start
            if waited > self._patience_s and not told:
                told = True
                self._say(f"compile guard: {seat.name} has waited {waited:.0f} s to {what}; {held(seat)}")
        self._account(time.monotonic() - start, reader="call" in what)

    def _account(self, waited: float, reader: bool) -> None:
        was = self._stats
        self._stats = replace(
            was,
            readers_waited_s=was.readers_waited_s + (waited if reader else 0.0),
            writers_waited_s=was.writers_waited_s + (0.0 if reader else waited),
            longest_wait_s=max(was.longest_wait_s, waited),
        )


def void(_: object) -> None:
    """Take a value and give none back."""
