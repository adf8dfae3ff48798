"""Progress of long work, at a pace that a person can read."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from harness.pin.aside import Say

_EVERY_S = 2.0


@dataclass
class Paced:
    """Passes on a line when the last one, or the start, is two seconds past."""

    on: Say
    _last: float = field(default_factory=time.monotonic)

    def say(self, text: str) -> None:
        now = time.monotonic()
        if now - self._last >= _EVERY_S:
            self._last = now
            self.on(text)
