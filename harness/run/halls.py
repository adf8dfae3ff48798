"""Where the threads of a gate sit: halls, one inside the other, and a seat for each thread. Standard library only."""

from __future__ import annotations

import threading
import weakref


class Hall:
    """Where the seats are: the outermost one is everybody's, each further one belongs to the work of one writer."""

    __slots__ = ("level", "over", "seats", "wanting", "writer")

    def __init__(self, level: int) -> None:
        self.level = level
        self.over = False  # its writer has finished: nobody may sit here any more
        self.seats: weakref.WeakSet[Seat] = weakref.WeakSet()
        self.wanting: list[Seat] = []
        self.writer: weakref.ref[Seat] | None = None

    def writing(self) -> Seat | None:
        """The seat that writes. A thread that died had the only lasting reference to its seat."""
        return self.writer() if self.writer is not None else None

    def reading(self) -> list[Seat]:
        return [seat for seat in self.seats if seat.depth]


class Seat:
    """One thread's place in one hall. Its thread alone changes ``depth``: how many reads are open, one in another."""

    __slots__ = ("__weakref__", "borrowed", "depth", "hall", "kept", "name", "outer")

    def __init__(self, hall: Hall, outer: Seat | None = None, borrowed: bool = False) -> None:
        self.hall = hall
        self.outer = outer  # where the thread sits again afterwards
        self.borrowed = borrowed  # in the hall of another thread's writing, for one read
        self.depth = 0
        self.kept = 0  # reads that were given up for a while: by a writer, or by one who waits for others
        self.name = threading.current_thread().name
        hall.seats.add(self)


def held(seat: Seat) -> str:
    """Who stands in the way of ``seat``, by the names of their threads."""
    hall = seat.hall
    writer = hall.writing()
    lines = [
        ("compiling", [writer.name] if writer is not None else []),
        ("calling compiled code", [other.name for other in hall.reading()]),
        ("waiting to compile", [other.name for other in hall.wanting if other is not seat]),
    ]
    return "; ".join(f"{what}: {', '.join(sorted(names))}" for what, names in lines if names) or "nobody is seen"
