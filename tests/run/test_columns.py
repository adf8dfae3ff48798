"""steps.parquet says what the JSON lines say, and is written in bounded memory."""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.records import PHASES
from harness.run import columns

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
NAMES = st.sampled_from(["loss", "lr", "grad_norm", "a/b", "t", "Ω"])

STEPS = st.fixed_dictionaries(
    {
        "kind": st.just("step"),
        "t": FLOATS,
        "step": st.integers(1, 2**53),
        "role": st.sampled_from(["drafter", "target"]),
        "device": st.sampled_from(["cpu", "cuda:5"]),
        "seconds": FLOATS,
        "tokens": st.integers(0, 2**40),
        "padding": st.integers(0, 2**40),
        "phases": st.dictionaries(st.sampled_from(PHASES), FLOATS),
        "metrics": st.dictionaries(NAMES, st.none() | FLOATS),  # null: not a number
    }
)
OTHERS = st.just({"kind": "note", "t": 1.0, "text": "hello", "level": "info"})

ONE = {
    "kind": "step", "t": 1.0, "step": 1, "role": "r", "device": "cpu", "seconds": 0.5, "tokens": 3, "padding": 0,
    "phases": {}, "metrics": {},
}  # fmt: skip


def write(folder: Path, events: list[dict[str, Any]], tail: str = "") -> None:
    (folder / "events.jsonl").write_text("".join(json.dumps(e) + "\n" for e in events) + tail)


def back(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the table as the JSON object of its event: absent is null there, null is NaN."""
    event: dict[str, Any] = {"kind": "step", "phases": {}, "metrics": {}}
    for name, value in row.items():
        group, dot, key = name.partition(".")
        if not dot:
            event[name] = value
        elif value is not None:
            event[{"phase": "phases", "metric": "metrics"}[group]][key] = None if math.isnan(value) else value
    return event


@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS | OTHERS, max_size=30), st.integers(1, 7))
def test_the_table_says_what_the_lines_say(events: list[dict[str, Any]], rows: int) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "ROWS", rows)  # row groups begin and end within the few steps of a test
        folder = Path(name)
        write(folder, events)
        steps = [event for event in events if event["kind"] == "step"]
        assert columns.write_columns(folder) == len(steps)
        if steps:
            assert [back(row) for row in columns.read_columns(folder).to_pylist()] == steps
        assert {p.name for p in folder.iterdir()} == {"events.jsonl", *(["steps.parquet"] if steps else [])}


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, [ONE], tail='{"kind":"step","t":2.0,"st')
    assert columns.write_columns(tmp_path) == 1
    assert columns.read_columns(tmp_path, ["tokens"]).to_pydict() == {"tokens": [3]}


def test_a_failed_write_leaves_the_file_that_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, [ONE])
    columns.write_columns(tmp_path)
    before = (tmp_path / "steps.parquet").read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(columns, "_table", full)
    with pytest.raises(OSError, match="No space"):
        columns.write_columns(tmp_path)
    assert (tmp_path / "steps.parquet").read_bytes() == before
    assert not list(tmp_path.glob(".steps*"))
