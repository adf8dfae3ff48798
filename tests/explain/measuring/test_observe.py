"""What series, events and logs show: each observed fact from evidence made by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from harness.evidence import Evidence, Series, Steps
from harness.explain.measuring.observe import observe
from harness.records import Checkpoint, Compile, Eval, Note, Result, Run, RunSpec, Summary, Value

COUNT = 1000
T = np.arange(1, COUNT + 1, dtype=float)  # a step a second, from 0 to 1,000 s


def steps(tokens: int = 900, padding: int = 100, phases: Mapping[str, np.ndarray] | None = None) -> Steps:
    return Steps(
        t=T,
        step=np.arange(1, COUNT + 1),
        device=np.zeros(COUNT, np.int64),
        seconds=np.ones(COUNT),
        tokens=np.full(COUNT, tokens),
        padding=np.full(COUNT, padding),
        phases=phases or {},
        devices=("cuda:0",),
    )


def evidence(**given: object) -> Evidence:
    run = Run("x", "", RunSpec("", "", ()), Result("finished", 0), None, None, None)
    whole: dict[str, object] = {"run": run, "facts": {}, "steps": {"drafter": steps()}, "end": 1000.0, **given}
    return Evidence(**whole)  # type: ignore[arg-type]


def seen(name: str, **given: object) -> Value:
    return observe(evidence(**given), "drafter", (100.0, 1000.0)).get(f"observed.{name}")


def lane(value: float, early: float | None = None, late: float | None = None) -> Series:
    """A sample every two seconds: ``early`` before 100 s, ``late`` from 900 s on."""
    t = np.arange(0, 1000, 2.0)
    values = np.full(len(t), value, dtype=float)
    values[t < 100] = value if early is None else early
    values[t >= 900] = value if late is None else late
    return Series(t, values)


def test_of_steps() -> None:
    assert seen("padding_share") == pytest.approx(0.1)
    assert seen("tokens_per_step") == 900
    assert seen("devices") == 1


def test_padding_is_that_of_the_steady_time() -> None:
    early = replace(steps(), padding=np.where(T < 100, 900, 100))
    assert seen("padding_share", steps={"drafter": early}) == pytest.approx(0.1)


def test_two_devices_of_one_step_are_one_step() -> None:
    one = steps()
    both = replace(
        one,
        t=np.repeat(one.t, 2),
        step=np.repeat(one.step, 2),
        device=np.tile([0, 1], COUNT),
        devices=("cuda:0", "cuda:1"),
        seconds=np.repeat(one.seconds, 2),
        tokens=np.repeat(one.tokens, 2),
        padding=np.repeat(one.padding, 2),
    )
    assert seen("tokens_per_step", steps={"drafter": both}) == 1800
    assert seen("devices", steps={"drafter": both}) == 2


def test_the_role_with_the_most_tokens_counts_where_none_is_named() -> None:
    roles = {"target": steps(tokens=0, padding=0), "drafter": steps()}
    assert observe(evidence(steps=roles))["observed.padding_share"] == pytest.approx(0.1)


def test_compiling_before_the_steady_time_and_after_it() -> None:
    compiles = (
        Compile(20.0, "a", 30.0, hits=1, misses=4),
        Compile(60.0, "b", 3.0, misses=1, bypasses=2),
        Compile(500.0, "c", 2.0, misses=1),
        Compile(501.0, "found", 0.0001, hits=7),
    )
    assert seen("compile_s", compiles=compiles) == 33.0
    assert seen("recompiles", compiles=compiles) == 1
    assert [seen(f"cache.{n}", compiles=compiles) for n in ("hits", "misses", "bypasses")] == [8, 6, 2]


def test_compiling_that_only_a_phase_tells() -> None:
    compile_s = np.where(T == 1, 0.6, 0.0)
    assert seen("compile_s", steps={"drafter": steps(phases={"compile": compile_s})}) == pytest.approx(0.6)
    assert seen("recompiles") == 0


def test_how_the_cache_began_is_told_by_hits_else_by_the_fingerprint() -> None:
    judged = Run(
        "x", "", RunSpec("", "", ()), Result("finished", 0, summary=Summary(cache_start="partial")), None, None, None
    )
    facts = {"state.cache.start": "warm"}
    assert seen("cache_start", run=judged, facts=facts) == "partial"
    assert seen("cache_start", facts=facts) == "warm"


def test_gpu_series_are_medians_over_the_steady_time() -> None:
    telemetry = {
        "gpu.0.clock_sm_mhz": lane(2400, early=500),
        "gpu.1.clock_sm_mhz": lane(1200, late=2400),
        "gpu.2.clock_sm_mhz": lane(2390),
        "gpu.0.temperature_c": lane(60),
        "gpu.1.temperature_c": lane(88),
        "gpu.2.temperature_c": lane(61),
        "gpu.0.power_w": lane(400),
    }
    assert seen("gpu.clock_mhz", telemetry=telemetry) == 2390
    assert seen("gpu.clock_min_mhz", telemetry=telemetry) == 1200
    assert seen("gpu.temperature", telemetry=telemetry) == 88
    assert seen("gpu.power_w", telemetry=telemetry) == 400


def test_a_card_that_does_nothing_has_no_part() -> None:
    telemetry = {
        "gpu.0.clock_sm_mhz": lane(2400),
        "gpu.0.use_pct": lane(95),
        "gpu.1.clock_sm_mhz": lane(210),
        "gpu.1.use_pct": lane(0),
    }
    assert seen("gpu.clock_min_mhz", telemetry=telemetry) == 2400


def test_throttling_is_the_worst_cards_share_and_its_reason() -> None:
    telemetry = {
        "gpu.0.throttle.idle": lane(1),
        "gpu.0.throttle.power_cap": lane(0),
        "gpu.1.throttle.idle": lane(0),
        "gpu.1.throttle.power_cap": lane(0, late=1),
        "gpu.1.throttle.software_thermal": lane(1, late=0),
    }
    assert seen("gpu.throttled_share", telemetry=telemetry) == pytest.approx(1.0)
    assert seen("gpu.throttle_reason", telemetry=telemetry) == "its temperature"


def test_idle_is_no_throttling() -> None:
    telemetry = {"gpu.0.throttle.idle": lane(1), "gpu.0.throttle.application_clocks": lane(1)}
    assert seen("gpu.throttled_share", telemetry=telemetry) == 0.0
    assert seen("gpu.throttle_reason", telemetry=telemetry) is None


def test_what_others_hold_of_a_card_is_what_it_held_at_the_start() -> None:
    held = lane(40e9)
    held.values[held.t < 4] = 7e9
    assert seen("gpu.others_bytes", telemetry={"gpu.0.memory_used_bytes": held}, started_t=9.0) == 7e9


def test_other_processes_on_the_cpu() -> None:
    """70 % of 8 cores are 560 % of one; the run took 200."""
    telemetry = {"cpu.use_pct": lane(70), "run.cpu_pct": lane(200)}
    assert seen("cpu.others_pct", telemetry=telemetry, facts={"environment.cpu.count": 8}) == pytest.approx(360)
    assert seen("cpu.others_pct", telemetry=telemetry) is None
    assert seen("cpu.run_pct", telemetry=telemetry) == 200


def test_held_back_by_a_quota() -> None:
    telemetry = {"run.cpu_pct": lane(200, late=100)}
    share = seen("cpu.throttled", telemetry=telemetry, facts={"environment.cpu.limit": 2.0})
    assert share == pytest.approx(400 / 450, abs=0.01)
    assert seen("cpu.throttled", telemetry=telemetry) is None


def test_memory_and_disk() -> None:
    telemetry = {
        "memory.available_bytes": lane(50e9, early=1e9, late=2e9),
        "memory.swap_used_bytes": lane(3e9),
        "run.memory_bytes": lane(9e9),
        "run.disk_read_bytes_s": lane(0, late=90e6),
        "run.disk_write_bytes_s": lane(1e6),
    }
    assert seen("memory.available_bytes", telemetry=telemetry) == 2e9
    assert seen("memory.swap_bytes", telemetry=telemetry) == 3e9
    assert seen("memory.run_bytes", telemetry=telemetry) == 9e9
    assert seen("disk_read_bytes_s", telemetry=telemetry) == pytest.approx(10e6, rel=0.02)


def test_evaluations_and_checkpoints_between_the_first_step_and_the_last() -> None:
    evals = (
        Eval(0.5, "before", seconds=9.0),
        *(Eval(100.0 * n, "step", seconds=2.0 + n) for n in range(1, 6)),
        Eval(1001, "after"),
    )
    saved = (Checkpoint(500.0, "a", 500), Checkpoint(1002.0, "b", 1000))
    assert seen("evals_per_1000_steps", evals=evals) == pytest.approx(5 / 0.999)
    assert seen("eval_s", evals=evals) == 5.0
    assert seen("checkpoints_per_1000_steps", checkpoints=saved) == pytest.approx(1 / 0.999)


def test_time_between_steps() -> None:
    late = replace(steps(), seconds=np.full(COUNT, 0.8))
    assert seen("between_steps_share", steps={"drafter": late}) == pytest.approx(0.2)
    assert seen("between_steps_share") == pytest.approx(0.0)


def test_what_was_compiled_in_the_steady_time_counts_also_in_steps_that_are_left_out() -> None:
    """Five times 11.9 s after 100 s, and two that were over before: of 900 s, by events and by the steps' own phase."""
    compiles = tuple(Compile(t, "f", 11.9, 1, 0, 1) for t in (20.0, 50.0, 150.0, 250.0, 350.0, 450.0, 550.0))
    assert seen("compile_share", compiles=compiles) == pytest.approx(5 * 11.9 / 900, abs=1e-6)
    told = steps(phases={"compile": np.where((T % 100 == 50) & (T < 600), 0.9, 0.0)})
    assert seen("compile_share", steps={"drafter": told}) == pytest.approx(5 * 0.9 / 900, abs=1e-6)
    both = {"steps": {"drafter": told}, "compiles": compiles}
    assert seen("compile_share", **both) == seen("compile_share", compiles=compiles)  # the same seconds, told twice
    assert seen("compile_share") is None


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (
            "UserWarning: flex_attention called without torch.compile() - this will use an unfused implementation that "
            "materializes the full scores matrix instead of generating a fused kernel.",
            "dense_fallback",
        ),
        ("W1129 torch._dynamo hit config.recompile_limit (8)", "recompile_limit"),
        ("box:1:1 [0] NCCL INFO NET/IB : No device found.", "nccl_fallback"),
        ("UserWarning: Plan failed with a cudnnException: CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR", "cudnn_fallback"),
    ],
)
def test_what_a_log_says(line: str, name: str) -> None:
    assert seen(name, stderr=(line,)) is True
    assert seen(name, notes=(Note(1.0, line, "warning"),)) is True
    assert seen(name, stderr=("step 1 of 1000",)) is False
    assert seen(name) is None


