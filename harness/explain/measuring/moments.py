"""What happened at a moment of a run: telemetry that changed its level there, and events, in a few words each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from harness import figures
from harness.evidence import Evidence, Floats, Series
from harness.explain.measuring.gauges import others, throttling

Moment = tuple[float, float, float]
"""(begin of the level before, the moment, end of the level after), seconds since the run began."""

NEAR = 0.02
"""Of the shorter level's time: how far from the moment an event may be."""

NEAR_S = 3.0
"""As far it may be in any case, but no more than a tenth of the shorter level."""

SAMPLED_S = 2.0
FEWEST_SAMPLES = 3
MOST = 6


class _Gauge(NamedTuple):
    """A kind of series: the least change that is worth a word, as a share of the level and in its own unit."""

    pattern: re.Pattern[str]
    share: float
    least: float
    words: str  # {name}: of the card; {verb}: rose or fell
    unit: Callable[[float], str]


def _plain(unit: str, factor: float = 1.0) -> Callable[[float], str]:
    return lambda value: f"{figures.digits(value * factor)} {unit}"


def _size(value: float) -> str:
    return figures.size(round(value))


_GAUGES = (
    _Gauge(re.compile(r"gpu\.(\d+)\.clock(?:_sm)?_mhz"), 0.02, 15, "the clock of GPU {name} {verb}", _plain("MHz")),
    _Gauge(re.compile(r"gpu\.(\d+)\.temperature_c"), 0.05, 4, "the temperature of GPU {name} {verb}", _plain("°C")),
    _Gauge(re.compile(r"gpu\.(\d+)\.power_w"), 0.1, 10, "the power of GPU {name} {verb}", _plain("W")),
    _Gauge(re.compile(r"gpu\.(\d+)\.memory_used_bytes"), 0.05, 2e8, "memory in use on GPU {name} {verb}", _size),
    _Gauge(re.compile(r"gpu\.(\d+)\.others_bytes"), 0.05, 2e8, "memory of others on GPU {name} {verb}", _size),
    _Gauge(re.compile(r"cpu\.others"), 0.2, 25, "what other processes take of the CPU {verb}", _plain("cores", 0.01)),
    _Gauge(re.compile(r"run\.cpu_pct"), 0.2, 25, "what the run itself takes of the CPU {verb}", _plain("cores", 0.01)),
    _Gauge(re.compile(r"memory\.swap_used_bytes"), 0.1, 5e7, "swap in use {verb}", _size),
    _Gauge(re.compile(r"memory\.available_bytes"), 0.2, 5e8, "free memory {verb}", _size),
    _Gauge(re.compile(r"run\.disk_read_bytes_s"), 0.3, 1e6, "reading from disk {verb}", lambda v: f"{_size(v)}/s"),
    _Gauge(re.compile(r"run\.disk_write_bytes_s"), 0.3, 1e6, "writing to disk {verb}", lambda v: f"{_size(v)}/s"),
)
_THROTTLE = re.compile(r"gpu\.(\d+)\.throttle\.(\w+)")


def happened(evidence: Evidence, moment: Moment) -> tuple[str, ...]:
    """What changed at the moment, the likeliest first: throttling and clocks, other gauges, then events near it."""
    found = [*_throttling(evidence, moment), *_gauges(evidence, moment), *_events(evidence, moment)]
    return tuple(dict.fromkeys(found))[:MOST]


def _throttling(evidence: Evidence, moment: Moment) -> Iterator[str]:
    for name, series in evidence.telemetry.items():
        match = _THROTTLE.fullmatch(name)
        if match is None or match[2] not in throttling():
            continue
        levels = _around(series, moment)
        if levels is not None and abs(levels[1].mean() - levels[0].mean()) >= 0.5:
            verb = "began to be" if levels[1].mean() > levels[0].mean() else "stopped being"
            yield f"GPU {match[1]} {verb} held back by {throttling()[match[2]]}"


def _gauges(evidence: Evidence, moment: Moment) -> Iterator[str]:
    series = dict(evidence.telemetry)
    rest = others(evidence)
    if rest is not None:
        series["cpu.others"] = rest
    for gauge in _GAUGES:
        for name, one in series.items():
            match = gauge.pattern.fullmatch(name)
            levels = _around(one, moment) if match else None
            if match is None or levels is None:
                continue
            before, after = (float(np.median(level)) for level in levels)
            noise = max(float(np.median(np.abs(level - np.median(level)))) for level in levels)
            if abs(after - before) >= max(gauge.least, gauge.share * abs(before), 4 * noise):
                card = match[1] if gauge.pattern.groups else ""
                words = gauge.words.format(name=card, verb="rose" if after > before else "fell")
                yield f"{words} from {gauge.unit(before)} to {gauge.unit(after)}"


def _around(series: Series, moment: Moment) -> tuple[Floats, Floats] | None:
    """The values of equally long stretches before and after the moment, as far as both levels go; None if too few."""
    begin, at, end = moment
    reach = max((FEWEST_SAMPLES + 1) * SAMPLED_S, min(at - begin, end - at))
    known = np.isfinite(series.values)
    t, values = series.t[known], series.values[known]
    before, after = values[(t >= at - reach) & (t < at)], values[(t > at) & (t <= at + reach)]
    # The first sample after a change still averages over the time before it: rates are since the sample before.
    after = after[1:] if len(after) > FEWEST_SAMPLES else after
    return None if min(len(before), len(after)) < FEWEST_SAMPLES else (before, after)


def _events(evidence: Evidence, moment: Moment) -> Iterator[str]:
    begin, at, end = moment
    shorter = min(at - begin, end - at)
    near = max(NEAR * shorter, min(NEAR_S, 0.1 * shorter))
    for compile_ in evidence.compiles:
        if compile_.t - compile_.seconds - near <= at <= compile_.t + near:
            why = f" ({compile_.reason})" if compile_.reason else ""
            yield f"{compile_.name} was compiled again, for {figures.duration(compile_.seconds)}{why}"
    for eval_ in evidence.evals:
        if eval_.t - eval_.seconds - near <= at <= eval_.t + near:
            yield f"an evaluation, {eval_.name}"
    for checkpoint in evidence.checkpoints:
        if abs(checkpoint.t - at) <= near:
            yield "a checkpoint was written"
    for note in evidence.notes:
        if note.level == "warning" and abs(note.t - at) <= near:
            yield f"a warning: {note.text[:120]}"
