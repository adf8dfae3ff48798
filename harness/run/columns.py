"""``steps.parquet``: the steps of a finished run as columns. A million steps are 0.4 GB of JSON lines and slow to read.

Columns: ``t, step, role, device, seconds, tokens, padding``, a ``phase.NAME`` for every phase that there is and a
``metric.NAME`` for every metric of the run. A phase or metric that a step did not report is null; one that it
reported as not a number is NaN.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from harness.records import PHASES, SCHEMA, Step
from harness.run.folder import RunFolder

NAME = "steps.parquet"
ROWS = 20_000  # steps a row group: what is in memory at once

_TEXT = pa.dictionary(pa.int32(), pa.string())
_FIXED = {
    "t": pa.float64(),
    "step": pa.int64(),
    "role": _TEXT,
    "device": _TEXT,
    "seconds": pa.float64(),
    "tokens": pa.int64(),
    "padding": pa.int64(),
}


class _NewColumn(Exception):
    """A step reports what no step before it did; raised and caught in this module alone."""


def write_columns(folder: Path) -> int:
    """Write ``steps.parquet`` from ``events.jsonl`` and return how many steps it holds; no file where there are none.

    Memory is bounded whatever the run's length: the file is written a row group at a time, and begun again, with one
    more column, when a step reports a metric that no step before it did. A reader never sees half a file.
    """
    target, aside = folder / NAME, folder / f".{NAME}.{os.getpid()}"
    names = {f"phase.{name}": None for name in PHASES}  # a dict keeps the order
    try:
        while True:
            try:
                count = _write(folder, aside, tuple(names))
                break
            except _NewColumn as new:
                names[str(new)] = None
        if count:
            aside.replace(target)
    finally:
        aside.unlink(missing_ok=True)
    return count


def read_columns(folder: Path, columns: list[str] | None = None) -> pa.Table:
    """The steps of a run as a table, or only ``columns`` of it. Raises FileNotFoundError where no step was written."""
    return pq.read_table(folder / NAME, columns=columns)


def _write(folder: Path, path: Path, names: tuple[str, ...]) -> int:
    schema = pa.schema(
        [*_FIXED.items(), *((name, pa.float64()) for name in names)], metadata={"harness.schema": str(SCHEMA)}
    )
    count = 0
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        steps = _steps(folder)
        while batch := list(islice(steps, ROWS)):
            writer.write_table(_table(batch, schema))
            count += len(batch)
    return count


def _steps(folder: Path) -> Iterator[Step]:
    return (event for event in RunFolder(folder).events() if isinstance(event, Step))


def _table(batch: Sequence[Step], schema: pa.Schema) -> pa.Table:
    columns: dict[str, list[Any]] = {name: [getattr(step, name) for step in batch] for name in _FIXED}
    for prefix, reported in (("phase", [step.phases for step in batch]), ("metric", [step.metrics for step in batch])):
        for key in sorted(set().union(*reported)):
            columns[f"{prefix}.{key}"] = [_number(values, key) for values in reported]
    new = next((name for name in columns if name not in schema.names), None)
    if new is not None:
        raise _NewColumn(new)
    absent = [None] * len(batch)
    return pa.table([pa.array(columns.get(f.name, absent), f.type) for f in schema], schema=schema)


def _number(values: Mapping[str, float | None], key: str) -> float | None:
    """None where the step did not report it, NaN where it reported null: JSON has no NaN."""
    value = values.get(key)
    return math.nan if value is None and key in values else value
