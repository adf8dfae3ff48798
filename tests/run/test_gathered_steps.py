"""The steps of a folder: the same from columns and from lines, and neither believed where it is wrong."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import NewerRecord
from harness.evidence import Steps
from harness.records import PHASES, Event, Finished, Note, Step, event_to_json
from harness.run import columns, growing
from harness.run.columns import write_columns
from harness.run.folder import RunFolder
from harness.run.gather import gather
from harness.run.lines import read_lines
from tests import samples

FINITE = st.floats(0, 1e6, allow_nan=False)
STEPS = st.builds(
    Step,
    t=FINITE,
    step=st.integers(1, 10**9),
    role=st.sampled_from(["drafter", "target"]),
    device=st.sampled_from(["cpu", "cuda:5", "cuda:6"]),
    seconds=FINITE,
    tokens=st.integers(0, 2**40),
    padding=st.integers(0, 2**40),
    phases=st.dictionaries(st.sampled_from(PHASES), FINITE),
    metrics=st.dictionaries(st.sampled_from(["loss", "lr"]), FINITE | st.just(float("nan"))),
)


def written(folder: Path, events: list[Event]) -> RunFolder:
    run = samples.begin(folder, "20261129-172855-tiny-3f2a")
    with (run.path / "events.jsonl").open("w") as file:
        for event in (*events, Finished(10_000.0)):
            data = event_to_json(event)
            if isinstance(event, Step):  # as the recorder spells what is not finite
                data["metrics"] = {k: None if v != v else v for k, v in event.metrics.items()}
            file.write(json.dumps(data, separators=(",", ":")) + "\n")
    samples.end(run)
    return run


def rows(steps: Steps) -> list[tuple[object, ...]]:
    """Each step as a tuple without order, so that ties in time compare equal."""
    loss = steps.loss if steps.loss is not None else np.full(len(steps), np.nan)
    phases = sorted(steps.phases)
    return sorted(
        (
            float(steps.t[i]),
            int(steps.step[i]),
            steps.devices[steps.device[i]],
            float(steps.seconds[i]),
            int(steps.tokens[i]),
            int(steps.padding[i]),
            str(loss[i]),
            tuple((name, float(steps.phases[name][i])) for name in phases),
        )
        for i in range(len(steps))
    )


@settings(max_examples=30)
@given(st.lists(STEPS, max_size=25), st.integers(1, 7))
def test_columns_and_lines_say_the_same(events: list[Event], chunk: int) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(growing, "CHUNK", chunk)  # chunks and row groups begin and end within the few steps of a test
        patch.setattr(columns, "ROWS", chunk)
        folder = written(Path(name), events)
        lines = gather(folder)
        write_columns(folder.path)
        table = gather(folder)
        said = [event for event in events if isinstance(event, Step)]
        assert {role: rows(steps) for role, steps in table.steps.items()} == {
            role: rows(steps) for role, steps in lines.steps.items()
        }
        assert sum(map(len, lines.steps.values())) == len(said)
        for role, steps in lines.steps.items():
            mine = [event for event in said if event.role == role]
            assert np.all(np.diff(steps.t) >= 0)
            assert int(steps.tokens.sum()) == sum(event.tokens for event in mine)
            for phase in PHASES:
                total = sum(event.phases.get(phase, 0.0) for event in mine)
                assert float(steps.phases.get(phase, np.zeros(1)).sum()) == pytest.approx(total)
        assert not lines.gaps
        assert table.end == lines.end


def test_with_columns_no_step_line_is_parsed(tmp_path: Path) -> None:
    folder = samples.recorded(tmp_path)
    write_columns(folder.path)
    path = folder.path / "events.jsonl"
    lines = [event_to_json(event) for event in samples.events()]
    text = [
        '{"kind":"step",and no JSON at all\n' if data["kind"] == "step" else json.dumps(data) + "\n" for data in lines
    ]
    path.write_text("".join(text))
    evidence = gather(folder)
    assert not evidence.gaps
    assert len(evidence.steps["drafter"]) == 40
    assert [e.name for e in evidence.evals] == ["repeat_anchor", "ngram", "before", "after"]
    assert evidence.finished is not None
    (folder.path / columns.NAME).unlink()
    assert gather(folder).gaps == ("events.jsonl has 40 lines that are no events: left out",)


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("t", pa.array(["soon"])),
        ("tokens", pa.array([1.5])),
        ("seconds", pa.array([None], pa.float64())),
        ("seconds", pa.array([-1.0])),
        ("step", None),
        ("role", pa.array(["drafter"])),
        ("device", pa.array([None], pa.dictionary(pa.int32(), pa.string()))),
        ("phase.data", pa.array([1])),
    ],
)
def test_columns_of_another_shape_are_not_believed(tmp_path: Path, name: str, column: pa.Array | None) -> None:
    folder = samples.recorded(tmp_path)
    write_columns(folder.path)
    table = columns.read_columns(folder.path).slice(0, 1)
    table = table.drop_columns([name])
    pq.write_table(table if column is None else table.append_column(name, column), folder.path / columns.NAME)
    evidence = gather(folder)
    assert len(evidence.steps["drafter"]) == 40  # from the lines
    assert evidence.gaps[0].startswith("steps.parquet cannot be read (column ")


def test_columns_of_a_later_version_are_refused(tmp_path: Path) -> None:
    folder = samples.recorded(tmp_path)
    write_columns(folder.path)
    table = columns.read_columns(folder.path).replace_schema_metadata({"harness.schema": "2"})
    pq.write_table(table, folder.path / columns.NAME)
    with pytest.raises(NewerRecord, match=r"steps.parquet has schema 2 and this version reads 1: update the harness"):
        gather(folder)


def test_lines_that_are_no_steps_are_left_out_alone(tmp_path: Path) -> None:
    good = {"kind": "step", "t": 1.0, "step": 1, "role": "r", "device": "cpu", "seconds": 0.5, "tokens": 3}
    bad = [
        {**good, "seconds": None},
        {**good, "seconds": -1.0},
        {**good, "t": "soon"},
        {**good, "step": 0},
        {**good, "tokens": 2**70},
        {**good, "phases": {"data": "x"}},
        {**good, "phases": None},
        {**good, "role": 5},
        {**good, "role": []},
        {"kind": "step"},
        [],
        {"t": 1.0},
        {"kind": "compile", "t": 1.0, "name": "g", "seconds": None},
        {"kind": "note", "t": 1.0, "text": 5},
        {"kind": "started", "t": 1.0, "pid": 1, "facts": []},
    ]
    path = tmp_path / "events.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in [good, *bad, good]) + '{"kind":"step","t":2.0,"st')
    found = read_lines(path, steps=True)
    steps = found.steps.finish()
    assert [len(each) for each in steps.values()] == [2]
    assert found.skipped + found.steps.skipped == len(bad)
    assert found.torn
    assert not found.others


def test_a_later_versions_event_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text('{"kind":"dream","t":1.0}\n{"kind":"note","t":2.0,"text":"a","more":1}\n')
    found = read_lines(tmp_path / "events.jsonl", steps=True)
    assert found.others == [Note(2.0, "a")]
    assert found.skipped == 0
