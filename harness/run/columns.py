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

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from harness.errors import NewerRecord
from harness.evidence import Floats, Steps, Whole
from harness.records import PHASES, SCHEMA, Step
from harness.run.folder import RunFolder
from harness.run.growing import in_time
from harness.steady import Mask

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

_NUMPY = {pa.float64(): np.float64, pa.int64(): np.int64, pa.int32(): np.int32}


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


def read_steps(folder: Path) -> dict[str, Steps]:
    """The steps by role, the first to be seen first; a column is in memory once, whatever the number of roles.

    Raises FileNotFoundError where there is no such file, NewerRecord where a later version wrote it, and
    ValueError where it is no such file or holds what is no step.
    """
    try:
        with pq.ParquetFile(folder / NAME) as file:
            return _by_role(file)
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise ValueError(str(error).splitlines()[0]) from None


def _by_role(file: pq.ParquetFile) -> dict[str, Steps]:
    names = file.schema_arrow.names
    schema = int((file.schema_arrow.metadata or {}).get(b"harness.schema", SCHEMA))
    if schema > SCHEMA:
        raise NewerRecord(f"{NAME} has schema {schema} and this version reads {SCHEMA}: update the harness")
    kinds = {**_FIXED, **{name: pa.float64() for name in names if name.startswith("phase.") or name == "metric.loss"}}
    wrong = [name for name, kind in kinds.items() if name not in names or file.schema_arrow.field(name).type != kind]
    if wrong:
        raise ValueError(f"column {wrong[0]} is not there, or is no {kinds[wrong[0]]}")
    role, roles = _labels(file, "role")
    of = {name: index for number, name in enumerate(roles) if len(index := np.flatnonzero(role == number))}
    found: dict[str, dict[str, Any]] = {name: {} for name in of}
    for column in ("t", "seconds", "step", "tokens", "padding"):
        values = _numbers(file, column)
        for name, index in of.items():
            found[name][column] = _of_role(values, index)
    device, devices = _labels(file, "device")
    loss = _loss(file) if "metric.loss" in names else None
    for name, index in of.items():
        mine = _of_role(device, index)
        used = np.bincount(mine, minlength=len(devices)) > 0
        found[name]["device"] = (np.cumsum(used) - 1)[mine]
        found[name]["devices"] = tuple(devices[number] for number in np.flatnonzero(used))
        found[name]["loss"] = None if loss is None else _of_role(loss, index)
        found[name]["phases"] = {}
    for column in (name for name in names if name.startswith("phase.")):
        values = _numbers(file, column)
        values = np.where(np.isfinite(values), values, 0.0)  # not reported
        for name, index in of.items():
            part = _of_role(values, index)
            if part.any():
                found[name]["phases"][column.removeprefix("phase.")] = part
    return {name: in_time(Steps(**columns)) for name, columns in found.items()}


def _of_role(values: Any, index: Whole) -> Any:
    """The values at ``index``: themselves, and no copy, where there is one role."""
    return values if len(index) == len(values) else values[index]


def _numbers(file: pq.ParquetFile, name: str) -> Any:
    """A column as numbers, NaN where it is empty. Raises ValueError where it holds what is no step's."""
    values, valid = _values(file.read([name]).column(0))
    if name in _FIXED and not (valid.all() and np.isfinite(values).all() and (name == "t" or values.min() >= 0)):
        raise ValueError(f"column {name} holds what is no step's")
    return values


def _loss(file: pq.ParquetFile) -> Floats:
    """NaN where a step reported none; infinity where it was not finite, which the column spells NaN."""
    values, valid = _values(file.read(["metric.loss"]).column(0))
    return np.where(valid & ~np.isfinite(values), math.inf, values)


def _labels(file: pq.ParquetFile, name: str) -> tuple[Whole, list[str]]:
    """A column of texts as indices into its different texts, the first to be seen first."""
    column = file.read([name]).column(0).unify_dictionaries()
    indices, valid = _values(pa.chunked_array([chunk.indices for chunk in column.chunks], pa.int32()))
    if not valid.all():
        raise ValueError(f"column {name} holds what is no step's")
    return indices.astype(np.int64), column.chunk(0).dictionary.to_pylist() if len(indices) else []


def _values(column: pa.ChunkedArray) -> tuple[Any, Mask]:
    """A column's numbers, and which of them are there. pyarrow's own ``to_numpy`` takes a second to load pandas."""
    found, there = [np.zeros(0, _NUMPY[column.type])], [np.zeros(0, dtype=bool)]
    for chunk in column.chunks:
        bits, data = chunk.buffers()
        part = slice(chunk.offset, chunk.offset + len(chunk))
        values = np.frombuffer(data, _NUMPY[column.type])[part]
        valid = np.ones(len(chunk), dtype=bool)
        if bits is not None and chunk.null_count:
            valid = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")[part].astype(bool)
            values = np.where(valid, values, math.nan if values.dtype == np.float64 else 0)
        found.append(values)
        there.append(valid)
    return np.concatenate(found), np.concatenate(there)


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
