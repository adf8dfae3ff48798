"""The page that ``explain --html`` writes: one file, no network, no storage, nothing in it that a fact could start.

Facts, names and log lines are untrusted. The template escapes them, links only what begins with https://, and a content
policy lets no script run but this page's own, known by its hash, so that an escape that was forgotten does nothing.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from harness import figures
from harness.comparison import Contribution, Explanation, Judgement
from harness.view import words
from harness.view.curves import representative
from harness.view.report import facts, lanes, plots, stacks
from harness.view.waterfall import NEGLIGIBLE, falls

HERE = Path(__file__).parent

UNIT = re.compile(r"(?<=\d) (?=(%|Ktok/s|[KMG]B|steps/s|ms|s)(\W|$))")
"""The space between a number and its unit, where a line may not break."""

FIRST_LANES = 6
"""Lanes that are open; the others are a click away."""


def report(e: Explanation) -> str:
    """``e`` as a whole HTML document. Read in light and dark, by keyboard, by screen readers, and on paper."""
    script = (HERE / "script.js").read_text("utf-8")
    time = plots.clock(e)
    classes = stacks.colours(e)
    return (
        _environment()
        .get_template("page.html")
        .render(
            e=e,
            words=words,
            figures=figures,
            failures=[run for side in (e.before, e.after) for run in side.failed],
            representative=representative,
            judgements=[(figure, ruler(figure)) for figure in (e.throughput, e.first_step)],
            waterfalls=_waterfalls(e),
            time=time,
            rates=plots.throughput(e, time) if time else None,
            bars=stacks.steady_bars(e, classes),
            stacks=stacks.stacks(e, time, classes) if time else (),
            strips=lanes.strips(e, time) if time else (),
            first_lanes=FIRST_LANES,
            facts=facts.fact_table(e),
            wide=plots.WIDE,
            high=plots.HIGH,
            style=Markup((HERE / "style.css").read_text("utf-8")),
            script=Markup(script),
            policy=f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{_digest(script)}'",
        )
    )


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalized,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _finalized(value: object) -> object:
    """What is written into the page: text without control characters, a unit kept beside its number; or our markup."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return UNIT.sub("\u00a0", words.plain(value))


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


# --- the verdict's ruler ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ruler:
    """A ratio and its interval on a logarithmic ruler, in per cent of its length, with the margin around "the same"."""

    low: float
    value: float
    high: float
    same: float
    margin_low: float
    margin_high: float


def ruler(figure: Judgement) -> Ruler | None:
    """None where there is no ratio, or no interval that a ruler can hold."""
    ratio = figure.ratio
    if ratio is None or not 0 < ratio.low <= ratio.value <= ratio.high < math.inf:
        return None
    margin = max(figure.margin, 1e-3)
    left, right = (
        math.log(pick(ends)) for pick, ends in ((min, (ratio.low, 1 / (1 + margin))), (max, (ratio.high, 1 + margin)))
    )
    pad = 0.08 * (right - left)
    left, right = left - pad, right + pad

    def at(value: float) -> float:
        return round(100 * (math.log(value) - left) / (right - left), 2)

    return Ruler(at(ratio.low), at(ratio.value), at(ratio.high), at(1.0), at(1 / (1 + margin)), at(1 + margin))


# --- the waterfalls --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """A row of a waterfall, spelled. Where its piece of the bar stands, in per cent."""

    name: str
    change: str
    share: str
    level: str
    cost_before: str
    cost_after: str
    left: float
    width: float
    start: float
    end: float
    kind: str  # "total", "worse", "better" or "none"


@dataclass(frozen=True)
class Waterfall:
    title: str
    unit: str
    cost_unit: str
    steps: tuple[Step, ...]
    shares: bool


def _waterfalls(e: Explanation) -> list[Waterfall]:
    named = (
        ("Steady state", e.throughput, e.contributions, figures.rate_unit(e.unit)),
        ("Time to the first step", e.first_step, e.first_step_contributions, ""),
    )
    made = (_waterfall(title, figure, parts, unit, e.unit) for title, figure, parts, unit in named)
    return [waterfall for waterfall in made if waterfall is not None]


def _waterfall(
    title: str, figure: Judgement, contributions: tuple[Contribution, ...], shown: str, unit: str
) -> Waterfall | None:
    steps = falls(figure, contributions, unit)
    if not steps or figure.before is None or figure.after is None:
        return None
    top = max(figure.before, figure.after, *(step.end for step in steps))
    slower_up = figure.figure == "first step"

    def at(value: float) -> float:
        return round(100 * value / top, 2)

    def total(name: str, value: float) -> Step:
        return Step(name, "", "", words.number(figure, value, unit), "", "", 0, at(value), 0, at(value), "total")

    rows = [total("before", figure.before)]
    for step in steps:
        low, high = sorted((step.start, step.end))
        kind = "worse" if (step.change > 0) == slower_up else "better"
        rows.append(
            Step(
                words.plain(step.name),
                words.change_of(figure, step.change, unit),
                "" if step.share is None else figures.percent(step.share),
                words.number(figure, step.end, unit),
                figures.digits(step.cost_before),
                figures.digits(step.cost_after),
                at(low),
                at(high) - at(low),
                at(step.start),
                at(step.end),
                kind if abs(step.change) > NEGLIGIBLE * top else "none",
            )
        )
    rows.append(total("after", figure.after))
    shares = any(row.share for row in rows)
    return Waterfall(title, shown, words.cost_name(figure, unit), tuple(rows), shares)
