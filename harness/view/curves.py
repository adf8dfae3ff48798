"""A run over time, made ready for drawing: where its blocks begin and end, and which run of a side stands for it."""

from __future__ import annotations

from collections.abc import Sequence

from harness.comparison import Measured, Profile, Side


def spans(profile: Profile) -> list[tuple[float, float]]:
    """(begin, end) of each block. A block's phases sum to the time that its steps took; what lies between is a gap."""
    taken = [sum(column) for column in zip(*profile.phases.values(), strict=True)] if profile.phases else []
    found: list[tuple[float, float]] = []
    for n, end in enumerate(profile.t):
        earlier = profile.t[n - 1] if n else 0.0
        begin = max(earlier, end - taken[n]) if taken else earlier
        found.append((begin, end))
    return found


def end_of(run: Measured) -> float:
    """Seconds from the run's begin to the last thing that is known of it."""
    series = [run.profile.t, *(lane.t for lane in run.lanes)]
    return max([0.0, *(t[-1] for t in series if t), *(mark[0] for mark in run.profile.marks)])


def binned(profile: Profile, end: float, count: int) -> list[float | None]:
    """The rate in each of ``count`` equal parts of [0, ``end``], over the time of its steps; None without steps."""
    units, seconds = [0.0] * count, [0.0] * count
    for (begin, stop), rate in zip(spans(profile), profile.rate, strict=True):
        first, last = (min(count - 1, int(t / end * count)) for t in (begin, stop))
        for n in range(first, last + 1):
            shared = min(stop, (n + 1) * end / count) - max(begin, n * end / count)
            units[n] += rate * max(0.0, shared)
            seconds[n] += max(0.0, shared)
    return [u / s if s > 0 else None for u, s in zip(units, seconds, strict=True)]


def representative(side: Side) -> Measured | None:
    """The run that stands for a side: the one that failed; else the one of middle speed; else the first."""
    if side.failed:
        return side.failed[-1]
    timed = sorted((m for m in side.runs if m.steady), key=lambda m: m.steady.throughput.value if m.steady else 0.0)
    return timed[(len(timed) - 1) // 2] if timed else side.runs[0] if side.runs else None


def one_unit(runs: Sequence[Measured]) -> bool:
    """Whether the rates of ``runs`` can stand on one scale: tokens a second and steps a second cannot."""
    return len({run.unit for run in runs}) <= 1


def steady_rates(runs: Sequence[Measured]) -> list[float]:
    """Rates of the steady blocks of ``runs``, or of all blocks where none is steady."""
    blocks = [(rate, steady) for m in runs for rate, steady in zip(m.profile.rate, m.profile.steady, strict=True)]
    return [rate for rate, steady in blocks if steady] or [rate for rate, _ in blocks]
