"""Which role holds up the others, from the share of its time that each waits. Standard library only.

Of two roles that feed each other the one that never waits is the slow one: the other waits for it. One rule for a run
while it goes, for its summary and for a comparison.
"""

from __future__ import annotations

from collections.abc import Mapping

NEARLY = 0.05
"""Waiting shares of two roles that differ by less are the same: neither holds up the other."""


def busiest(waits: Mapping[str, float]) -> str:
    """The role that waits least, for which the others wait; "" where another waits as little, or there is no other."""
    if len(waits) < 2:
        return ""
    first, second = sorted(waits, key=waits.__getitem__)[:2]
    return first if waits[second] - waits[first] >= NEARLY else ""


def longest_waiting(waits: Mapping[str, float], but: str) -> str:
    """The role that waits longest beside ``but``."""
    return max((role for role in waits if role != but), key=waits.__getitem__)
