"""How figures are spelled for people, in one place: the terminal and MLflow's description say the same."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Mapping

from harness.records import CacheState, Interval, Run, Summary, Value

BASELINES = {"repeat_anchor": "repeat the anchor", "ngram": "n-gram lookup"}
"""Untrained drafters that an evaluation is held against, and what a person calls them."""


def digits(value: float, count: int = 3) -> str:
    """``value`` with ``count`` digits that count and no exponent: 21.5, 0.00412, 1234."""
    if value == 0 or abs(value) >= 10 ** (count - 1):
        return f"{value:.0f}"
    text = f"{value:#.{count}g}"
    return f"{value:.{count + 3}f}".rstrip("0") if "e" in text else text.rstrip(".")


def ktok(interval: Interval) -> str:
    """``21.5 Ktok/s [21.2, 21.8]``, from tokens a second."""
    low, high = digits(interval.low / 1000), digits(interval.high / 1000)
    return f"{digits(interval.value / 1000)} Ktok/s [{low}, {high}]"


def rate(value: float, unit: str = "tokens") -> str:
    """``21.5 Ktok/s``, or ``3.21 steps/s`` where a run counted no tokens."""
    return f"{digits(value / 1000 if unit == 'tokens' else value)} {rate_unit(unit)}"


def rate_unit(unit: str) -> str:
    """What ``rate`` counts in: ``Ktok/s``."""
    return "Ktok/s" if unit == "tokens" else f"{unit}/s"


def by_how_much(ratio: float) -> str:
    """A ratio in words: ``40.5 % slower``, ``5.0 times as fast``, for 0.595 and 5.0."""
    word = "slower" if ratio < 1 else "faster"
    if 0.5 <= ratio <= 1.5:
        return f"{digits(100 * abs(1 - ratio), 2 if abs(1 - ratio) < 0.1 else 3)} % {word}"
    return f"{digits(1 / ratio if ratio < 1 else ratio, 2)} times {'slower' if ratio < 1 else 'as fast'}"


def signed(value: float, text: str) -> str:
    """``text``, the spelling of the absolute value, with its sign: ``+0.41``, ``-5.10``."""
    return f"{'-' if value < 0 else '+'}{text}"


def times(ratio: Interval) -> str:
    """``0.595 times [0.588, 0.603]``: after over before, with its interval."""
    return f"{digits(ratio.value)} times [{digits(ratio.low)}, {digits(ratio.high)}]"


def percent(share: float) -> str:
    """A share of a whole: ``40 %``, ``-2 %``."""
    return f"{round(100 * share)} %"


def shares_text(name: str, before: float, after: float) -> str:
    """``compile: 0 % of the time before, 62 % after``."""
    return f"{name}: {percent(before)} of the time before, {percent(after)} after"


def bound_text(waits: Mapping[str, float], bound: str, devices: Mapping[str, int]) -> str:
    """``target-bound: the drafters waited 38 % of the time, the target 2 %``; empty where there are not two roles.

    waits    by role, the share of the time that it waited for another, in the mean over its ``devices``
    """
    if len(waits) < 2:
        return ""
    order = sorted(waits, key=waits.__getitem__, reverse=True)
    names = [f"the {role}{'s' if devices.get(role, 1) > 1 else ''}" for role in order]
    shares = [percent(waits[role]) for role in order]
    others = "".join(f", {name} {share}" for name, share in zip(names[1:], shares[1:], strict=True))
    who = f"{bound}-bound" if bound else "no role holds up the others"
    return f"{who}: {names[0]} waited {shares[0]} of the time{others}"


def roles_text(summary: Summary) -> str:
    """``bound_text`` of a run that has ended, and whether its devices were simulated: they took turns on real ones."""
    said = bound_text(summary.waits, summary.bound, Counter(device.role for device in summary.devices))
    simulated = any(re.fullmatch(r"cpu:\d+", device.device) for device in summary.devices)
    return f"{said} (simulated devices)" if said and simulated else said


def cost_unit(unit: str) -> tuple[str, float]:
    """How the time that work takes is spelled, and its factor from seconds a unit: ("ms per Ktok", 1e6)."""
    return ("ms per Ktok", 1e6) if unit == "tokens" else (f"ms per {unit.removesuffix('s')}", 1e3)


def costs(phases: Mapping[str, float], useful: float, padding: float, unit: str = "tokens") -> dict[str, float]:
    """What a useful unit costs, in ``cost_unit``, by phase; the computing of padding apart, where there was some.

    They sum to one over the throughput. ``phases``: seconds; ``useful``, ``padding``: units that those produced.
    """
    _, factor = cost_unit(unit)
    processed = useful + padding
    by_phase = {name: factor * seconds / processed for name, seconds in phases.items()}
    return by_phase | ({"padding": sum(by_phase.values()) * padding / useful} if padding else {})


LONGEST = 80
"""Characters of a text that is shown whole."""


def shortened(text: str, start: int = 0) -> str:
    """``text``; of a long one ``LONGEST`` characters from ``start`` on, and its length: ``x... (200 characters)``."""
    if len(text) <= LONGEST:
        return text
    start = min(start, len(text) - LONGEST)
    shown = text[start : start + LONGEST]
    more = "..." if start + LONGEST < len(text) else ""
    return f"{'...' if start else ''}{shown}{more} ({len(text):,} characters)"


def fact(name: str, value: Value) -> str:
    """A fact's value for a person: ``353 MB`` for a name that ends in bytes, a digest's first 12 digits, ``true``.

    A text is whole, however long: see ``shortened``.
    """
    if value is None or isinstance(value, bool):
        return {None: "none", True: "true", False: "false"}[value]
    if isinstance(value, int | float):
        if re.search(r"bytes(_s)?$", name) and value >= 1000:
            return size(round(value)) + ("/s" if name.endswith("_s") else "")
        return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"
    return value[:12] if re.fullmatch("[0-9a-f]{40,64}", value) else value


def duration(seconds: float) -> str:
    """``0.42 s``, ``12.3 s``, ``4:05``, ``3:12:07``."""
    if seconds < 60:
        return f"{digits(seconds)} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def clock(seconds: float) -> str:
    """``0:07``, ``12:05``, ``3:12:07``: a figure that ticks."""
    return duration(max(60.0, seconds)) if seconds >= 59.5 else f"0:{round(seconds):02}"


def size(count: int) -> str:
    """``5.4 GB``, ``353 MB``, ``812 bytes``: powers of ten, as disks and package indexes count."""
    for unit, one in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if count >= one:
            return f"{digits(count / one, 2 if count < 10 * one else 3)} {unit}"
    return f"{count} bytes"


def took(run: Run) -> float | None:
    """Seconds that the run took, or has been going; None where nobody saw it end."""
    result = run.result
    end = time.time() if result.status == "running" else result.ended_at
    return None if end is None or not result.started_at else end - result.started_at


def held(state: CacheState | None) -> str:
    """What a compile cache held: ``19.0 MB in 62 entries``."""
    if state is None:
        return "unknown"
    return f"{state.bytes / 1e6:.1f} MB in {state.entries:,} entries" if state.entries else "empty"


def accept_length(summary: Summary, prompts: str = "accept_length") -> dict[str, float | None]:
    """Accept length before and after training, and of the two untrained baselines; None where not evaluated.

    ``prompts``: "accept_length" for those that are continued with no run of one token, "accept_length_run" for others.
    """
    return {name: summary.evals.get(name, {}).get(prompts) for name in ("before", "after", *BASELINES)}


def accept_text(summary: Summary, prompts: str = "accept_length") -> str:
    """``1.02 → 2.31``; empty where the run was not evaluated."""
    accept = accept_length(summary, prompts)
    if accept["before"] is None and accept["after"] is None:
        return ""
    return " → ".join("?" if value is None else f"{value:.2f}" for value in (accept["before"], accept["after"]))


def baseline_text(summary: Summary, prompts: str = "accept_length") -> str:
    """``repeat the anchor 1.44, n-gram lookup 1.61``; empty where neither was evaluated."""
    accept = accept_length(summary, prompts)
    return ", ".join(f"{label} {accept[name]:.2f}" for name, label in BASELINES.items() if accept[name] is not None)


def lossless_text(summary: Summary) -> str:
    """Whether speculative decoding gave the target's own greedy output; empty where nobody looked."""
    return {None: "", True: "lossless", False: "NOT lossless"}[summary.lossless]


def loss_text(summary: Summary) -> str:
    """``5.900 → 1.200``; empty where there was no loss."""
    if summary.loss_first is None or summary.loss_last is None:
        return ""
    return f"{summary.loss_first:.3f} → {summary.loss_last:.3f}"


def counted_text(count: int, one: str, many: str = "") -> str:
    """``1 hit``, ``2 hits``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def compile_text(summary: Summary) -> str:
    """``8.1 s, cold start, 0 hits, 12 misses``; empty where nothing was compiled or loaded."""
    counted = summary.cache_hits + summary.cache_misses + summary.cache_bypasses
    if not summary.compile_s and not counted:
        return ""
    if not counted:  # a backend without a cache
        return duration(summary.compile_s)
    bypasses = f", {counted_text(summary.cache_bypasses, 'bypass', 'bypasses')}" if summary.cache_bypasses else ""
    return (
        f"{duration(summary.compile_s)}, {summary.cache_start} start, "
        f"{counted_text(summary.cache_hits, 'hit')}, {counted_text(summary.cache_misses, 'miss', 'misses')}{bypasses}"
    )
