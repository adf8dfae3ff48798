"""Facts, figures and lists as a person says them. Pure text: nothing is decided here."""

from __future__ import annotations

from collections.abc import Sequence

from harness import figures
from harness.explain.comparing.facts import are_numbers
from harness.records import Value

MOST_NAMES = 3
"""Of a list of files."""

# By the end of a fact's name: the factor, and what is written after the figure.
_UNITS: tuple[tuple[str, float, str], ...] = (
    ("_share", 100.0, " %"),
    ("throttled", 100.0, " %"),
    ("_mhz", 1.0, " MHz"),
    ("_w", 1.0, " W"),
    ("temperature", 1.0, " °C"),
    ("temperature_c", 1.0, " °C"),
    ("_pct", 1.0, " %"),
    ("_per_1000_steps", 1.0, ""),
)


def said(fact: str, value: Value) -> str:
    """The value of a fact with its unit: "353 MB", "63 s", "1,410 MHz", "12 %", "unknown"."""
    if value is None:
        return "unknown"
    if isinstance(value, str) and fact.endswith(".files"):
        names = value.split(", ")
        more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
        return ", ".join(map(figures.shortened, names[:MOST_NAMES])) + more
    if isinstance(value, str) or not are_numbers([value]):
        return "empty" if value == "" else figures.shortened(figures.fact(fact, value))
    number = float(value)
    for ending, factor, unit in _UNITS:
        if fact.endswith(ending):
            return f"{_short(number * factor)}{unit}"
    if number == 0 and "bytes" in fact:
        return "0 bytes"
    if fact.endswith(("compile_s", "eval_s")):
        return figures.duration(number)
    return figures.fact(fact, value)


def listed(names: Sequence[str], last: str = "and") -> str:
    """ "a", "a and b", "a, b and c"."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} {last} {names[-1]}"


def setting(fact: str) -> str:
    """The fact without its kind: "train.batch", "package.torch"."""
    return fact.partition(".")[2]


def _short(number: float) -> str:
    """Three digits that count, and no zeros that say nothing: "902", "1.1", "0.25"."""
    text = figures.digits(number)
    return text.rstrip("0").rstrip(".") if "." in text else text
