"""A list of runs comes fast, whole and in order; one run comes as JSON that programs can rely on."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from harness.view.listing import list_runs, to_json
from tests import samples


def test_the_json_of_a_run_has_what_was_promised(tmp_path: Path) -> None:
    folder = samples.recorded(tmp_path)
    (folder.path / "mirror.json").write_text('{"schema": 1, "mlflow_run_id": "f00"}')
    shown = to_json(folder.load())
    assert json.loads(json.dumps(shown)) == shown
    promised = {
        "id": "20261129-172855-tiny-3f2a",
        "recipe": "tiny",
        "status": "finished",
        "folder": str(folder.path),
        "lock_digest": "ab" * 32,
        "fingerprint_digest": folder.load().fingerprint.digest,  # type: ignore[union-attr]
        "mlflow_run_id": "f00",
        "throughput_tok_s": {"value": 20_000.0, "low": 19_800.0, "high": 20_200.0},
        "accept_length": {"before": 1.02, "after": 2.31, "repeat_anchor": 1.44, "ngram": 1.61},
        "lossless": True,
        "compile_s": 6.5,
        "first_step_s": 9.2,
        "loss": {"first": 5.756, "last": 1.677},
        "seconds": 20.0,
    }
    assert {key: shown[key] for key in promised} == promised
    assert shown["cache"]["before"] == {"bytes": 0, "entries": 0, "by_kind": {}}
    assert (shown["cache"]["after"]["bytes"], shown["cache"]["after"]["entries"]) == (10_000_000, 32)


def test_what_is_not_known_is_null_and_the_keys_stay(tmp_path: Path) -> None:
    whole = to_json(samples.recorded(tmp_path).load())
    folder = samples.begin(tmp_path, "20261129-180000-run-0000", recipe="")
    (folder.path / "fingerprint.json").unlink()
    with folder.held():
        bare = to_json(folder.load())
    assert bare.keys() == whole.keys()
    assert bare["status"] == "running"
    for key in ("recipe", "env", "lock_digest", "fingerprint_digest", "throughput_tok_s", "lossless", "first_step_s"):
        assert bare[key] is None
    assert bare["accept_length"] == {"before": None, "after": None, "repeat_anchor": None, "ngram": None}
    assert bare["cache"] == {"before": None, "after": None}


def test_the_latest_comes_first_and_a_broken_one_hides_nobody(tmp_path: Path) -> None:
    for day in (1, 3, 2, 4):
        samples.recorded(tmp_path, f"2026110{day}-120000-tiny-aaaa")
    (tmp_path / "20261103-120000-tiny-aaaa" / "spec.json").write_text("{")
    listing = list_runs(tmp_path)
    assert [run.id[:8] for run in listing.runs] == ["20261104", "20261102", "20261101"]
    assert listing.total == 4
    (problem,) = listing.unreadable
    assert "20261103-120000-tiny-aaaa" in problem
    assert [run.id[:8] for run in list_runs(tmp_path, limit=1).runs] == ["20261104"]
    assert list_runs(tmp_path / "none").total == 0


def test_two_thousand_runs_are_no_burden(tmp_path: Path) -> None:
    """The latest twenty of 2,000 come at once, and not by way of the 1,980 others."""
    one = samples.recorded(tmp_path / "one").path
    files = {path.name: path.read_bytes() for path in one.glob("*.json")}
    for n in range(2000):
        folder = tmp_path / "many" / f"20261129-{n // 60 % 24:02}{n % 60:02}00-tiny-{n:04x}"
        folder.mkdir(parents=True)
        for name, content in files.items():
            (folder / name).write_bytes(content)
    began = time.process_time()
    latest = list_runs(tmp_path / "many", limit=20)
    seconds = time.process_time() - began
    assert (len(latest.runs), latest.total) == (20, 2000)
    assert seconds < 1.0, "seconds of processor time"
    assert len(list_runs(tmp_path / "many").runs) == 2000


@pytest.mark.parametrize("status", ["failed", "killed"])
def test_a_bad_end_keeps_its_reason(tmp_path: Path, status: str) -> None:
    folder = samples.begin(tmp_path, "20261129-172855-tiny-3f2a")
    samples.end(folder, status, reason="out of memory")  # type: ignore[arg-type]
    shown = to_json(folder.load())
    assert (shown["status"], shown["reason"]) == (status, "out of memory")
