"""Throughput over time in one line: no value drawn lower than a lesser one, shifts marked where they are."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.comparison import Profile, Side
from harness.view.curves import binned, representative, spans
from harness.view.explanation import explanation_view
from harness.view.report import plots, stacks
from harness.view.report.page import report
from harness.view.sparkline import LEVELS, over_time, sparkline
from tests import explanations
from tests.measurements import measured
from tests.view.drawing import drawn


def test_a_sparkline_has_a_bar_for_each_value_and_a_gap_for_none() -> None:
    assert sparkline([0, 10, None, 5, 99, -3], 0, 10) == "▁█ ▅█▁"


@given(st.lists(st.one_of(st.none(), st.floats(-1e6, 1e6)), max_size=50))
def test_higher_is_never_drawn_lower(values: list[float | None]) -> None:
    line = sparkline(values, -10.0, 10.0)
    assert len(line) == len(values)
    known = sorted((v, LEVELS.index(c)) for v, c in zip(values, line, strict=True) if v is not None)
    assert [level for _, level in known] == sorted(level for _, level in known)


@given(st.lists(st.floats(0.1, 5.0), min_size=2, max_size=60), st.integers(1, 80))
def test_binning_keeps_the_units(seconds: list[float], count: int) -> None:
    """In one bin it is all units over all seconds; in many it lies between the slowest and the fastest block."""
    ends, rates = [], []
    for n in range(len(seconds)):
        ends.append(sum(seconds[: n + 1]) + 2.0 * n)  # a gap of 2 s between any two
        rates.append(1.0 + n)
    profile = Profile(tuple(ends), tuple(rates), {"forward": tuple(seconds)}, (True,) * len(ends))
    whole = sum(r * s for r, s in zip(rates, seconds, strict=True)) / sum(seconds)
    assert binned(profile, ends[-1], 1) == [pytest.approx(whole)]
    for value in binned(profile, ends[-1], count):
        assert value is None or min(rates) - 1e-6 <= value <= max(rates) + 1e-6
    assert [end - begin for begin, end in spans(profile)] == pytest.approx(seconds, abs=1e-6)


def test_a_shift_is_marked_where_it_is() -> None:
    e = explanations.groups()
    last = e.after.runs[3]
    one = replace(e, after=Side("@one", (last,)))
    text = drawn(explanation_view(one, 100), 100)
    lines = text[text.index("Throughput over time") :].splitlines()
    bars, marks = lines[2], lines[3]
    at = marks.index("^")
    early, late = (bars[at + shift : at + shift + 5] for shift in (-8, 3))
    assert min(LEVELS.index(c) for c in early) > max(LEVELS.index(c) for c in late)
    assert "GPU 3 began to throttle" in text
    assert "step 1,200" in text


def test_tokens_and_steps_a_second_share_no_scale() -> None:
    e = explanations.dense_fallback()
    assert over_time(e, 100)
    assert plots.throughput(e, plots.Clock(100.0, ()))
    steps = replace(e.after, runs=(replace(e.after.runs[0], unit="steps"),))
    none = replace(e.throughput, before=None, after=None, ratio=None)
    mixed = replace(e, after=steps, unit="", throughput=none)
    assert over_time(mixed, 100) is None
    assert plots.throughput(mixed, plots.Clock(100.0, ())) is None
    assert "Throughput over time" not in drawn(explanation_view(mixed, 100), 100)
    assert stacks.steady_bars(mixed, {}) is None
    assert "ms per <" not in report(mixed)


def test_the_run_of_middle_speed_stands_for_a_side_and_a_failed_one_before_it() -> None:
    runs = [measured(name, {"forward": cost}) for name, cost in (("slow", 60.0), ("fast", 40.0), ("middle", 50.0))]
    picked = representative(Side("", tuple(runs)))
    assert picked is runs[2]
    failed = explanations.crashed().after.runs[0]
    assert representative(Side("", (*runs, failed))) is failed
    assert representative(Side("", ())) is None
