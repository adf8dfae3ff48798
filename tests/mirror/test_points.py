"""A run's metric points depend on its files alone, are few, and drop nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.mirror.ended import cache_points, summary_points
from harness.mirror.points import DENSE, EventPoints, Point, TelemetryPoints, bucket
from harness.records import CacheState, Compile, Eval, Event, Interval, Step, Summary


def step(number: int, seconds: float = 0.5, tokens: int = 1000, device: str = "cuda:5", **more: float) -> Step:
    phases = {"target": seconds * 0.4, "forward": seconds * 0.6}
    return Step(number * 1.0, number, "drafter", device, seconds, tokens, 0, phases, more)


def points_of(events: Iterable[Event]) -> list[Point]:
    work = EventPoints()
    return [point for event in events for point in work.feed(event)] + list(work.close())


def test_a_point_for_each_of_the_first_steps_then_500_for_each_doubling() -> None:
    kept = {bucket(n) for n in range(1, 16_001)}
    assert sorted(kept)[:DENSE] == list(range(1, DENSE + 1))
    for low in (1000, 2000, 4000, 8000):
        assert sum(low < n <= 2 * low for n in kept) == 500
    assert bucket(1001) == 1002
    assert bucket(2001) == 2004
    assert bucket(1_000_000) == 1_000_000 + (-1_000_000) % 1024


@given(st.integers(1, 10**9))
def test_a_bucket_holds_its_step_and_buckets_do_not_overlap(n: int) -> None:
    assert n <= bucket(n) < n + max(1, n / 250)
    assert bucket(bucket(n)) == bucket(n)
    assert bucket(n) <= bucket(n + 1)


def test_no_token_and_no_second_is_lost_by_thinning() -> None:
    total = 3777
    seconds = [0.1 + (n % 7) / 100 for n in range(1, total + 1)]
    points = points_of(step(n, seconds[n - 1], tokens=n) for n in range(1, total + 1))
    speeds = [p for p in points if p.key == "throughput/ktok_s"]
    walls = {p.step: p.value / 1000 for p in points if p.key == "phase/step_ms"}
    starts = [0, *(p.step for p in speeds)]
    spans = [end - start for start, end in pairwise(starts)]
    assert starts[-1] == total
    taken = [walls[p.step] * span for p, span in zip(speeds, spans, strict=True)]
    assert math.isclose(sum(taken), sum(seconds), rel_tol=1e-9)
    tokens = sum(1000 * p.value * s for p, s in zip(speeds, taken, strict=True))
    assert math.isclose(tokens, total * (total + 1) / 2, rel_tol=1e-9)


def test_devices_of_a_role_work_side_by_side() -> None:
    events = [step(n, 0.5, 1000, device) for n in (1, 2) for device in ("cuda:5", "cuda:6", "cuda:7")]
    speeds = {p.step: p.value for p in points_of(events) if p.key == "throughput/ktok_s"}
    assert speeds == pytest.approx({1: 6.0, 2: 6.0})


def test_a_role_that_counts_no_tokens_has_a_prefix() -> None:
    target = Step(1.0, 1, "target", "cuda:0", 0.2, 0, 0, {"wait": 0.05, "target": 0.15}, {})
    named = {p.key: p.value for p in points_of([step(1), target])}
    assert named["target/phase_wait_ms"] == pytest.approx(50)
    assert named["phase/target_ms"] == pytest.approx(200)


def test_a_loss_that_is_not_a_number_stays_visible() -> None:
    broken = Step(1.0, 1, "drafter", "cpu", 0.1, 5, 0, {}, {"loss": None})  # type: ignore[dict-item]
    (loss,) = [p.value for p in points_of([broken]) if p.key == "loss"]
    assert math.isnan(loss)


def test_accept_length_runs_from_before_to_after() -> None:
    events: list[Event] = [
        Eval(1.0, "before", {"accept_length": 1.0, "accuracy_1": 0.1}, lossless=True),
        Eval(1.5, "repeat_anchor", {"accept_length": 1.4, "accept_length_run": 2.9}),
        step(1),
        step(2),
        Eval(9.0, "after", {"accept_length": 2.3}, lossless=False),
    ]
    found = {(p.key, p.step): p.value for p in points_of(events) if "phase" not in p.key and "through" not in p.key}
    assert found == {
        ("accept_length", 0): 1.0,
        ("accept_length", 2): 2.3,
        ("eval/accuracy_1", 0): 0.1,
        ("eval/lossless", 0): 1.0,
        ("eval/lossless", 2): 0.0,
        ("baseline/repeat_anchor", 0): 1.4,
        ("baseline/repeat_anchor_accept_length_run", 0): 2.9,
    }


def test_compile_seconds_add_up() -> None:
    found = points_of([Compile(1.0, "a", 3.0, step=1), Compile(2.0, "b", 0.5, step=7)])
    assert [(p.step, p.value) for p in found] == [(1, 3.0), (7, 3.5)]


@given(st.lists(st.floats(0.01, 2.0), min_size=1, max_size=60), st.data())
def test_reading_in_pieces_changes_nothing(seconds: list[float], data: st.DataObject) -> None:
    events = [step(n, s, loss=s) for n, s in enumerate(seconds, 1)]
    cut = data.draw(st.integers(0, len(events)))
    pieces = EventPoints()
    sent = [p for e in events[:cut] for p in pieces.feed(e)]
    sent += [p for e in events[cut:] for p in pieces.feed(e)]
    assert sent + list(pieces.close()) == points_of(events)


def test_telemetry_is_named_for_its_place_and_counts_megabytes() -> None:
    work = TelemetryPoints()
    gpu = {"index": 0, "clock_sm_mhz": 2100, "throttle": "sw_power_cap", "memory_used_bytes": 5_000_000}
    sample = {"schema": 1, "t": 4.2, "cpu": {"use_pct": 50.0}, "disk": {"read_bytes_s": 2_000_000}, "gpus": [gpu]}
    assert {p.key: (p.value, p.step) for p in work.feed(sample)} == {
        "system/cpu_use_pct": (50.0, 4),
        "system/disk_read_mb_s": (2.0, 4),
        "system/gpu0_clock_sm_mhz": (2100.0, 4),
        "system/gpu0_throttled": (1.0, 4),
        "system/gpu0_memory_used_mb": (5.0, 4),
    }


def test_figures_of_the_whole_run() -> None:
    summary = Summary(throughput_tok_s=Interval(21_500, 21_000, 22_000), first_step_s=3.0, compile_s=1.5)
    found = {p.key: p.value for p in summary_points(summary, 9.0, 100)}
    assert found["throughput/steady_ktok_s"] == 21.5
    assert found["time/first_step_s"] == 3.0
    assert "throughput/whole_run_ktok_s" not in found  # unknown is absent, not zero


def test_cache_kinds_are_inductors_or_tritons() -> None:
    kinds = {"fxgraph": {"bytes": 1_000_000, "entries": 1}, "inductor": {"bytes": 2_000_000, "entries": 2}}
    state = CacheState(7_000_000, 4, {**kinds, "triton": {"bytes": 4_000_000, "entries": 1}})
    found = {p.key: p.value for p in cache_points(state, 0.0, 0)}
    assert found == {"cache/total_mb": 7.0, "cache/inductor_mb": 3.0, "cache/triton_mb": 4.0, "cache/entries": 4.0}
    assert cache_points(None, 0.0, 0) == []


def test_a_cold_cache_begins_at_zero() -> None:
    found = {p.key: p.value for p in cache_points(CacheState(0, 0), 0.0, 0)}
    assert found == {"cache/total_mb": 0.0, "cache/inductor_mb": 0.0, "cache/triton_mb": 0.0, "cache/entries": 0.0}
