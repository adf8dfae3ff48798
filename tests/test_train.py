"""The main job, whole: a small `tiny` in its locked environment, twice, recorded and compared to the bit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
SMALL = (
    "target.steps=10",
    "target.layers=4",
    "target.hidden=32",
    "target.head_dim=8",
    "target.ffn=64",
    "data.sequences=32",
    "train.steps=10",
    "eval.prompts=4",
    "eval.new_tokens=16",
)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs and MLflow of this test alone. The state stays: environments take minutes to build."""
    monkeypatch.setenv("HARNESS_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    return tmp_path


def harness(*arguments: str) -> Any:
    """What a command says in JSON."""
    command = [sys.executable, "-m", "harness.cli", *arguments, "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def losses(record: Any) -> list[float]:
    lines = (Path(record["folder"]) / "events.jsonl").read_text().splitlines()
    return [event["metrics"]["loss"] for event in map(json.loads, lines) if event["kind"] == "step"]


@pytest.mark.slow
@pytest.mark.usefixtures("elsewhere")
def test_cold_then_warm_the_same_losses_to_the_bit_and_a_rerun_from_the_folder() -> None:
    cold = harness("run", "tiny", *SMALL, "--cold")
    assert cold["status"] == "finished"
    assert cold["lossless"] is True
    assert cold["accept_length"].keys() == {"before", "after", "repeat_anchor", "ngram"}
    assert cold["mlflow_run_id"]
    assert len(losses(cold)) == 10
    assert (Path(cold["folder"]) / "artifacts" / "drafter.safetensors").exists()

    first = harness("run", "tiny", *SMALL)
    again = harness("rerun", "@1")
    assert losses(cold) == losses(first) == losses(again)
    assert again["spec_id"] == first["spec_id"] == cold["spec_id"]
    assert again["fingerprint_digest"] == first["fingerprint_digest"] == cold["fingerprint_digest"]

    # without a C++ compiler on this machine nothing is compiled, and that is said
    if not cold["warnings"]:
        assert cold["cache"]["before"]["entries"] == 0
        assert cold["cache"]["after"]["entries"] > 0
        assert (cold["compile"]["start"], cold["compile"]["hits"]) == ("cold", 0)
        assert (again["compile"]["start"], again["compile"]["misses"]) == ("warm", 0)
        assert again["compile_s"] < cold["compile_s"]
