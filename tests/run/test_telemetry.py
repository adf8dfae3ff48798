"""Telemetry: what the child uses and what the machine does, each sample on the clock of the run."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.pin import gpus
from harness.run import telemetry

BUSY = "import time; end = time.time() + 60\nwhile time.time() < end: pass"


def samples(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "telemetry.jsonl").read_text().splitlines()]


def test_a_busy_grandchild_counts_and_the_clock_is_the_runs(tmp_path: Path) -> None:
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY!r}])"
    child = subprocess.Popen([sys.executable, "-c", script])
    try:
        time.sleep(0.5)
        t0 = time.monotonic() - 100
        with telemetry.running(tmp_path, child.pid, t0, interval=0.3):
            time.sleep(2.0)
    finally:
        for grandchild in psutil.Process(child.pid).children():
            grandchild.kill()
        child.kill()
        child.wait()
    taken = samples(tmp_path)
    assert 3 <= len(taken) <= 9
    assert 100 <= taken[0]["t"] < 101
    assert all(a["t"] < b["t"] for a, b in itertools.pairwise(taken))
    assert taken[-1]["run"]["processes"] == 2
    assert taken[-1]["run"]["memory_bytes"] > 5_000_000
    assert max(sample["run"]["cpu_pct"] for sample in taken) > 20  # of one core that others may want too
    assert {"cpu", "memory", "run", "schema"} <= set(taken[0])


WORKER = "import sys; block = bytearray(b'x' * 20_000_000); print(flush=True); sys.stdin.read()"
LAUNCHER = f"""
import subprocess, sys
start = lambda: subprocess.Popen([sys.executable, "-c", {WORKER!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 start_new_session=True)
for line in sys.stdin:
    workers = [start() for _ in range(int(line))]
    print(*(worker.stdout.readline().strip() for worker in workers), flush=True)
for worker in workers:
    worker.communicate()
"""


def test_workers_of_a_launcher_count_with_what_they_started() -> None:
    """Eight of them, each in a session of its own, a launcher below the child; they come after the first sample."""
    child = subprocess.Popen(
        ["bash", "-c", 'cat | "$0" -c "$1"; true', sys.executable, LAUNCHER],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdin is not None
    assert child.stdout is not None
    tree = telemetry.RunProcesses(child.pid)
    try:
        tree.sample()
        child.stdin.write("8\n")
        child.stdin.flush()
        child.stdout.readline()  # all of them are there
        sample = tree.sample()
    finally:
        child.stdin.close()
        child.wait()
        child.stdout.close()
    assert sample["processes"] == 3 + 8  # bash, cat and the launcher
    assert sample["memory_bytes"] > 8 * 20_000_000
    assert sample["threads"] >= 11
    assert tree.sample()["processes"] == 0


def test_a_child_that_has_ended_leaves_samples_of_the_machine(tmp_path: Path) -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    with telemetry.running(tmp_path, child.pid, time.monotonic(), interval=0.05):
        time.sleep(0.3)
    assert next(sample["run"]["processes"] for sample in samples(tmp_path)) == 0
    assert samples(tmp_path)[-1]["cpu"]["load_1m"] >= 0


def test_gpus_are_sampled_where_there_are_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Card(gpus.Gpu):
        def state(self) -> dict[str, Any]:
            return {"use_pct": 97, "throttle": "power_cap"}

    class Opened:
        def __enter__(self) -> gpus.Gpus:
            return gpus.Gpus((Card(0, None), Card(1, None)), "580", "13.0")

        def __exit__(self, *_: object) -> None:
            return None

    monkeypatch.setattr(gpus, "opened", Opened)
    with telemetry.running(tmp_path, os.getpid(), time.monotonic()):
        time.sleep(0.1)
    assert samples(tmp_path)[0]["gpus"][1] == {"index": 1, "use_pct": 97, "throttle": "power_cap"}


def test_what_the_sampling_thread_raises_is_raised(tmp_path: Path) -> None:
    with (
        pytest.raises(FileNotFoundError),
        telemetry.running(tmp_path / "not there", os.getpid(), time.monotonic(), interval=0.05),
    ):
        time.sleep(0.2)
