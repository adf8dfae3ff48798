"""Measured runs made by hand, with series as runs have them: noise that remembers, outliers, a warm-up, a gap."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from harness.comparison import Contribution, Lane, Measured, Profile, Role, Steady
from harness.records import Interval, Result, Run, RunSpec, Status, Value

GOOD = {
    "data": 0.4,
    "target.forward": 10.0,
    "wait": 1.1,
    "forward": 14.8,
    "backward": 16.9,
    "optimizer": 1.6,
    "communication": 1.2,
    "unaccounted": 0.51,
}
"""ms per Ktok: 46.5, so 21.5 Ktok/s."""
BLOCKS = 240
FULL = {
    **GOOD,
    "target.forward": 11.2,
    "wait": 0.9,
    "forward": 30.1,
    "backward": 31.5,
    "optimizer": 2.0,
    "communication": 1.5,
}
DENSE = {**GOOD, "forward": 105.4, "backward": 113.25, "wait": 0.2}

FACTS: Mapping[str, Value] = {
    "workload.data.sequences": 902_000,
    "workload.data.digest": "a1" * 32,
    "workload.model.heads": "balanced",
    "workload.train.batch": 8,
    "workload.train.anchors": 512,
    "execution.attention": "flex",
    "execution.compile": "inductor",
    "execution.devices": "target:cuda:0-4 drafter:cuda:5-7",
    "execution.topology": "threads",
    "environment.python": "3.12.3",
    "environment.package.torch": "2.11.0+cu128",
    "environment.gpu.0.name": "NVIDIA RTX PRO 6000 Blackwell",
    "environment.gpu.driver": "580.65.06",
    "environment.lock": "ab" * 32,
    "code.commit": "9ff1230" + "0" * 33,
    "code.patch.sha256": "e3" * 32,
    "state.cache.bytes": 353_000_000,
    "state.cache.entries": 285,
    "state.cache.start": "warm",
    "context.host": "box",
    **{f"environment.package.module-{n}": f"1.{n % 9}.0" for n in range(150)},
}


def noise(seed: int, count: int = BLOCKS, size: float = 0.015) -> np.ndarray:
    """Around 1, each value like the one before it, with a rare outlier."""
    rng = np.random.default_rng(seed)
    level, values = 0.0, []
    for _ in range(count):
        level = 0.7 * level + size * rng.standard_normal()
        values.append(1 + level - (0.15 * rng.random() if rng.random() < 0.01 else 0.0))
    return np.array(values)


def profile(costs: Mapping[str, float], start: float, seed: int, speed: np.ndarray | None = None) -> Profile:
    """A run whose steady blocks cost ``costs`` ms per Ktok; its first blocks are slower. 60 Ktok a block."""
    factor = noise(seed) * (1.0 if speed is None else speed)
    factor[:4] *= (0.5, 0.8, 0.95, 0.98)
    ktok = 60.0
    phases = {name: tuple(float(ktok * cost / 1000 / f) for f in factor) for name, cost in costs.items()}
    seconds = np.array([sum(column) for column in zip(*phases.values(), strict=True)])
    ends = start + np.cumsum(seconds) + 6.0 * (np.arange(len(seconds)) >= len(seconds) // 2)  # an evaluation
    middle = float(ends[len(ends) // 2])
    return Profile(
        t=tuple(float(t) for t in ends),
        rate=tuple(float(1000 * ktok / s) for s in seconds),
        phases=phases,
        steady=tuple(n >= 4 for n in range(len(ends))),
        marks=((start, "compile", "compiled the drafter"), (middle, "eval", "evaluation of 6 s")),
    )


def lanes(end: float, seed: int, clock: float = 2280.0) -> tuple[Lane, ...]:
    count = 300
    t = tuple(float(x) for x in np.linspace(0, end, count))
    shapes = {
        **{f"gpu.{g}.clock_sm_mhz": clock * noise(seed + g, count, 0.004) for g in range(8)},
        **{f"gpu.{g}.power_w": 410 * noise(seed + 10 + g, count) for g in range(8)},
        **{f"gpu.{g}.memory_used_bytes": 71e9 * noise(seed + 20 + g, count, 0.001) for g in range(8)},
        "cpu.use_pct": 34 * noise(seed + 30, count, 0.1),
        "memory.available_bytes": 812e9 * noise(seed + 31, count, 0.002),
        "run.disk_read_bytes_s": 41e6 * noise(seed + 32, count, 0.2),
    }
    return tuple(Lane(name, t, tuple(float(v) for v in values)) for name, values in shapes.items())


def steady_state(costs: Mapping[str, float], padding: float) -> Steady:
    """``costs``: ms per useful Ktok, the computing of padding among them."""
    cost = sum(costs.values())
    ktok = 60.0 * (BLOCKS - 4)
    return Steady(
        role="drafter",
        steps=2360,
        seconds=ktok * cost / 1000,
        tokens=round(1000 * ktok),
        padding=round(1000 * ktok * padding),
        phases={name: ktok * value / 1000 for name, value in costs.items()},
        throughput=Interval(1e6 / cost, 0.991e6 / cost, 1.009e6 / cost),
        left_out={"warm-up": 40, "evaluation": 1},
    )


def measured(
    run_id: str,
    costs: Mapping[str, float] = GOOD,
    first_step: Mapping[str, float] | None = None,
    seed: int = 1,
    padding: float = 0.02,
    facts: Mapping[str, Value] = FACTS,
    observed: Mapping[str, Value] | None = None,
    status: Status = "finished",
) -> Measured:
    """A finished run: ``costs`` are ms per useful Ktok, the computing of padding among them."""
    first = {"import": 21.0, "model": 64.0, "compile": 9.0, "step": 2.0} if first_step is None else first_step
    start = sum(first.values())
    done = profile(costs, start, seed)
    spec = RunSpec("dflash", "cu128", ("python", "-m", "experiments.dflash.train"))
    result = Result(status, 0 if status == "finished" else 1, started_at=1_795_000_000.0)
    return Measured(
        run=Run(run_id, f"runs/{run_id}", spec, result, None, None, None),
        facts=facts,
        observed={"observed.padding_share": padding / (1 + padding), **(observed or {})},
        steady=steady_state(costs, padding),
        first_step_s=start,
        first_step=first,
        roles={"drafter": Role(480.0, 12.0, 3), "target": Role(480.0, 201.0, 5)},
        profile=done,
        lanes=lanes(done.t[-1], seed),
    )


def split(before: Steady, after: Steady, share: bool = True) -> tuple[Contribution, ...]:
    """The additive log-mean split (Ang 2004), written again for the tests."""
    p0, p1 = (1 + s.padding / s.tokens for s in (before, after))
    units0, units1 = (s.tokens + s.padding for s in (before, after))
    c0 = {name: seconds / units0 for name, seconds in before.phases.items()}
    c1 = {name: seconds / units1 for name, seconds in after.phases.items()}
    total0, total1 = sum(c0.values()), sum(c1.values())
    mean = total0 if math.isclose(total0, total1) else (total1 - total0) / math.log(total1 / total0)
    whole = -math.log(p1 / p0) - math.log(total1 / total0)
    parts = [("padding", -math.log(p1 / p0), p0, p1)]
    for name in dict.fromkeys([*c0, *c1]):
        old, new = c0.get(name, 0.0), c1.get(name, 0.0)
        parts.append((name, -(new - old) / mean, old, new))
    return tuple(Contribution(n, log, log / whole if share and whole else None, old, new) for n, log, old, new in parts)


def split_seconds(before: Mapping[str, float], after: Mapping[str, float]) -> tuple[Contribution, ...]:
    """The same of the time to the first step: the log ratio is of seconds, so more is slower."""
    total0, total1 = sum(before.values()), sum(after.values())
    mean = (total1 - total0) / math.log(total1 / total0)
    whole = math.log(total1 / total0)
    gained = {n: (after.get(n, 0.0) - before.get(n, 0.0)) / mean for n in dict.fromkeys([*before, *after])}
    return tuple(Contribution(n, log, log / whole, before.get(n, 0.0), after.get(n, 0.0)) for n, log in gained.items())
