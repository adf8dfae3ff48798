"""Something to tell of a run, for tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from harness.records import Event, Fingerprint, Value
from harness.run.folder import RunFolder


@dataclass
class Watcher:
    """An observer that keeps what it was told."""

    folder: Path = Path()
    facts: dict[str, Value] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    text: str = ""

    def started(self, folder: RunFolder, fingerprint: Fingerprint) -> None:
        self.folder, self.facts = folder.path, dict(fingerprint.facts)

    def event(self, event: Event) -> None:
        self.events.append(event)

    def output(self, stream: str, text: str) -> None:
        self.text += f"[{stream}] {text}"
