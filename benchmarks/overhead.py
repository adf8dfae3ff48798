"""What the harness costs beside a run: ``python -m benchmarks.overhead [SECONDS]``. The goal is under 1 % of a core.

It counts the processor seconds of the harness's own process (telemetry, following the events, the record) and of the
process that mirrors into MLflow, while a child trains. MLflow's import, once a run, is given apart.
"""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from harness.mirror.follower import create_store, finish, start_follower
from harness.places import Places, places
from harness.records import BuiltEnvironment, Event, Fingerprint, Finished, Step
from harness.run.folder import RunFolder
from harness.run.resolve import resolve
from harness.run.runner import Order, execute

GOAL_PCT = 1.0
STEPS_A_SECOND = 10
SETTLED_S = 30
"""Seconds of the run before the count begins: by then the mirror has imported MLflow and sent what it found."""


class Meter:
    """Reads processor times once the run has settled, and again when the child says that it has finished."""

    def __init__(self) -> None:
        self.mirror: psutil.Process | None = None
        self.begun: dict[str, float] = {}
        self.ended: dict[str, float] = {}

    def read(self) -> dict[str, float]:
        assert self.mirror is not None
        times = self.mirror.cpu_times()
        return {"wall": time.monotonic(), "harness": time.process_time(), "mirror": times.user + times.system}

    def started(self, _: RunFolder, __: Fingerprint) -> None:
        return

    def event(self, event: Event) -> None:
        if isinstance(event, Step) and event.step == SETTLED_S * STEPS_A_SECOND:
            self.begun = self.read()
        elif isinstance(event, Finished):
            self.ended = self.read()

    def output(self, _: str, __: str) -> None:
        return


def main(seconds: float) -> None:
    """Make one run of the toy trainer, ten steps a second, and print what was used beside its last ``seconds``."""
    here = BuiltEnvironment("", Path(sys.executable), Path(sysconfig.get_path("purelib")))
    meter = Meter()
    with tempfile.TemporaryDirectory() as name:
        where = Places(places().root, Path(name) / "state", Path(name) / "runs")
        create_store(where)

        @contextmanager
        def mirrored(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
            follower = start_follower(folder, where)
            meter.mirror = psutil.Process(follower.pid)
            yield follower
            finish(follower, folder)

        steps = (SETTLED_S + seconds) * STEPS_A_SECOND
        spec = resolve("toy", [f"seconds={1 / STEPS_A_SECOND}", f"steps={steps:.0f}"])
        execute(Order(spec, here, where.root), where, meter, mirrored)
    used = {name: meter.ended[name] - meter.begun[name] for name in meter.begun}
    shares = {name: 100 * used[name] / used["wall"] for name in ("harness", "mirror")}
    for name, share in shares.items():
        print(f"{name:8} {used[name]:.3f} s of processor time in {used['wall']:.1f} s: {share:.2f} % of a core")
    print(f"{'start':8} {meter.begun['mirror']:.1f} s of the mirror's processor time before that: MLflow's import")
    print(json.dumps({"wall_s": used["wall"], "goal_pct": GOAL_PCT, **{f"{n}_pct": s for n, s in shares.items()}}))


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0)
