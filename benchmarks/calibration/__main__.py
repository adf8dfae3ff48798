"""How often the statistics of explain are right: ``python -m benchmarks.calibration [--quick] [--toy N] [--write]``.

Simulated runs in which nothing changed, or as much as we say; others' methods on the same series; and real runs of
``toy``. Seeds are fixed: the simulated figures come out the same each time.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click

from benchmarks.calibration import inside, real, rivals, runs
from benchmarks.calibration.tables import Table
from harness.places import places

HEAD = """# Calibration

Written by `python -m benchmarks.calibration --write`; the methods are in [statistics.md](statistics.md). Simulated runs
(`benchmarks/calibration/series.py`) in which the truth is known, others' methods on the same series, and real runs.
"""


@click.command()
@click.option("--quick", is_flag=True, help="A tenth of the simulations.")
@click.option("--toy", "toys", default=0, metavar="N", help="Make N real runs of toy, and N slowed ones, too.")
@click.option("--json", "as_json", is_flag=True, help="The figures as JSON.")
@click.option("--write", is_flag=True, help="Write docs/calibration.md.")
def main(quick: bool, toys: int, as_json: bool, write: bool) -> None:
    """Print the tables, each as soon as it is there."""
    found: list[Table] = []
    for table in measure(0.1 if quick else 1.0, toys):
        found.append(table)
        click.echo(f"\n{table.text()}", err=as_json)
        sys.stdout.flush()
    if as_json:
        click.echo(json.dumps([asdict(table) for table in found], indent=1))
    if write:
        path = Path(places().root) / "docs" / "calibration.md"
        path.write_text("\n\n".join([HEAD.strip(), *(table.text() for table in found)]) + "\n", "utf-8")
        click.echo(f"wrote {path}", err=True)


def measure(share: float, toys: int) -> Iterator[Table]:
    """Every table; ``share`` of the full number of simulations."""
    yield from runs.tables(runs.cells(int(1000 * share)))
    settings = [(side, relative) for side in (1, 4) for relative in (False, True)]
    yield from rivals.tables([rivals.score(int(300 * share), *setting) for setting in settings])
    yield inside.false_alarms(int(200 * share))
    yield inside.power(max(20, int(40 * share)))
    if toys:
        yield real.calibrate(toys)


if __name__ == "__main__":
    main()
