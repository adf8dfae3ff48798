"""What the harness costs beside a run: ``python -m benchmarks.overhead [SECONDS]``. The goal is under 1 % of a core.

It counts the processor seconds of the harness's own process, telemetry and all, while a child trains; what comes
before the child's start and after its end is set-up and not beside the run, and is given apart.
"""

from __future__ import annotations

import json
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

from harness.places import Places, places
from harness.records import BuiltEnvironment, Event, Fingerprint, Finished
from harness.run.folder import RunFolder
from harness.run.resolve import resolve
from harness.run.runner import Order, execute

GOAL_PCT = 1.0


class Meter:
    """Reads the harness's processor time when the child starts and when it says that it has finished."""

    def __init__(self) -> None:
        self.begun = self.ended = (0.0, 0.0)

    def started(self, _: RunFolder, __: Fingerprint) -> None:
        self.begun = (time.monotonic(), time.process_time())

    def event(self, event: Event) -> None:
        if isinstance(event, Finished):
            self.ended = (time.monotonic(), time.process_time())

    def output(self, _: str, __: str) -> None:
        return


def main(seconds: float) -> None:
    """Make one run of the toy trainer of about ``seconds``, ten steps a second, and print what the harness used."""
    here = BuiltEnvironment("", Path(sys.executable), Path(sysconfig.get_path("purelib")))
    meter = Meter()
    with tempfile.TemporaryDirectory() as name:
        where = Places(places().root, Path(name) / "state", Path(name) / "runs")
        execute(Order(resolve("toy", ["seconds=0.1", f"steps={seconds * 10:.0f}"]), here, where.root), where, meter)
    wall, spent = (end - begin for begin, end in zip(meter.begun, meter.ended, strict=True))
    share = 100 * spent / wall
    print(
        f"{spent:.3f} s of processor time in {wall:.1f} s: {share:.2f} % of a core, {share / GOAL_PCT:.2f} of the goal"
    )
    print(json.dumps({"wall_s": wall, "cpu_s": spent, "share_pct": share, "goal_pct": GOAL_PCT}))


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0)
