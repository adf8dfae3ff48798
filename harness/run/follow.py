"""Follows what a child writes while it writes it: its events, and its output where that is shown or read for steps."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from pathlib import Path

from harness.records import Event
from harness.run.events import Recorder
from harness.run.folder import EventTail
from harness.run.logsteps import LogSteps

OnEvent = Callable[[Event], None]
OnOutput = Callable[[str, str], None]

_LINE_END = re.compile(r"\r\n|\n|\r")  # a progress bar ends its lines with a carriage return


class OutputTail:
    """The text that was added to a log file, and its complete lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")(
            "surrogateescape"
        )  # a byte that is no text comes out as it went in
        self._begun = ""

    def poll(self) -> tuple[str, list[str]]:
        """The new text, and the lines that it completed."""
        if not self._path.exists() or self._path.stat().st_size <= self._offset:
            return "", []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        self._offset += len(data)
        text = self._decoder.decode(data)
        *lines, self._begun = _LINE_END.split(self._begun + text)
        return text, lines


class Follower:
    """Passes on what is new in a run's folder. ``log_steps`` turns lines into steps, which join the other events."""

    def __init__(
        self, folder: Path, t0: float, on_event: OnEvent, on_output: OnOutput | None, log_steps: LogSteps | None
    ) -> None:
        self._events = EventTail(folder / "events.jsonl")
        wanted = ("stdout", "stderr") if on_output or log_steps else ()
        self._outputs = {stream: OutputTail(folder / f"{stream}.log") for stream in wanted}
        self._on_event, self._on_output, self._log_steps = on_event, on_output, log_steps
        self._recorder = Recorder(folder, t0)

    @property
    def interval(self) -> float:
        """Seconds between two looks: output is timed and shown by them, events carry their own time."""
        return 0.1 if self._outputs else 0.5

    def poll(self) -> None:
        """Pass on what is new since the last poll."""
        now = self._recorder.now()
        for stream, tail in self._outputs.items():
            text, lines = tail.poll()
            if text and self._on_output:
                self._on_output(stream, text)
            if lines and self._log_steps:
                for step in self._log_steps.steps(lines, now):
                    self._recorder.write(step)
        for event in self._events.poll():
            self._on_event(event)

    def until(self, ended: Callable[[float], bool]) -> None:
        """Poll until ``ended(seconds)``, which waits up to those seconds, is true."""
        while not ended(self.interval):
            self.poll()

    def note(self, text: str) -> None:
        """Write a warning of the harness itself among the events."""
        self._recorder.note(text, level="warning")
