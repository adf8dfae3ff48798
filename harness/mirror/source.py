"""The metric points of a run folder, read as its files grow."""

from __future__ import annotations

from pathlib import Path

from harness.mirror.ended import cache_points, summary_points
from harness.mirror.points import EventPoints, Point, TelemetryPoints
from harness.records import Run, Started, Value
from harness.run.folder import EventTail, LineTail


class PointSource:
    """All points of one run folder, in two lists whose order the folder's files alone decide.

    The lists are kept whole: they are thinned, some 10^5 points for a million steps.
    """

    def __init__(self, folder: Path) -> None:
        self.events: list[Point] = []
        self.telemetry: list[Point] = []
        self.facts: dict[str, Value] = {}  # what the child said it computes
        self._event_tail = EventTail(folder / "events.jsonl")
        self._event_points = EventPoints()
        self._samples = LineTail(folder / "telemetry.jsonl")
        self._telemetry_points = TelemetryPoints()
        self._closed = False

    def read(self) -> None:
        """Add the points that the lines since the last read complete."""
        for event in self._event_tail.poll():
            if isinstance(event, Started):
                self.facts.update(event.facts)
            self.events += self._event_points.feed(event)
        for sample in self._samples.poll():
            self.telemetry += self._telemetry_points.feed(sample)

    def close(self, run: Run) -> None:
        """Add the last points of a run that has ended: unfinished windows, the caches, the summary."""
        if self._closed:
            return
        self.read()
        t, step = self._event_points.last_t, self._event_points.last_step
        self.events += self._event_points.close()
        self.events += cache_points(run.cache_before, 0.0, 0)
        self.events += cache_points(run.cache_after, t, step)
        self.events += summary_points(run.result.summary, t, step)
        self.telemetry += self._telemetry_points.close()
        self._closed = True
