"""The figures of a run, against series whose answer is known."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.records import CacheState, Compile, Eval, Event, Note, Started, Step, Summary
from harness.run.summary import MOST_WARNINGS, cache_start, summarise


def series(seconds: Sequence[float], tokens: Sequence[int] | int = 1000, role: str = "drafter") -> list[Event]:
    """Steps one after the other from t = 1."""
    events: list[Event] = [Started(0.5, 1)]
    t = 1.0
    for number, spent in enumerate(seconds, 1):
        t += spent
        count = tokens if isinstance(tokens, int) else tokens[number - 1]
        events.append(Step(t, number, role, "cpu", spent, count, phases={"forward": spent}))
    return events


@given(st.integers(9, 300), st.floats(1e-4, 100), st.integers(1, 10**6))
def test_a_constant_series_gives_its_own_rate_and_no_doubt(count: int, seconds: float, tokens: int) -> None:
    summary = summarise(series([seconds] * count, tokens))
    rate = summary.throughput_tok_s
    assert rate is not None
    assert rate.value == pytest.approx(tokens / seconds)
    assert rate.high - rate.low <= 1e-6 * rate.value
    assert summary.warmup_steps == 1  # the first step, by rule
    assert sum(summary.phases.values()) == pytest.approx(seconds * (count - 1))


def test_the_figures_of_a_literal_series() -> None:
    """Eleven steps: the first two slow, one compile in the middle, 100 tokens each."""
    seconds = [9.0, 4.0, 1.0, 1.2, 0.8, 5.0, 1.0, 1.2, 0.8, 1.0, 1.0]
    events = series(seconds, 100)
    events.insert(7, Compile(events[6].t, "drafter", 3.5, step=6, hits=2, misses=1, reason="a new shape"))
    summary = summarise(events, CacheState(10, 1))
    assert (summary.steps, summary.tokens) == (11, 1100)
    assert summary.warmup_steps == 2
    assert summary.compile_steps == 1
    assert summary.compile_s == 3.5
    assert (summary.cache_hits, summary.cache_misses, summary.cache_start) == (2, 1, "partial")
    assert summary.first_step_s == pytest.approx(10.0)
    assert summary.throughput_tok_s is not None
    assert summary.throughput_tok_s.value == pytest.approx(800 / 8.0)
    assert summary.whole_run_tok_s == pytest.approx(1100 / (1 + sum(seconds)))
    assert summary.warmup_steps + summary.compile_steps + 8 == summary.steps  # nothing is silently dropped


def autoregressive(dice: np.random.Generator, count: int, phi: float) -> list[float]:
    """Step times with a mean of 1 s and a spread of 5 %, each like the one before it."""
    values, noise = [0.0], dice.normal(size=count + 100)
    for shock in noise:
        values.append(phi * values[-1] + shock)
    return [1 + 0.05 * math.sqrt(1 - phi**2) * value for value in values[-count:]]


@pytest.mark.parametrize(
    ("count", "phi", "least"), [(400, 0.0, 0.92), (400, 0.6, 0.92), (1000, 0.8, 0.91), (100, 0.3, 0.87)]
)
def test_the_interval_holds_the_truth_as_often_as_it_says(count: int, phi: float, least: float) -> None:
    dice = np.random.default_rng(20261129)
    held = 0
    for _ in range(300):
        rate = summarise(series(autoregressive(dice, count, phi))).throughput_tok_s
        assert rate is not None
        held += rate.low <= 1000 <= rate.high
    assert held / 300 >= least


def test_successive_steps_that_are_alike_widen_the_interval() -> None:
    dice = np.random.default_rng(1)
    widths = []
    for phi in (0.0, 0.8):
        rates = [summarise(series(autoregressive(dice, 400, phi))).throughput_tok_s for _ in range(40)]
        widths.append(np.mean([rate.high - rate.low for rate in rates if rate]))
    assert widths[1] > 2 * widths[0]  # by theory 3 times: sqrt((1 + 0.8) / (1 - 0.8))


@pytest.mark.parametrize("slow", [5, 20, 60])
def test_a_slow_beginning_is_warm_up_and_a_slow_end_is_not(slow: int) -> None:
    dice = random.Random(slow)
    steady = [dice.gauss(1, 0.02) for _ in range(200)]
    begun = summarise(series([3.0] * slow + steady[slow:]))
    assert slow <= begun.warmup_steps <= slow + 40
    ended = summarise(series(steady[:-slow] + [3.0] * slow))
    assert ended.warmup_steps <= 101
    assert ended.throughput_tok_s is not None
    assert ended.throughput_tok_s.value < 1000 / 1.04


def test_fewer_than_eight_steady_steps_give_no_throughput() -> None:
    assert summarise(series([1.0] * 8)).throughput_tok_s is None
    assert summarise(series([1.0] * 9)).throughput_tok_s is not None


def test_too_few_steps_for_a_throughput_are_too_few_to_say_who_waits() -> None:
    def summary(count: int) -> Summary:
        told: list[Event] = []
        for n in range(1, count + 1):
            told.append(Step(float(n), n, "target", "cpu:0", 1.0, 0, 0, {"target": 0.2, "wait": 0.8}))
            told.append(Step(float(n), n, "drafter", "cpu:1", 1.0, 100, 0, {"forward": 1.0}))
        return summarise(told)

    assert summary(40).bound == "drafter"
    few = summary(4)
    assert (few.throughput_tok_s, few.bound, few.waits, few.devices) == (None, "", {}, ())


def test_devices_add_their_tokens_and_the_slowest_gives_the_seconds() -> None:
    events: list[Event] = []
    for number in range(1, 21):
        for device, spent in (("cuda:5", 1.0), ("cuda:6", 2.0), ("cuda:7", 1.5)):
            step = Step(2.0 * number, number, "drafter", device, spent, 100, 10, {"forward": spent}, {"loss": spent})
            events.append(step)
        events.append(Step(2.0 * number, number, "target", "cuda:0", 9.0, 0, phases={"target": 9.0}))
    summary = summarise(events)
    assert (summary.steps, summary.tokens, summary.padding) == (20, 6000, 600)
    assert summary.throughput_tok_s is not None
    assert summary.throughput_tok_s.value == pytest.approx(300 / 2.0)
    assert summary.phases == pytest.approx({"forward": 2.0 * 19})
    assert summary.loss_last == pytest.approx(1.5)


def test_a_compilation_is_found_by_phase_by_number_and_by_time() -> None:
    events = series([1.0] * 20)
    by_phase = events[5]
    assert isinstance(by_phase, Step)
    events[5] = Step(**{**vars(by_phase), "phases": {"compile": 0.5, "forward": 0.5}})
    events.append(Compile(100.0, "by number", 0.5, step=8))
    events.append(Compile(11.9, "by time", 0.5))  # inside step 11, from 11 to 12
    events.append(Compile(1.0, "before the first step", 0.5))  # ends where the first step begins
    summary = summarise(events)
    assert summary.compile_steps == 3
    assert summary.warmup_steps == 1


def test_evaluations_and_the_lossless_verdict() -> None:
    events: list[Event] = [
        Eval(1.0, "before", {"accept_length": 1.0}, lossless=True),
        Eval(2.0, "step", {"accept_length": 1.5}),
        Eval(3.0, "step", {"accept_length": 1.7}),
        Eval(4.0, "after", {"accept_length": 2.5}, lossless=False),
    ]
    summary = summarise(events)
    assert summary.evals == {n: {"accept_length": v} for n, v in (("before", 1.0), ("step", 1.7), ("after", 2.5))}
    assert summary.lossless is False
    assert summarise(events[:3]).lossless is True
    assert summarise(events[1:3]).lossless is None
    assert summarise([]) == summarise(iter(()))
    assert summarise([]).steps == 0


@pytest.mark.parametrize(
    ("before", "hits", "misses", "start"),
    [
        (None, 5, 0, "unknown"),
        (CacheState(0, 0), 0, 3, "cold"),
        (CacheState(0, 0), 3, 3, "cold"),  # hits on what this very run put there
        (CacheState(9, 9), 3, 0, "warm"),
        (CacheState(9, 9), 3, 1, "partial"),
        (CacheState(9, 9), 0, 4, "cold"),  # what is there is another's
        (CacheState(9, 9), 0, 0, "unknown"),
    ],
)
def test_how_a_cache_started(before: CacheState | None, hits: int, misses: int, start: str) -> None:
    assert cache_start(before, hits, misses) == start


def test_warnings_are_kept_each_once_and_remarks_are_not() -> None:
    said: list[Event] = [Note(1.0, "slow", "warning"), Note(1.5, "hello"), Note(2.0, "slow", "warning")]
    said += [Note(3.0, f"number {n}", "warning") for n in range(100)]
    warnings = summarise(said).warnings
    assert warnings[:2] == ("slow", "number 0")
    assert len(warnings) == len(set(warnings)) == MOST_WARNINGS


def test_a_loss_that_was_not_finite_is_not_a_loss_that_was_not_reported() -> None:
    events = series([1.0] * 4)
    for at, metrics in ((1, {"loss": 2.0}), (3, {"loss": math.nan})):
        events[at] = Step(**{**vars(events[at]), "metrics": metrics})
    summary = summarise(events)
    assert summary.loss_first == 2.0
    assert summary.loss_last is not None
    assert math.isnan(summary.loss_last)
    assert summarise(series([1.0] * 4)).loss_last is None


def test_a_run_that_goes_on_compiling_pays_for_it() -> None:
    """A compilation each ten steps, 1 s in a step of 2 s: 100 tokens in 1.1 s. Two late ones are left out."""
    often, seldom = series([1.0] * 200, 100), series([1.0] * 200, 100)
    for number in range(10, 201, 10):
        step = Step(**{**vars(often[number]), "seconds": 2.0, "phases": {"compile": 1.0, "forward": 1.0}})
        often[number] = step
        if number in (190, 200):
            seldom[number] = step
    kept, left_out = summarise(often), summarise(seldom)
    assert kept.compile_steps == 20
    assert kept.throughput_tok_s is not None
    assert kept.throughput_tok_s.value == pytest.approx(100 / 1.1, rel=5e-3)
    assert kept.phases["compile"] > 10
    assert left_out.compile_steps == 2
    assert left_out.throughput_tok_s is not None
    assert left_out.throughput_tok_s.value == pytest.approx(100.0)
