"""The page's plots can be read back: what is drawn is what was measured."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.comparison import Side
from harness.view.curves import spans
from harness.view.report import lanes, plots, stacks
from tests import explanations


def value_at(pair: str, time: plots.Clock, scale: plots.Scale) -> tuple[float, float]:
    x, y = map(int, pair.split(","))
    return x / plots.WIDE * time.end, scale.high - y / plots.HIGH * (scale.high - scale.low)


def test_throughput_is_drawn_as_it_was_and_broken_where_nothing_was_trained() -> None:
    e = explanations.dense_fallback()
    time = plots.clock(e)
    assert time
    plot = plots.throughput(e, time)
    assert plot
    line = next(line for line in plot.lines if line.side == "before")
    drawn = [value_at(pair, time, plot.scale) for piece in line.pieces for pair in piece.split()]
    profile = e.before.runs[0].profile
    assert len(line.pieces) == 2  # an evaluation half-way
    for (t, value), (begin, end), rate in zip(drawn, spans(profile), profile.rate, strict=True):
        assert value == pytest.approx(rate / 1000, abs=plot.scale.high / plots.HIGH)
        assert t == pytest.approx((begin + end) / 2, abs=time.end / plots.WIDE)


def test_a_long_first_block_is_level_and_no_slant() -> None:
    """Nothing was measured between a first step that compiles and the next block: no line may climb from one to it."""
    e = explanations.dense_fallback()
    run = e.before.runs[0]
    profile = replace(
        run.profile,
        t=(30.0, 31.0, 32.0, 33.0),
        rate=(700.0, 21_000.0, 21_500.0, 21_200.0),
        phases={"forward": (28.0, 1.0, 1.0, 1.0)},
        steady=(False, True, True, True),
    )
    e = replace(e, before=Side("", (replace(run, profile=profile),)), after=Side("", ()))
    time = plots.clock(e)
    assert time
    plot = plots.throughput(e, time)
    assert plot
    (line,) = plot.lines
    first, second = ([value_at(pair, time, plot.scale) for pair in piece.split()] for piece in line.pieces)
    assert [t for t, _ in first] == pytest.approx([2.0, 30.0], abs=time.end / plots.WIDE)
    assert first[0][1] == first[1][1] == pytest.approx(0.7, abs=plot.scale.high / plots.HIGH)
    assert min(value for _, value in second) > 20


def test_layers_stack_to_one_over_the_throughput() -> None:
    e = explanations.different_work()
    time = plots.clock(e)
    assert time
    before, after = stacks.stacks(e, time, stacks.colours(e))
    assert before.scale == after.scale
    for stack, rate in ((before, 21.5), (after, 12.8)):
        tops = [value_at(pair, time, stack.scale)[1] for pair in stack.layers[-1].points.split()]
        assert sorted(tops)[len(tops) // 2] == pytest.approx(1000 / rate, rel=0.03)
        for below, above in pairwise(stack.layers):
            lower, upper = ([int(p.split(",")[1]) for p in layer.points.split()] for layer in (below, above))
            assert all(high <= low for low, high in zip(lower, upper, strict=True))


def test_of_a_group_one_run_stands_out_and_shifts_name_their_run() -> None:
    e = explanations.groups(1.3)
    time = plots.clock(e)
    assert time
    plot = plots.throughput(e, time)
    assert plot
    assert [line.faint for line in plot.lines].count(False) == 2
    assert not plot.lines[-1].faint
    (flag,) = plot.flags
    assert flag.text.startswith("after, b3, from")
    assert "GPU 3 began to throttle" in flag.text


@given(st.lists(st.tuples(st.floats(0, 1e4), st.floats(-1e6, 1e6)), min_size=1, max_size=300), st.integers(1, 100))
def test_thinning_keeps_few_points_between_the_extremes(values: list[tuple[float, float]], most: int) -> None:
    kept = plots.thin(values, most)
    assert 1 <= len(kept) <= most
    assert all(min(v for _, v in values) - 1e-6 <= v <= max(v for _, v in values) + 1e-6 for _, v in kept)
    if len(values) <= most:
        assert kept == values


@given(st.floats(1e-6, 1e9), st.floats(0, 0.9))
def test_a_scale_has_few_round_ticks_inside_it(high: float, part: float) -> None:
    scale = plots.scale_to(high, part * high)
    assert 1 <= len(scale.ticks) <= 5
    assert all(0 <= tick.at <= 100 for tick in scale.ticks)


def test_devices_share_a_lane_and_what_differs_most_comes_first() -> None:
    e = explanations.dense_fallback()
    slow = e.after.runs[0]
    halved = tuple(
        replace(lane, values=tuple(v / 2 for v in lane.values)) if lane.name == "gpu.3.clock_sm_mhz" else lane
        for lane in slow.lanes
    )
    e = replace(e, after=replace(e.after, runs=(replace(slow, lanes=halved),)))
    time = plots.clock(e)
    assert time
    found = lanes.strips(e, time)
    assert (found[0].title, found[0].unit, len(found[0].lines)) == ("GPU clock sm", "MHz", 16)
    assert {strip.unit for strip in found} == {"MHz", "W", "GB", "%", "MB/s"}
    (before, after) = found[0].rows
    assert float(after[2]) < 0.6 * float(before[2])  # the lowest value shows the one card
    assert sum(len(line.pieces[0].split()) for strip in found for line in strip.lines) <= lanes.POINTS
