"""The page says the right figures: its sentence, waterfalls, bars, rulers and facts."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from harness.comparison import Explanation, Judgement, Measured, Side
from harness.records import Interval, Value
from harness.view.report import facts, page, plots, stacks
from tests import explanations
from tests.view.pages import paged, rows_of, said


def test_the_sentence_and_the_verdict_come_first() -> None:
    found = paged(explanations.dense_fallback())
    e = explanations.dense_fallback()
    heads = [said(tag) for tag in found.tags if tag.name in ("h1", "h2")]
    assert heads[0].replace("\u00a0", " ") == e.sentence
    assert heads[1:5] == ["Throughput", "Time to the first step", "Is it the same work?", "Where the time went"]
    assert said(found.all("title")[0]).startswith("SLOWER: @good →")


def test_what_interrupted_training_is_told_beside_the_waterfall() -> None:
    told = [said(tag).replace("\u00a0", " ") for tag in paged(explanations.dense_fallback()).all("p")]
    interrupted = "between the steps: 0 % of the time before, 31 % after; compile: 20 % of the time before, 10 % after"
    assert f"What interrupted training: {interrupted}." in told


def test_the_waterfall_ends_on_the_measured_figure() -> None:
    rows = rows_of(paged(explanations.different_work()), "waterfall")
    assert rows[1][:4] == ["before", "", "", "21.5"]
    assert rows[-1][:4] == ["after", "", "", "12.8"]
    assert [row[0] for row in rows[2:4]] == ["forward", "backward"]
    assert all(row[2] for row in rows[2:-1])
    assert "share" not in rows_of(paged(explanations.groups()), "waterfall")[0]


def test_the_pieces_of_the_waterfall_hang_together() -> None:
    e = explanations.different_work()
    (fall,) = page._waterfalls(e)
    before, *steps, after = fall.steps
    assert (before.width, after.width) == pytest.approx((100, 100 * 12.8 / 21.5), abs=0.1)
    for one, next_ in pairwise((before, *steps)):
        assert next_.start == one.end
    for step in steps:
        assert {step.left, round(step.left + step.width, 2)} == {min(step.start, step.end), max(step.start, step.end)}


def test_the_bars_of_steady_state_are_as_long_as_work_took() -> None:
    e = explanations.different_work()
    bars = stacks.steady_bars(e, stacks.colours(e))
    assert bars
    lengths = {side: sum(s.width for s in segments) for side, segments in bars.bars.items()}
    assert lengths["after"] == pytest.approx(100)
    assert lengths["before"] == pytest.approx(100 * 12.8 / 21.5, rel=0.01)
    *_, total = bars.rows
    assert (total.before, total.after) == ("46.5", "78.1")
    assert stacks.steady_bars(explanations.crashed(), {}) is None


def test_a_crash_has_its_lines_and_its_end_and_the_series_up_to_it() -> None:
    e = explanations.crashed()
    found = paged(e)
    assert "Detected that you are using FX" in said(found.all("pre")[0])
    assert "https://github.com/pytorch/pytorch/issues/126024" in [tag.attributes["href"] for tag in found.all("a")]
    time = plots.clock(e)
    assert time
    plot = plots.throughput(e, time)
    assert plot
    (flag,) = plot.flags
    assert (flag.kind, flag.side) == ("end", "after")
    last = [int(pair.split(",")[0]) for line in plot.lines if line.side == "after" for pair in line.pieces[-1].split()]
    assert last[-1] <= 100 * flag.at
    assert len(found.all("polyline")) > 2


def test_the_margin_has_three_digits() -> None:
    e = explanations.dense_fallback()
    e = replace(e, throughput=replace(e.throughput, margin=0.340025))
    assert "shaded: the same within 34 %" in said(paged(e).all("section", "verdicts")[0]).replace("\u00a0", " ")


def test_a_ruler_has_no_room_for_what_is_not_a_ratio() -> None:
    def of(low: float, value: float, high: float) -> page.Ruler | None:
        return page.ruler(Judgement("throughput", "UNKNOWN", "none", Interval(value, low, high), margin=0.02))

    assert of(0.0, 0.5, 0.6) is None
    assert of(0.9, 1.0, float("inf")) is None
    found = of(0.5, 0.6, 0.7)
    assert found
    assert 0 < found.low < found.value < found.high < found.margin_low < found.same < found.margin_high < 100


def sides(before: dict[str, Value], *after: dict[str, Value]) -> Explanation:
    def run(known: dict[str, Value]) -> Measured:
        return replace(explanations.nothing().before.runs[0], facts=known)

    return replace(explanations.nothing(), before=Side("a", (run(before),)), after=Side("b", tuple(map(run, after))))


def test_the_fact_table_tells_what_differs_what_varies_and_what_is_not_known() -> None:
    table = facts.fact_table(
        sides(
            {"workload.a": 1, "workload.b": True, "execution.c": "x", "state.bytes": 353_000_000, "execution.d": ""},
            {"workload.a": 1, "workload.b": 1, "execution.c": "x", "execution.d": ""},
            {"workload.a": 1, "workload.b": 1, "execution.c": "y", "execution.d": ""},
        )
    )
    assert [(f.name, f.before, f.after) for f in table.rows if f.differs] == [
        ("workload.b", "true", "1"),
        ("execution.c", "x", "x, y"),
        ("state.bytes", "353 MB", ""),
    ]
    assert [(f.name, f.before) for f in table.rows if not f.differs] == [("workload.a", "1"), ("execution.d", '""')]
    assert table.kinds == ("workload", "execution", "state")


def test_a_ruler_has_room_for_a_margin_of_more_than_all() -> None:
    """A first step of half a second may come two seconds later and count as the same; margins are factors."""
    ruler = page.ruler(Judgement("first step", "SAME", "assumed", Interval(1.2, 0.8, 1.8), margin=2.2))
    assert ruler is not None
    assert 0 < ruler.margin_low < ruler.low < ruler.same < ruler.value < ruler.high < ruler.margin_high < 100
    assert ruler.margin_low + ruler.margin_high == pytest.approx(2 * ruler.same, abs=0.1)
