"""Shifts inside a run: found where they are, none where there are none, and matched with what happened there."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

import numpy as np
import pytest

from benchmarks.calibration.series import STEPS, ar1
from harness.comparison import Shift, Side
from harness.evidence import Evidence, Floats, Series, Steps
from harness.explain.explain import explain
from harness.explain.measuring.changepoints import changepoints, long_run_deviation
from harness.explain.measuring.measure import measure
from harness.explain.measuring.moments import happened
from harness.explain.measuring.shifts import find_shifts
from harness.records import Checkpoint, Compile, Eval, Note, Result, Run, RunSpec, Value
from harness.steady import steady_state

RUN = Run("r", "", RunSpec("", "", ()), Result("finished", 0), None, None, None)
TOKENS = 1000


def evidence(slowness: Floats, **parts: object) -> Evidence:
    """A run of one device, ``slowness`` the logarithm of its steps' seconds a tenth."""
    seconds = 0.1 * np.exp(slowness)
    n = len(seconds)
    whole = np.ones(n, dtype=np.int64)
    steps = Steps(np.cumsum(seconds), np.arange(1, n + 1), 0 * whole, seconds, TOKENS * whole, 0 * whole, {}, ("cpu",))
    given: dict[str, object] = {"facts": {}, "steps": {"trainer": steps}, "end": float(steps.t[-1]), **parts}
    return Evidence(RUN, **given)  # type: ignore[arg-type]


def shifts(slowness: Floats, **parts: object) -> tuple[Shift, ...]:
    found = evidence(slowness, **parts)
    return find_shifts(found, steady_state(found.steps["trainer"], found.compiles))


def noise(n: int, seed: int = 0, phi: float = 0.5, sigma: float = 0.02) -> Floats:
    return ar1(np.random.default_rng(seed), n, phi, sigma)


