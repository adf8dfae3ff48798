"""What an explanation costs: ``python -m benchmarks.explain [STEPS]``.

Two finished runs of 1,000,000 steps (two roles), 5,000 facts and telemetry of eight cards every two seconds each:
seconds and peak memory with their columns (goal: 3 s, 500 MB) and from the JSON lines alone (goal: 20 s), in a child
process each, imports included. Then the runs of a workload among 2,000 recorded ones (goal: 1 s), with the index and
without. Seconds of the wall are given beside seconds of the processor: on a busy machine the former are longer.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from harness.explain.comparing.comparable import work
from harness.places import places
from harness.records import Fingerprint, Finished, Interval, Result, RunSpec, Started, Step, Summary, Value
from harness.run import columns
from harness.run.events import Recorder
from harness.run.folder import RunFolder
from harness.run.history import INDEX, earlier

STEPS, FACTS, RUNS, CARDS = 1_000_000, 5_000, 2_000, 8
STARTED_AT = 1_795_000_000.0
STEP_S = 0.3
PHASES = {"data": 0.02, "wait": 0.10, "forward": 0.33, "backward": 0.45, "optimizer": 0.08, "other": 0.02}
SPEC = RunSpec(
    "tiny", "cpu", ("python", "-m", "experiments.dflash.train"), {"train.batch": 8}, {"train.batch": "workload"}
)

EXPLAIN = """
import json, resource, sys, time
begun = time.perf_counter()
from pathlib import Path
from harness.explained import Group, answer
from harness.run.folder import RunFolder
first, second = (RunFolder(Path(path)) for path in sys.argv[1:])
found = answer(Group("A", (first,)), Group("B", (second,)), first.path.parent)
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({
    "wall_s": time.perf_counter() - begun,
    "cpu_s": used.ru_utime + used.ru_stime,
    "peak_mb": used.ru_maxrss / 1024,
    "sentence": found.sentence,
}))
"""


def main(steps: int) -> None:
    """Make the runs, explain them, and print the figures beside their goals."""
    with tempfile.TemporaryDirectory() as name:
        runs = Path(name)
        sides = [long_run(runs, number, steps, slower) for number, slower in ((1, 1.0), (2, 1.15))]
        size = sum(file.stat().st_size for folder in sides for file in folder.path.iterdir() if file.is_file())
        figures: dict[str, Any] = {"steps": steps, "bytes": size}
        figures["with columns"] = explained(sides)
        for folder in sides:
            (folder.path / columns.NAME).unlink()
        figures["from lines alone"] = explained(sides)
        print(figures["with columns"]["sentence"])
    goals = {"with columns": (3.0, 500.0), "from lines alone": (20.0, 500.0)}
    for what, (seconds, memory) in goals.items():
        took = figures[what]
        print(
            f"{what:18} {took['wall_s']:6.2f} s (processor {took['cpu_s']:.2f} s), goal {seconds:.0f} s; "
            f"{took['peak_mb']:.0f} MB, goal {memory:.0f} MB"
        )
    with tempfile.TemporaryDirectory() as name:
        figures |= found_among(Path(name))
    for what in ("first look", "with the index"):
        print(f"{what:18} {figures[what]:6.3f} s for the runs of a workload among {RUNS:,}, goal 1 s")
    print(json.dumps(figures))


def explained(sides: list[RunFolder]) -> dict[str, Any]:
    """Explain in a process of its own, as a person's command is one."""
    argv = [sys.executable, "-c", EXPLAIN, *(str(folder.path) for folder in sides)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=places().root)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


# --- two long runs ---------------------------------------------------------------------------------------


