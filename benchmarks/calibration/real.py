"""Real runs of ``toy``: pairs without a difference, and with the slowdown switched on, judged as simulated ones are.

Each run is a process of its own that records its steps; what spreads them is this machine. Fast and slow runs take
turns, and pairs are then drawn from them at random, each with a history of others.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.calibration.runs import HISTORY
from benchmarks.calibration.tables import Table, percent
from harness.explain.judging.judge import judge
from harness.explain.measuring.measure import measure
from harness.places import places
from harness.run.folder import RunFolder
from harness.run.gather import gather
from harness.run.resolve import resolve

STEP_S, STEPS, SLOWDOWN = 0.005, 150, 0.05
SIDES = (1, 2, 4, 6)


def toy(folder: RunFolder, slow: bool) -> tuple[float, int]:
    """Steps a second of one run of ``toy`` in ``folder``, and how many shifts it is said to have."""
    settings = [f"seconds={STEP_S}", f"steps={STEPS}"] + ([f"slow.forward={SLOWDOWN * STEP_S}"] if slow else [])
    folder.write_json("spec.json", resolve("toy", settings).to_json())
    variables = {"HARNESS_RUN": str(folder.path), "HARNESS_T0": repr(time.monotonic())}
    subprocess.run(
        [sys.executable, "-m", "experiments.toy"], env={**os.environ, **variables}, cwd=places().root, check=True
    )
    measured = measure(gather(folder))
    assert measured.steady is not None
    return measured.steady.throughput.value, len(measured.shifts)


def calibrate(runs: int, draws: int = 2000) -> Table:
    """``runs`` of each kind, in turns; then ``draws`` pairs for each number of runs a side."""
    found: dict[bool, list[tuple[float, int]]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as name:
        for _ in range(runs):
            for slow in (False, True):
                found[slow].append(toy(RunFolder.create(Path(name), "toy"), slow))
    same, slower = (np.array([rate for rate, _ in found[slow]]) for slow in (False, True))
    shifted = sum(count > 0 for each in found.values() for _, count in each)
    spread = float(np.log(same).std(ddof=1))
    dice = np.random.default_rng(23)
    rows = []
    for side in (s for s in SIDES if 2 * s + HISTORY <= runs):
        called = {False: 0, True: 0}
        for _ in range(draws):
            order = dice.permutation(runs)
            a, history = list(same[order[:side]]), list(same[order[2 * side : 2 * side + HISTORY]])
            for slow, b in ((False, same[order[side : 2 * side]]), (True, slower[dice.permutation(runs)[:side]])):
                verdict = judge("throughput", a, list(b), history=[history] if side < 4 else ()).verdict
                called[slow] += verdict == "SLOWER" if slow else verdict in ("SLOWER", "FASTER")
        rows.append((str(side), percent(called[False] / draws), percent(called[True] / draws)))
    return Table(
        title="Real runs of toy",
        note=f"{runs} runs as they are and {runs} slowed by {percent(SLOWDOWN)}, {STEPS} steps each, in turns, on a "
        f"machine shared with other work; they spread by {percent(spread)}. {draws} pairs drawn of them for each row, "
        f"with {HISTORY} others as the history below 4 a side. {shifted} of the {2 * runs} runs are said to have a "
        "shift.",
        header=("runs a side", "false alarms", "slowdown called SLOWER"),
        rows=tuple(rows),
    )
