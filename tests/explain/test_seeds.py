"""The week that this project was made for: its three comparisons, each answered rightly in the first sentence."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from harness.comparison import Explanation
from harness.explained import Group, answer
from harness.records import Value
from tests.explain.box import COLD, Told, run

FX = (
    "Exception in thread drafter-1:\n"
    "Traceback (most recent call last):\n"
    '  File "/root/dflash/train.py", line 311, in _drafter_loop\n'
    "    out = self.attn(q, k, v, block_mask=mask)\n"
    '  File "/root/venv/lib/python3.12/site-packages/torch/_dynamo/eval_frame.py", line 990, in compile_wrapper\n'
    "    raise RuntimeError(\n"
    "RuntimeError: Detected that you are using FX to symbolically trace a dynamo-optimized function. "
    "This is not supported at the moment.\n"
)
UNFUSED = (
    "flex_attention called without torch.compile() - this will use an unfused implementation that materializes "
    "the full scores matrix instead of generating a fused kernel."
)


def explained(runs: Path, before: Told, after: Told) -> Explanation:
    first, second = run(runs, "20261101-100000-qwen-aaaa", before), run(runs, "20261103-100000-qwen-bbbb", after)
    return answer(Group("good", (first,)), Group("now", (second,)), runs)


def test_different_work_is_no_regression(tmp_path: Path) -> None:
    """21.5 against 12.8 Ktok/s: 902,000 samples and balanced heads against 1,100,000 and full query heads."""
    other: dict[str, Value] = {
        "workload.data.sequences": 1_100_000,
        "workload.data.digest": "e" * 64,
        "workload.model.heads": "full",
    }
    found = explained(tmp_path, Told(), Told(rate=12_800.0, facts=other))
    assert found.comparability == "NOT_COMPARABLE"
    assert found.sentence.startswith("This is not the same work")
    assert "21.5" in found.sentence
    assert "12.8" in found.sentence
    assert "no regression" in found.sentence
    reasons = " ".join(found.reasons)
    assert "902,000" in reasons
    assert "1,100,000" in reasons
    assert "balanced" in reasons
    assert found.verdict == "UNKNOWN"
    assert found.suspects[0].change.kind == "workload"
    assert found.fair_pair


def test_attention_that_fell_back_to_dense(tmp_path: Path) -> None:
    """21.5 against 4.3: the check was patched away, and attention ran uncompiled."""
    slow = {"data": 0.002, "wait": 0.012, "forward": 0.42, "backward": 0.55, "optimizer": 0.01, "other": 0.006}
    dense = Told(
        rate=4_300.0,
        phases=slow,
        facts={"execution.attention.used": "dense", "execution.compile.used": "none"},
        warning=UNFUSED,
    )
    found = explained(tmp_path, Told(), dense)
    assert found.comparability == "COMPARABLE"
    assert found.verdict == "SLOWER"
    assert "slower" in found.sentence
    assert "4.3" in found.sentence
    assert "dense" in found.sentence
    assert found.suspects[0].change.fact in ("execution.attention.used", "observed.dense_fallback")
    assert found.throughput.ratio is not None
    assert sum(c.log_ratio for c in found.contributions) == pytest.approx(math.log(found.throughput.ratio.value))


def test_a_warm_cache_that_hid_the_fault(tmp_path: Path) -> None:
    """The good run had 353 MB in 285 entries; after the clean-up, 19 MB in 62, and the race in three threads."""
    crashed = Told(cache=COLD, compile_s=60.0, steps=2, stderr=FX)
    found = explained(tmp_path, Told(), crashed)
    sentence = found.sentence
    assert "trace" in sentence
    assert "353 MB" in sentence
    assert "19.0 MB" in sentence or "19 MB" in sentence
    assert "hidden" in sentence or "hid" in sentence
    assert found.suspects
    assert "cache" in found.suspects[0].change.fact


def test_a_cold_cache_costs_the_first_step_and_not_the_steady_state(tmp_path: Path) -> None:
    found = explained(tmp_path, Told(), Told(cache=COLD, compile_s=260.0, seed=2))
    assert found.throughput.verdict in ("SAME", "UNKNOWN")
    assert found.first_step.verdict == "SLOWER"
    assert "first step" in found.sentence
    assert "cache" in found.suspects[0].change.fact
