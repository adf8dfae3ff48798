"""Inductor for real, in processes of their own: cold it misses, warm it hits, and the losses are the same bits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHILD = """
import sys
from pathlib import Path
from dataclasses import replace
from harness.run.events import Recorder
from tests.dflash.test_step import CONFIG, trained
trained(replace(CONFIG, compile=sys.argv[2]), Recorder(Path(sys.argv[1]), 0.0))
"""


def run(folder: Path, backend: str, cache: Path) -> list[dict[str, Any]]:
    folder.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TORCHINDUCTOR_CACHE_DIR": str(cache)}
    subprocess.run([sys.executable, "-c", CHILD, str(folder), backend], check=True, cwd=ROOT, env=environment)
    return [json.loads(line) for line in (folder / "events.jsonl").read_text("utf-8").splitlines()]


def counts(events: list[dict[str, Any]]) -> tuple[int, int]:
    compiled = [event for event in events if event["kind"] == "compile"]
    return sum(event["hits"] for event in compiled), sum(event["misses"] for event in compiled)


def losses(events: list[dict[str, Any]]) -> list[float]:
    return [event["metrics"]["loss"] for event in events if event["kind"] == "step"]


@pytest.mark.slow
def test_cold_misses_warm_hits_and_both_compute_the_same(tmp_path: Path) -> None:
    cold = run(tmp_path / "cold", "inductor", tmp_path / "cache")
    warm = run(tmp_path / "warm", "inductor", tmp_path / "cache")
    plain = run(tmp_path / "plain", "none", tmp_path / "cache")
    assert counts(cold) == (0, 2)  # the forward graph and the backward graph, and no third
    assert counts(warm) == (2, 0)
    assert counts(plain) == (0, 0)
    assert losses(warm) == losses(cold)
    assert losses(plain) == pytest.approx(losses(cold), abs=1e-4)
