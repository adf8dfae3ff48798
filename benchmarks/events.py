"""What writing one event costs the child: ``python -m benchmarks.events``. The goal is under 20 microseconds."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from harness.records import PHASES, Step
from harness.run.events import Recorder

GOAL_US = 20.0
COUNT = 20_000
ROUNDS = 5


def best_us(action: Callable[[int], None]) -> float:
    """Microseconds a call, in the round that was disturbed least."""
    rounds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for number in range(COUNT):
            action(number)
        rounds.append((time.perf_counter() - start) / COUNT * 1e6)
    return min(rounds)


def main() -> None:
    """Print the cost of each kind of write beside that of the bare system call, as figures and as ratios."""
    with tempfile.TemporaryDirectory() as name:
        record = Recorder(Path(name), time.monotonic())

        def step(number: int) -> None:
            with record.step(number, device="cuda:5") as timer:
                for phase in ("data", "wait", "target", "forward", "backward", "optimizer"):
                    with timer.phase(phase):
                        pass
                timer.count(tokens=4096, padding=128)
                timer.metrics(loss=2.345678, lr=1e-4)

        def write(number: int) -> None:
            phases = {name: 0.0123456789 * (i + 1) for i, name in enumerate(PHASES)}
            metrics = {"loss": 2.345678, "lr": 1e-4}
            record.write(Step(record.now(), number, "drafter", "cuda:5", 0.312341234123, 4096, 128, phases, metrics))

        def note(_: int) -> None:
            record.note("a note")

        probe = os.open(Path(name) / "probe", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        line = b"x" * 350 + b"\n"
        bare = best_us(lambda _: void(os.write(probe, line)))
        os.close(probe)
        figures = {
            "writing a step": best_us(write),
            "writing a note": best_us(note),
            "timing a step's six phases and writing it": best_us(step),
        }
        for what, us in figures.items():
            print(f"{what:42} {us:6.2f} us, {us / bare:4.1f} times the bare write, {us / GOAL_US:4.2f} of the goal")
        print(json.dumps({"bare_write_us": bare, "goal_us": GOAL_US, **figures}))


def void(_: object) -> None:
    """Take a value and give none back."""


if __name__ == "__main__":
    main()
