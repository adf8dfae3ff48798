"""Telemetry as series: each named by the way to it, and of a very long run only some samples."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from harness.run import series
from harness.run.series import read_series


def test_telemetry_is_named_by_the_way_to_it(tmp_path: Path) -> None:
    samples_ = [
        {"schema": 1, "t": 0.0, "cpu": {"use_pct": 5}, "gpus": [{"index": 3, "power_w": 70.5, "throttle": ""}]},
        {"schema": 1, "t": 2.0, "gpus": [{"index": 3, "power_w": 600, "throttle": "power_cap,sync_boost"}]},
        {"t": 4.0, "gpus": [{"index": 3, "throttle": "power_cap"}, {"index": 4, "power_w": None}], "note": [1]},
    ]
    path = tmp_path / "telemetry.jsonl"
    path.write_text("".join(json.dumps(s) + "\n" for s in samples_) + '{"t": 6.0}{\n{"cpu": {}}\n{"t":8.0,"cp')
    found, skipped = read_series(path)
    assert skipped == 2
    assert {name: (list(s.t), list(s.values)) for name, s in found.items()} == {
        "cpu.use_pct": ([0.0], [5.0]),
        "gpu.3.power_w": ([0.0, 2.0], [70.5, 600.0]),
        "gpu.3.throttle.idle": ([0.0, 2.0, 4.0], [0.0, 0.0, 0.0]),
        "gpu.3.throttle.power_cap": ([0.0, 2.0, 4.0], [0.0, 1.0, 1.0]),
        "gpu.3.throttle.sync_boost": ([0.0, 2.0, 4.0], [0.0, 1.0, 0.0]),
    }


@pytest.mark.parametrize(("count", "least", "most"), [(150, 150, 150), (1000, 90, 101), (30_000, 90, 101)])
def test_of_a_very_long_run_some_samples_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, least: int, most: int
) -> None:
    monkeypatch.setattr(series, "MOST", 100)
    path = tmp_path / "telemetry.jsonl"
    path.write_text("".join(json.dumps({"t": n, "cpu": {"use_pct": n % 7}}) + "\n" for n in range(count)))
    found, skipped = read_series(path)
    times = found["cpu.use_pct"].t
    assert not skipped
    assert least <= len(times) <= most
    assert np.all(np.diff(times) > 0)
    assert np.all(np.abs(np.diff(times) - count / len(times)) < 0.2 * count / len(times) + 1)
    assert times[0] == 0
    assert times[-1] >= 0.97 * (count - 1)
    assert list(found["cpu.use_pct"].values) == [t % 7 for t in times]
