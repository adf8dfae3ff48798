"""A trainer of a page: it fits a line by gradient descent, and spends the time that it is told to.

Standard library only. The harness is proved on it, because here the truth is known: a slowdown that is switched
on is the one that must be found. Run as ``python -m experiments.toy``.
"""

from __future__ import annotations

import math
import random
import time
from dataclasses import dataclass, field, fields

from harness.config import execution, workload
from harness.run.events import Recorder, StepTimer

# How the base time of a step is spent; one device has nobody to communicate with.
SHARES = {"data": 0.05, "wait": 0.05, "target": 0.3, "forward": 0.2, "backward": 0.3, "optimizer": 0.1}
SPIN = 0.0005  # seconds before a deadline at which sleeping gives way to spinning: a sleep wakes up late


@dataclass(frozen=True)
class Slow:
    """Seconds added to each phase of every step later than ``after``."""

    data: float = execution(0.0)
    wait: float = execution(0.0)
    target: float = execution(0.0)
    forward: float = execution(0.0)
    backward: float = execution(0.0)
    optimizer: float = execution(0.0)
    communication: float = execution(0.0)
    after: int = execution(0)

    def __post_init__(self) -> None:
        for f in fields(self):
            if not 0 <= getattr(self, f.name) < math.inf:
                raise ValueError(f"slow.{f.name} must not be negative")


@dataclass(frozen=True)
class ToyConfig:
    """What to fit, and how long to take for it.

    seconds     base wall time of a step
    noise       standard deviation of a step's time, as a fraction of it
    cold_start  seconds of compiling inside the first step
    """

    steps: int = workload(50)
    tokens: int = workload(1000)  # a step
    padding: int = workload(0)  # a step, beside the tokens
    seed: int = workload(0)
    seconds: float = execution(0.02)
    noise: float = execution(0.02)
    cold_start: float = execution(0.0)
    slow: Slow = field(default_factory=Slow)

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError("steps must be at least 1")
        if min(self.tokens, self.padding, self.seconds, self.cold_start) < 0:
            raise ValueError("tokens, padding, seconds and cold_start must not be negative")
        if not 0 <= self.noise < 1:
            raise ValueError("noise is a fraction, at least 0 and less than 1")


def spend(seconds: float) -> None:
    """Let ``seconds`` of wall time pass, to within some microseconds."""
    deadline = time.perf_counter() + seconds
    time.sleep(max(0.0, seconds - SPIN))
    while time.perf_counter() < deadline:
        pass


@dataclass
class Line:
    """``y = slope x + offset``, fitted by stochastic gradient descent to noisy points of y = 3 x - 1."""

    slope: float = 0.0
    offset: float = 0.0

    def learn(self, dice: random.Random, rate: float = 0.1, batch: int = 8) -> float:
        """One step on ``batch`` new points. Returns the mean squared error before it."""
        points = [(x, 3 * x - 1 + dice.gauss(0, 0.1)) for x in (dice.uniform(-1, 1) for _ in range(batch))]
        errors = [self.slope * x + self.offset - y for x, y in points]
        self.slope -= rate * 2 * sum(e * x for e, (x, _) in zip(errors, points, strict=True)) / batch
        self.offset -= rate * 2 * sum(errors) / batch
        return sum(e * e for e in errors) / batch


def durations(config: ToyConfig, step: int, factor: float) -> dict[str, float]:
    """Seconds of each phase of ``step``; ``factor`` is the luck of that step."""
    slow = config.slow if step > config.slow.after else Slow()
    names = (f.name for f in fields(Slow) if f.name != "after")
    return {name: config.seconds * SHARES.get(name, 0.0) * factor + getattr(slow, name) for name in names}


def take(step: StepTimer, number: int, config: ToyConfig, line: Line, dice: random.Random, luck: random.Random) -> None:
    """One step: the real work of fitting inside the forward phase, and the rest of each phase's time spent."""
    for name, seconds in durations(config, number, max(0.0, luck.gauss(1, config.noise))).items():
        if seconds == 0 and name != "forward":
            continue
        with step.phase(name):
            start = time.perf_counter()
            if name == "forward":
                step.metrics(loss=line.learn(dice))
            spend(seconds - (time.perf_counter() - start))
    step.count(config.tokens, config.padding)


def main() -> None:
    """Train as the run's spec says, or with the defaults where there is no run."""
    record = Recorder.from_environment()
    config = record.config(ToyConfig)
    # Two generators: the losses depend on the seed alone, whatever the noise of the times is.
    dice, luck, line = random.Random(config.seed), random.Random(config.seed + 1), Line()
    record.started(config.steps, {"workload.seed": config.seed, "workload.model.parameters": 2})
    for number in range(1, config.steps + 1):
        with record.step(number, role="trainer", device="cpu") as step:
            if number == 1 and config.cold_start:
                with step.phase("compile"):
                    spend(config.cold_start)
                record.compile("line", config.cold_start, step=1, misses=1, reason="the first call")
            take(step, number, config, line, dice, luck)
    record.eval("after", {"slope_error": abs(line.slope - 3), "offset_error": abs(line.offset + 1)}, step=config.steps)
    record.finished()


if __name__ == "__main__":
    main()
