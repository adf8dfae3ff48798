"""For all tests: a busy machine fails no property. Where a change is judged, the same examples are tried each time."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("no deadline", deadline=None)
settings.register_profile("the same each time", deadline=None, derandomize=True)
settings.load_profile("no deadline")