def long_run(runs: Path, number: int, steps: int, slower: float) -> RunFolder:
    """A finished run of two roles with ``steps`` steps in all; ``slower`` stretches its forward pass."""
    folder = begun(runs, number, FACTS)
    dice = np.random.default_rng(number)
    recorder = Recorder(folder.path, time.monotonic())
    recorder.write(Started(20.0, 1, steps // 2, {"workload.data.digest": "d" * 64}))
    end = 20.0
    for step in fed(steps // 2, slower, dice):
        recorder.write(step)
        end = step.t
    recorder.write(Finished(end + 1))
    columns.write_columns(folder.path)
    with (folder.path / "telemetry.jsonl").open("w") as file:
        file.writelines(json.dumps(sample(t, dice)) + "\n" for t in np.arange(0.0, end, 2.0))
    ended(folder, number, Summary(steps // 2, 4000 * steps // 2, first_step_s=25.0))
    return folder


def fed(count: int, slower: float, dice: np.random.Generator) -> Iterator[Step]:
    """A target and a drafter, a step each in turn."""
    luck = np.exp(dice.normal(0, 0.03, count))
    t = 20.0
    for n, factor in enumerate(luck.tolist(), 1):
        seconds = {name: STEP_S * share * factor for name, share in PHASES.items()}
        seconds["forward"] *= slower
        took = sum(seconds.values())
        t += took
        working = 0.9 * took
        yield Step(t - 0.01, n, "target", "cuda:0", took, 0, 0, {"target": working, "wait": took - working})
        yield Step(t, n, "drafter", "cuda:5", took, 4000, 96, seconds, {"loss": 1 + 5 / n, "lr": 3e-4})


def sample(t: float, dice: np.random.Generator) -> dict[str, Any]:
    """A line of telemetry with eight cards."""
    noise = dice.normal(0, 1, 2 * CARDS).round(3).tolist()
    cards = [
        {
            "index": card, "use_pct": 97, "memory_use_pct": 60, "memory_used_bytes": 88_000_000_000,
            "clock_sm_mhz": 2400 + round(10 * noise[card]), "clock_memory_mhz": 14001,
            "power_w": 560 + noise[CARDS + card], "temperature_c": 70, "throttle": "power_cap" if card == 3 else "",
        }
        for card in range(CARDS)
    ]  # fmt: skip
    machine = {
        "cpu": {"use_pct": 12.5, "load_1m": 9.1},
        "memory": {"used_bytes": 10**11, "available_bytes": 10**11, "swap_used_bytes": 0},
        "disk": {"read_bytes_s": 10**7, "write_bytes_s": 10**6},
        "run": {"processes": 9, "threads": 400, "memory_bytes": 10**11, "cpu_pct": 812.5},
    }
    return {"schema": 1, "t": round(float(t), 3), **machine, "gpus": cards}


# --- many short ones -------------------------------------------------------------------------------------


def found_among(runs: Path) -> dict[str, float]:
    """Seconds to find the runs of a workload among many, at the first look and with the index."""
    for number in range(RUNS):
        ended(begun(runs, number, 150), number, Summary(500, 10**6, 0, Interval(2e4, 1.9e4, 2.1e4), first_step_s=9.0))
    last = RunFolder(runs / run_id(RUNS - 1))
    took = {}
    for what in ("first look", "with the index"):
        begin = time.perf_counter()
        found = earlier(runs, last, work)
        took[what] = time.perf_counter() - begin
        assert len(found) == RUNS - 1
    assert (runs / INDEX).exists()
    return took


def run_id(number: int) -> str:
    return f"20261129-{number // 3600:02}{number // 60 % 60:02}{number % 60:02}-tiny-{number:04x}"


def begun(runs: Path, number: int, count: int) -> RunFolder:
    """A folder with a request, ``count`` facts and logs."""
    folder = RunFolder(runs / run_id(number))
    folder.path.mkdir()
    facts: dict[str, Value] = {f"environment.package.package-{n}": f"1.{n}" for n in range(count)}
    facts["environment.package.triton"] = f"3.{number % 2}.0"
    facts |= {"workload.train.batch": 8, "environment.gpu.0.name": "NVIDIA RTX PRO 6000", "code.commit": "a" * 40}
    folder.write_json("spec.json", SPEC.to_json())
    folder.write_json("fingerprint.json", Fingerprint(facts).to_json())
    folder.write_json("caches.json", {"before": None, "after": None})
    for name in ("stdout.log", "stderr.log"):
        (folder.path / name).write_text("a line of a log\n" * 1000)
    return folder


def ended(folder: RunFolder, number: int, summary: Summary) -> None:
    at = STARTED_AT + number
    folder.write_json("result.json", Result("finished", 0, None, "", at, at + 1, summary).to_json())


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else STEPS)
