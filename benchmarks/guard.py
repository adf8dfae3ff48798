"""What the compile guard costs a call: ``python -m benchmarks.guard``. The goal is under 2 µs in steady state.

Guarded and unguarded calls take turns within one run, so that a noisy machine hits both alike; the figure is the median
of the differences. A function that does nothing shows the guard alone, and is held against the goal. A small compiled
one shows the share of it; two unguarded ones differ by as much on a busy machine.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from harness.run.compile_guard import install
from harness.run.gate import Gate

GOAL_US = 2.0
CALLS = 20_000
ROUNDS = 40


def seconds_a_call(call: Callable[[], Any], calls: int) -> float:
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - begin) / calls


def compare(name: str, plain: Callable[[], Any], guarded: Callable[[], Any], calls: int) -> float:
    """Print what a guarded call costs more than a plain one, and the ratio; returns the difference in µs."""
    pairs = [(seconds_a_call(plain, calls), seconds_a_call(guarded, calls)) for _ in range(ROUNDS)]
    more = statistics.median(after - before for before, after in pairs) * 1e6
    ratio = statistics.median(after / before for before, after in pairs)
    before = statistics.median(before for before, _ in pairs) * 1e6
    print(f"{name:<28} plain {before:7.2f} µs   guarded +{more:.2f} µs   ratio {ratio:.2f}")
    return more


def main() -> None:
    """Two comparisons, and the goal."""
    x = torch.ones(
        8
    )  # each its own lambda: Dynamo keeps what it compiled at the code object, and looks through all of it
    before = torch.compile(lambda t: t.sin() + 1, backend="aot_eager", dynamic=False)
    before(x)
    other = torch.compile(lambda t: t.sin() + 1, backend="aot_eager", dynamic=False)
    other(x)
    install()
    after = torch.compile(lambda t: t.sin() + 1, backend="aot_eager", dynamic=False)
    after(x)

    def nothing() -> None:
        pass

    alone = compare("a function that does nothing", nothing, Gate().reads(nothing), CALLS)
    compare("a small compiled function", lambda: before(x), lambda: after(x), CALLS // 20)
    compare("the same, both unguarded", lambda: before(x), lambda: other(x), CALLS // 20)
    print(f"goal: under {GOAL_US:g} µs a call: {'met' if alone < GOAL_US else 'not met'}")


if __name__ == "__main__":
    main()
