"""The table of docs/compile-threads.md, from ``harness race --json``: ``python -m benchmarks.race_table FILES...``

One row a version of torch, what was compiled, backend and shapes; one column a guard: how many of its tries passed, and
how the others ended. Tries of one cell in several files add up.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.run.race.grid import GUARDS, WORK

Row = tuple[str, str, str, str]


@dataclass
class Counted:
    """The tries of one cell, over all files. ``seen``: those in which the tracing error was seen before the end."""

    outcomes: Counter[str] = field(default_factory=Counter)
    seen: int = 0

    def add(self, cell: Mapping[str, Any]) -> None:
        self.outcomes.update(cell["outcomes"])
        self.seen += cell["seen"]

    def __str__(self) -> str:
        if not self.outcomes:
            return ""
        tries, passed = self.outcomes.total(), self.outcomes["passed"]
        others = [f"{name} {count}" for name, count in self.outcomes.most_common() if name != "passed"]
        hidden = self.seen - self.outcomes["tracing error"]
        others += [f"tracing error seen before that {hidden}"] if hidden else []
        return f"{passed} of {tries}" + (f": {', '.join(others)}" if others else "")


def table(races: Iterable[Mapping[str, Any]]) -> str:
    """Markdown: the guards that were tried are the columns."""
    counted: dict[Row, dict[str, Counted]] = defaultdict(lambda: defaultdict(Counted))
    for race in races:
        for cell in race["cells"]:
            row = (cell["torch"], WORK[cell["work"]], cell["backend"], cell["shapes"])
            counted[row][cell["guard"]].add(cell)
    guards = [guard for guard in GUARDS if any(guard in cells for cells in counted.values())]
    head = ["torch", "compiled", "backend", "shapes", *guards]
    rows = [[*row, *(str(counted[row][guard]) for guard in guards)] for row in sorted(counted, key=_order)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, ["---"] * len(head), *rows])


def _order(row: Row) -> tuple[list[int], tuple[str, ...]]:
    version, *rest = row
    return [int(part) for part in version.partition("+")[0].split(".")], tuple(rest)


def caption(races: Sequence[Mapping[str, Any]]) -> str:
    """When, on what, and from which code."""
    days = sorted({time.strftime("%Y-%m-%d", time.gmtime(race["began_at"])) for race in races})
    cpus = {str(race["machine"].get("environment.cpu.model", "an unknown processor")) for race in races}
    code = {str(race["machine"]["code.commit"])[:12] for race in races if "code.commit" in race["machine"]}
    threads = sorted({race["grid"]["threads"] for race in races})
    tries = sum(len(race["tries"]) for race in races)
    of = f"; code {', '.join(sorted(code))}" if code else ""
    return (
        f"{tries} tries, {' to '.join(dict.fromkeys((days[0], days[-1])))}, {', '.join(map(str, threads))} threads, "
        f"on {', '.join(sorted(cpus))}{of}."
    )


def main(paths: Sequence[str]) -> None:
    races = [json.loads(Path(path).read_text(encoding="utf-8")) for path in paths]
    print(f"{caption(races)}\n\n{table(races)}")


if __name__ == "__main__":
    if not sys.argv[1:]:
        sys.exit("usage: python -m benchmarks.race_table FILES...")
    main(sys.argv[1:])