# --- found -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [60, 400, 5_000, 100_000])
def test_a_run_that_slows_half_way(n: int) -> None:
    series = noise(n)
    series[n // 2 :] += 0.3
    (found,) = shifts(series)
    assert abs(found.step - (n // 2 + 1)) <= 3
    assert found.until is None
    assert found.before == pytest.approx(TOKENS / 0.1, rel=0.03)
    assert found.after == pytest.approx(TOKENS / 0.1 * np.exp(-0.3), rel=0.03)


def test_the_moment_is_the_begin_of_the_first_slow_step() -> None:
    series = np.zeros(1000) + noise(1000, sigma=1e-4)
    series[700:] += 0.5
    (found,) = shifts(series)
    assert found.step == 701
    assert found.t == pytest.approx(70.0, rel=1e-3)


def test_a_slow_stretch_ends_and_is_one_shift() -> None:
    series = noise(4000)
    series[2600:3400] += 0.25
    (found,) = shifts(series)
    assert abs(found.step - 2601) <= 3
    assert found.until == pytest.approx(float(np.cumsum(0.1 * np.exp(series))[3399]), rel=0.01)


def test_three_levels_are_two_shifts_and_speeding_up_is_one_too() -> None:
    series = noise(4000)
    series[1000:] += 0.2
    series[3000:] -= 0.6
    slower, faster = shifts(series)
    assert slower.after < slower.before
    assert faster.after > faster.before
    assert (slower.until, faster.until) == (None, None)


def test_stalls_that_begin_half_way_are_a_shift_though_most_steps_are_as_before() -> None:
    series = noise(6000)
    series[3000::4] += 1.5  # each fourth step waits for data
    (found,) = shifts(series)
    assert abs(found.step - 3001) <= 20


def test_sequences_of_uneven_length_do_not_hide_a_shift() -> None:
    dice = np.random.default_rng(1)
    tokens = dice.integers(200, 2000, 5000)
    slowness = np.log(tokens * 1e-4) + noise(5000) + np.where(np.arange(5000) < 2500, 0.0, 0.18)
    seconds: Floats = np.exp(slowness, dtype=np.float64)
    t: Floats = np.cumsum(seconds)
    steps = Steps(t, np.arange(1, 5001), 0 * tokens, seconds, tokens, 0 * tokens, {}, ("cpu",))
    (found,) = find_shifts(Evidence(RUN, {}), steady_state(steps, ()))
    assert abs(found.step - 2501) <= 15


def test_outliers_hide_no_shift() -> None:
    series = STEPS["outliers, 1 in 100"](np.random.default_rng(3), 2000)
    series[1300:] += 0.06
    (found,) = shifts(series)
    assert abs(found.step - 1301) <= 20


# --- not found -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STEPS)
def test_steady_series_have_no_shift(name: str) -> None:
    """The rate is measured by ``benchmarks.calibration``: here a few of each kind, as a guard."""
    dice = np.random.default_rng(7)
    false = sum(bool(shifts(STEPS[name](dice, 2000))) for _ in range(8))
    assert false <= 1


def test_a_rare_stall_of_many_steps_length_is_no_shift() -> None:
    dice = np.random.default_rng(5)
    for _ in range(5):
        assert shifts(0.02 * dice.standard_normal(20_000) + np.where(dice.random(20_000) < 0.005, 4.0, 0.0)) == ()


def test_a_lone_block_far_off_is_no_shift() -> None:
    series = noise(400)
    series[100] += 9.0
    assert changepoints(series, 0.02) == []


@pytest.mark.parametrize("shape", [lambda x: 0.3 * x, lambda x: 0.3 * x**2, lambda x: 0.2 * np.sin(6 * x)])
def test_slow_drift_is_no_shift(shape: Callable[[Floats], Floats]) -> None:
    assert shifts(shape(np.linspace(0, 1, 4000)) + noise(4000)) == ()


@pytest.mark.parametrize("n", [0, 1, 7, 30])
def test_a_run_too_short_to_tell_has_none(n: int) -> None:
    whole = np.ones(n, dtype=np.int64)
    seconds: Floats = np.full(n, 0.1)
    steps = Steps(np.cumsum(seconds), np.arange(1, n + 1), 0 * whole, seconds, whole, 0 * whole, {}, ("cpu",))
    if n:
        assert find_shifts(Evidence(RUN, {}), steady_state(steps, ())) == ()
    assert changepoints(noise(n) if n else np.empty(0), 0.02) == []


def test_a_change_of_a_hundredth_is_not_worth_a_word() -> None:
    series = noise(20_000, sigma=0.005)
    series[10_000:] += 0.01
    assert shifts(series) == ()


def test_equal_values_have_none_and_a_jump_among_them_one() -> None:
    assert changepoints(np.zeros(100), 0.02) == []
    assert changepoints(np.repeat([0.0, 0.5], 50), 0.02) == [50]


# --- the pieces, against what is known -------------------------------------------------------------------


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.8])
def test_the_long_run_deviation_of_an_autoregressive_series(phi: float) -> None:
    """sigma sqrt((1 + phi) / (1 - phi)), from its autocovariances; jumps do not move it."""
    truth = 0.02 * np.sqrt((1 + phi) / (1 - phi))
    series = noise(4000, seed=2, phi=phi)
    assert long_run_deviation(series) == pytest.approx(truth, rel=0.35)
    series[2000:] += 1.0
    assert long_run_deviation(series) == pytest.approx(truth, rel=0.35)


# --- matched ---------------------------------------------------------------------------------------------

T = np.arange(0.0, 400.0, 2.0)


def step_at(before: float, after: float, at: float = 200.0, wobble: float = 0.0) -> Series:
    values = np.where(at > T, before, after) + wobble * np.sin(7 * T)
    return Series(T, values)


@pytest.mark.parametrize(
    ("telemetry", "words"),
    [
        ({"gpu.3.clock_sm_mhz": step_at(2400, 1350, wobble=20)}, "the clock of GPU 3 fell from 2400 MHz to 1350 MHz"),
        ({"gpu.3.throttle.power_cap": step_at(0, 1)}, "GPU 3 began to be held back by its power limit"),
        ({"gpu.3.throttle.power_cap": step_at(1, 0)}, "GPU 3 stopped being held back by its power limit"),
        ({"gpu.0.temperature_c": step_at(61, 83)}, "the temperature of GPU 0 rose from 61.0 °C to 83.0 °C"),
        ({"memory.swap_used_bytes": step_at(0, 2.1e9)}, "swap in use rose from 0 bytes to 2.1 GB"),
        (
            {"cpu.use_pct": step_at(30, 90), "run.cpu_pct": step_at(220, 220)},
            "what other processes take of the CPU rose from 0.200 cores to 5.00 cores",
        ),
    ],
)
def test_telemetry_that_changed_with_it(telemetry: Mapping[str, Series], words: str) -> None:
    facts: dict[str, Value] = {"environment.cpu.count": 8}
    wobbling = {"gpu.1.clock_sm_mhz": step_at(2400, 2400, wobble=30), "gpu.1.throttle.idle": step_at(0, 1)}
    found = happened(Evidence(RUN, facts, telemetry={**telemetry, **wobbling}), (0.0, 200.0, 400.0))
    assert found == (words,)


def test_a_gauge_that_wavers_by_more_than_it_moved_is_not_named() -> None:
    wavering = Series(T, np.where(T < 200.0, 60.0, 65.0) + np.where(np.arange(len(T)) % 2, 5.0, -5.0))
    assert happened(Evidence(RUN, {}, telemetry={"gpu.0.temperature_c": wavering}), (0.0, 200.0, 400.0)) == ()


def test_telemetry_that_changed_at_another_time_is_not_named() -> None:
    late = {"gpu.0.clock_sm_mhz": step_at(2400, 1350, at=320.0), "gpu.0.power_w": Series(T[:2], np.array([1.0, 900.0]))}
    assert happened(Evidence(RUN, {}, telemetry=late), (0.0, 200.0, 400.0)) == ()


def test_events_at_the_moment() -> None:
    found = Evidence(
        RUN,
        {},
        compiles=(Compile(5.0, "drafter", 60.0), Compile(201.0, "drafter", 4.0, reason="a new shape")),
        evals=(Eval(100.0, "step"), Eval(200.5, "step", seconds=2.0)),
        checkpoints=(Checkpoint(30.0, "a"), Checkpoint(199.0, "b")),
        notes=(Note(201.0, "the loader fell behind", "warning"), Note(201.0, "hello")),
    )
    assert happened(found, (150.0, 200.0, 400.0)) == (
        "drafter was compiled again, for 4.00 s (a new shape)",
        "an evaluation, step",
        "a checkpoint was written",
        "a warning: the loader fell behind",
    )


def test_a_shift_says_what_happened_at_its_moment() -> None:
    series = noise(4000, sigma=0.005)
    series[2000:] += 0.4
    clocks = {"gpu.0.clock_sm_mhz": step_at(2400, 1600), "gpu.0.throttle.software_thermal": step_at(0, 1)}
    (found,) = shifts(series, telemetry=clocks)
    assert found.matched == (
        "GPU 0 began to be held back by its temperature",
        "the clock of GPU 0 fell from 2400 MHz to 1600 MHz",
    )


def test_an_event_that_is_near_in_seconds_and_far_for_so_short_a_run_is_not_named() -> None:
    after = Evidence(RUN, {}, evals=(Eval(3.5, "after"),))
    assert happened(after, (0.5, 2.0, 3.5)) == ()


def test_a_run_that_slows_half_way_is_slower_and_not_merely_noisy() -> None:
    slow = noise(600)
    slow[300:] += 0.5
    before, after = (Side(name, (measure(evidence(s)),)) for name, s in (("a", noise(600, seed=4)), ("b", slow)))
    found = explain(before, after).throughput
    assert (found.verdict, found.basis, found.spread) == ("SLOWER", "assumed", 0.05)


def test_the_order_of_levels_is_the_order_of_time() -> None:
    series = noise(8000, sigma=0.01)
    for i in range(1, 8):
        series[i * 1000 :] += 0.1
    found = shifts(series)
    assert all(a.t < b.t for a, b in itertools.pairwise(found))
    assert [round(shift.step, -1) for shift in found] == [1000 * i for i in range(1, 8)]