def test_the_empty_logs_of_a_run_that_told_of_itself_say_that_nothing_happened() -> None:
    names = ("dense_fallback", "recompile_limit", "nccl_fallback", "cudnn_fallback", "alloc_retries")
    assert [seen(name, started_t=1.0) for name in names] == [False, False, False, False, 0]


def test_attention_that_the_run_itself_calls_dense() -> None:
    assert seen("dense_fallback", facts={"execution.attention.used": "dense"}) is True
    assert seen("dense_fallback", facts={"execution.attention.used": "flex"}) is False


def test_allocator_retries_from_lines_and_from_a_counter() -> None:
    lines = ("1 pytorch allocator cache flushes since last step", "num_alloc_retries: 3", "num_alloc_retries: 0")
    assert seen("alloc_retries", stdout=lines) == 2
    counter = Series(np.array([0.0, 500.0, 900.0]), np.array([2.0, 4.0, 9.0]))
    assert seen("alloc_retries", telemetry={"gpu.0.alloc_retries": counter}, stdout=("x",)) == 7


def test_the_files_of_a_patch() -> None:
    patch = (
        "diff --git a/model.py b/model.py\n--- a/model.py\n+++ b/model.py\n@@ -1 +1 @@\n--- a/old.py\n+++ /dev/null\n"
    )
    assert seen("patch.files", patch=patch) == "model.py, old.py"
    assert seen("patch.files") is None


def test_a_run_of_which_nothing_is_known_shows_nothing() -> None:
    assert observe(evidence(steps={}, end=0.0)) == {}


def test_a_short_run_between_two_samples_has_the_sample_that_there_is() -> None:
    one = Series(np.array([0.02]), np.array([1410.0]))
    found = observe(evidence(telemetry={"gpu.0.clock_sm_mhz": one}), "drafter", (0.5, 1.5))
    assert found["observed.gpu.clock_mhz"] == 1410


def test_samples_that_are_no_numbers_are_passed_over() -> None:
    holed = lane(2400)
    holed.values[::3] = np.nan
    assert seen("gpu.clock_mhz", telemetry={"gpu.0.clock_sm_mhz": holed}) == 2400
