"""What each topology costs on the CPU: ``nox -s bench -- topologies``. About twelve minutes; wants two idle cores.

One target and one drafter, the size of ``tiny``, compiled and not: taking turns on one device (inline), as two threads,
as two processes. All compute the same. Rounds are interleaved, and each figure is the median of its rounds; what counts
are the ratios to inline of the same round. A training's time to its first step includes imports and compiling.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.gpu import TINY, elsewhere, figures, one_training
from experiments.dflash.config import Backend, DFlashConfig, TrainConfig
from experiments.dflash.layout import TopologyConfig

ROUNDS = 3
BACKENDS: tuple[Backend, ...] = ("none", "inductor")
TOPOLOGIES = {
    "inline": TopologyConfig(),
    "threads": TopologyConfig("threads", "cpu:0", "cpu:1"),
    "processes": TopologyConfig("processes", "cpu:0", "cpu:1"),
}


@dataclass(frozen=True)
class Took:
    """One training: tokens a second at its median step, and the seconds beside its steps after the first."""

    tokens_a_second: float
    until_second_step_s: float


def cells() -> Iterator[tuple[str, Backend, DFlashConfig]]:
    """Every topology with every backend."""
    for backend in BACKENDS:
        for name, topology in TOPOLOGIES.items():
            device = "cpu" if topology.kind == "inline" else "auto"
            train = TrainConfig(steps=40, batch=12)
            yield name, backend, replace(TINY, train=train, topology=topology, compile=backend, device=device)


def measured(config: DFlashConfig, folder: Path) -> Took:
    """Train in a process of its own. Raises RuntimeError where that fails."""
    folder.mkdir()
    began = time.monotonic()
    if failed := elsewhere(config, folder):
        raise RuntimeError(failed)
    whole = time.monotonic() - began
    found = figures("", folder)
    assert found.tokens_a_second is not None
    return Took(found.tokens_a_second, whole - found.step_s * (config.train.steps - 1))


def rounds(count: int, console: Console) -> dict[tuple[Backend, str], list[Took]]:
    """All cells, round after round."""
    found: dict[tuple[Backend, str], list[Took]] = {}
    with tempfile.TemporaryDirectory(prefix="topologies-") as scratch:
        for number in range(1, count + 1):
            for name, backend, config in cells():
                took = measured(config, Path(scratch) / f"{number}-{name}-{backend}")
                found.setdefault((backend, name), []).append(took)
                console.print(f"round {number} of {count}: {backend}, {name}: {took.tokens_a_second:,.0f} tokens/s")
    return found


def table(found: dict[tuple[Backend, str], list[Took]]) -> Table:
    """Medians over the rounds; the ratios are to inline of the same round, with the least and the greatest."""
    shown = Table("compile", "topology", "tokens/s", "to inline", "to the second step, s")
    for (backend, name), every in found.items():
        base = found[backend, "inline"]
        ratios = [mine.tokens_a_second / other.tokens_a_second for mine, other in zip(every, base, strict=True)]
        speed = statistics.median(took.tokens_a_second for took in every)
        until = statistics.median(took.until_second_step_s for took in every)
        span = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        shown.add_row(backend, name, f"{speed:,.0f}", span, f"{until:.1f}")
    return shown


def main() -> int:
    """The benchmark; or, where it started this process, one training of it."""
    if "HARNESS_RUN" in os.environ:
        return one_training()
    console = Console()
    console.print(table(rounds(ROUNDS, console)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
