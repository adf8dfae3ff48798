"""The rows of a role while it runs: its devices' steps put together as they come. Standard library only.

A row is one step number, by the rule of ``harness/steady.py``: tokens of the devices add up, its seconds are those of
its slowest device, and a number that comes again is another row. That module makes rows of a whole run at once; this
one makes the same of a file that grows, so that a rate that is shown meanwhile is the one that stands at the end.
"""

from __future__ import annotations

from typing import NamedTuple

from harness.records import Step

OVERLAP_S = 1e-3
"""Seconds that two stretches of time must share: clocks that are read one after the other overlap by less."""

MOST_OPEN = 64
"""Rows that a role may be ahead of a device that is waited for; one that is farther behind has stopped."""

Place = tuple[int, int]
"""How often the numbers have begun again, and the number."""


class Row(NamedTuple):
    """What the devices of a role did in one step."""

    place: Place
    steps: tuple[Step, ...]

    @property
    def seconds(self) -> float:
        """Of the slowest device."""
        return max(step.seconds for step in self.steps)

    @property
    def tokens(self) -> int:
        return sum(step.tokens for step in self.steps)


class GrowingRows:
    """The rows of one role. A row is whole once every device of the role has gone past it."""

    def __init__(self) -> None:
        self._at: dict[str, tuple[Place, float]] = {}  # where each device is, and since when
        self._open: dict[Place, list[Step]] = {}
        self._done: Place = (0, 0)

    @property
    def reached(self) -> Place:
        """Where the last of the devices is: no step of an earlier place is waited for."""
        return min((place for place, _ in self._at.values()), default=(0, 0))

    @property
    def open(self) -> list[Row]:
        """The rows that are not whole yet, in order."""
        return [Row(place, tuple(self._open[place])) for place in sorted(self._open)]

    @property
    def full(self) -> list[Row]:
        """The open rows that have a step of every device: for all that is known they are whole."""
        return [row for row in self.open if {step.device for step in row.steps} >= self._at.keys()]

    def add(self, step: Step) -> list[Row]:
        """Take one step, and give the rows that are whole by it, in order."""
        place = self._place(step)
        late = place <= self._done and bool(self._open)
        before, t = self._at.get(step.device, (place, step.t))
        if step.device in self._at or not late:
            self._at[step.device] = max(before, place), max(t, step.t)
        if late:  # nobody waited for it: it ran beside what is open now
            place = min(self._open)
        self._open.setdefault(place, []).append(step)
        whole = self._until(self.reached)
        while len(self._open) > MOST_OPEN:
            oldest = min(self._open)
            self._at = {device: at for device, at in self._at.items() if at[0] > oldest}
            whole += self._until(self.reached)
        return whole

    def close(self) -> list[Row]:
        """The rows that are left when nothing more comes."""
        left = self.open
        self._open.clear()
        return left

    def _place(self, step: Step) -> Place:
        if step.device not in self._at:
            return self.reached[0], step.step
        (again, number), t = self._at[step.device]
        beside = step.t - step.seconds < t - OVERLAP_S  # of several workers that share a device's name
        return again + (step.step <= number and not beside), step.step

    def _until(self, end: Place) -> list[Row]:
        """Take out the rows before ``end``, in order."""
        places = sorted(place for place in self._open if place < end)
        self._done = max([self._done, *places])
        return [Row(place, tuple(self._open.pop(place))) for place in places]
