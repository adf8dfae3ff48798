"""A folder as evidence: the same from columns and from lines, and an answer whatever part of it is gone."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness.errors import NewerRecord, RecordError
from harness.evidence import Steps
from harness.records import PHASES, Event, Finished, Note, Step, event_to_json
from harness.run import columns, growing, series
from harness.run.columns import write_columns
from harness.run.folder import RunFolder
from harness.run.gather import gather
from harness.run.lines import read_lines
from harness.run.series import read_series
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


# --- steps -----------------------------------------------------------------------------------------------


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


# --- the folder ------------------------------------------------------------------------------------------


def test_what_a_whole_folder_says(tmp_path: Path) -> None:
    folder = samples.recorded(tmp_path)
    (folder.path / "code.patch").write_text("--- a/x\n+++ b/x\n")
    (folder.path / "stderr.log").write_bytes(b"10%\r50%\r\xff\n\nlast\n")
    evidence = gather(folder)
    assert evidence.gaps == ()
    assert evidence.run == folder.load()
    assert evidence.facts["environment.package.torch"] == "2.13.0+cpu"
    assert evidence.facts["workload.data.sequences"] == 900  # from what the child said
    assert evidence.started_t == 1.0
    assert evidence.compiles[0].misses == 12
    assert evidence.end == 18.5
    assert evidence.patch.startswith("--- a/x")
    assert evidence.stderr == ("10%", "50%", "\ufffd", "last")
    assert evidence.stdout == ("training",)
    assert list(evidence.telemetry["cpu.use_pct"].values) == [50.0 + n for n in range(9)]


@pytest.mark.parametrize("name", ["events.jsonl", "telemetry.jsonl"])
def test_a_record_that_is_cut_does_not_pass_as_whole(tmp_path: Path, name: str) -> None:
    folder = samples.recorded(tmp_path)
    path = folder.path / name
    data = path.read_bytes()
    path.write_bytes(data[:-5])
    assert gather(folder).gaps == (f"{name} ends in half a line, which is left out",)
    path.write_bytes(b"")
    unknown = {"events.jsonl": "no step is known", "telemetry.jsonl": "how the machine was doing is unknown"}
    assert gather(folder).gaps == (f"{name} is empty: {unknown[name]}",)


def test_events_that_end_with_a_whole_line_before_the_run_did_are_told(tmp_path: Path) -> None:
    folder = samples.recorded(tmp_path)
    path = folder.path / "events.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-3]))
    assert gather(folder).gaps == ("events.jsonl ends before the run did: what came after is unknown",)


FILES = (
    "spec.json", "fingerprint.json", "events.jsonl", "telemetry.jsonl", "stdout.log", "stderr.log", "code.patch",
    "caches.json", "result.json", "steps.parquet",
)  # fmt: skip
HARM = st.sampled_from(["missing", "empty", "torn", "noise", "other", "folder", "newer"])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = samples.recorded(tmp_path_factory.mktemp("whole"))
    (folder.path / "code.patch").write_text("a patch")
    write_columns(folder.path)
    return folder


@settings(max_examples=120)
@given(harm=st.dictionaries(st.sampled_from(FILES), HARM, max_size=len(FILES)))
@example(harm={"telemetry.jsonl": "empty", "events.jsonl": "empty"})
@example(harm=dict.fromkeys(FILES[1:], "missing"))
def test_any_part_may_be_gone(whole: RunFolder, harm: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = RunFolder(Path(name) / whole.id)
        shutil.copytree(whole.path, folder.path)
        for file, how in harm.items():
            damage(folder.path / file, how)
        if "spec.json" in harm or any(how == "newer" and file.endswith(".json") for file, how in harm.items()):
            with pytest.raises(RecordError, match=r"^[^\n]+\Z"):
                gather(folder)
            return
        evidence = gather(folder)
        assert all("\n" not in gap for gap in evidence.gaps)
        seen = {gap.split()[0] for gap in evidence.gaps}
        assert seen <= set(harm)  # what is whole is not complained of
        for file in ("fingerprint.json", "result.json", "caches.json", "events.jsonl", "telemetry.jsonl"):
            if harm.get(file) in ("missing", "folder"):
                assert file in seen
        if "events.jsonl" not in harm or "steps.parquet" not in harm:
            assert len(evidence.steps["drafter"]) == 40
        if "result.json" not in harm:
            assert evidence.run.result.status == "finished"


def damage(path: Path, how: str) -> None:
    data = path.read_bytes()
    path.unlink()
    if how == "folder":
        path.mkdir()
    elif how != "missing":
        path.write_bytes(
            {
                "empty": b"",
                "torn": data[: len(data) // 2],
                "noise": bytes(range(256)) * 9,
                "other": b'["no object", {"t": 1}]\n{"facts": 5, "summary": []}\n{"facts": [], "t": "x"}\n',
                "newer": b'{"schema": 99}\n',
            }[how]
        )


def test_a_folder_that_is_no_run_or_a_later_versions_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"is not a run folder: it has no spec.json; `harness runs` lists the runs"):
        gather(RunFolder(tmp_path))
    folder = samples.recorded(tmp_path)
    folder.write_json("fingerprint.json", {"schema": 2, "facts": {}})
    with pytest.raises(NewerRecord, match=r"has schema 2 and this version reads 1: update the harness"):
        gather(folder)


def test_a_run_that_still_runs_is_taken_as_it_stands(tmp_path: Path) -> None:
    folder = samples.begin(tmp_path, "20261129-172855-tiny-3f2a")
    samples.append(folder, samples.events()[:20])
    with folder.held():
        evidence = gather(folder)
        assert evidence.run.result.status == "running"
    assert "the run is still running: it is taken as it stands" in evidence.gaps
    assert len(evidence.steps["drafter"]) == 15
    dead = gather(folder).run.result
    assert (dead.status, dead.reason) == ("killed", "the harness died before the run ended")


@pytest.mark.parametrize(("cut", "status"), [(0, "finished"), (1, "killed")])
def test_without_a_result_the_events_say_how_it_ended(tmp_path: Path, cut: int, status: str) -> None:
    folder = samples.begin(tmp_path, "20261129-172855-tiny-3f2a")
    said = samples.events()
    samples.append(folder, said[: len(said) - cut])
    (folder.path / "result.json").unlink()
    assert gather(folder).run.result.status == status


def test_without_a_fingerprint_the_request_is_known(tmp_path: Path) -> None:
    folder = samples.recorded(tmp_path)
    (folder.path / "fingerprint.json").unlink()
    evidence = gather(folder)
    assert evidence.facts["workload.train.batch"] == 8
    assert evidence.facts["workload.data.sequences"] == 900
    assert "environment.python" not in evidence.facts
    assert evidence.gaps == ("fingerprint.json is missing: only what was asked for is known of it",)


def test_the_end_of_a_long_log_is_whole_lines(tmp_path: Path) -> None:
    folder = samples.recorded(tmp_path)
    (folder.path / "stderr.log").write_text("".join(f"line {n}\n" for n in range(20_000)))
    lines = gather(folder).stderr
    assert lines[-1] == "line 19999"
    assert sum(len(line) + 1 for line in lines) <= 64 << 10
    assert all(line.startswith("line ") for line in lines)


# --- telemetry -------------------------------------------------------------------------------------------


def test_telemetry_is_named_by_the_way_to_it(tmp_path: Path) -> None:
    samples_ = [
        {"schema": 1, "t": 0.0, "cpu": {"use_pct": 5}, "gpus": [{"index": 3, "power_w": 70.5, "throttle": ""}]},
        {"schema": 1, "t": 2.0, "gpus": [{"index": 3, "power_w": 600, "throttle": "power_cap,sync_boost"}]},
        {"t": 4.0, "gpus": [{"index": 3, "throttle": "power_cap"}, {"index": 4, "power_w": None}], "note": [1]},
    ]
    path = tmp_path / "telemetry.jsonl"
    path.write_text("".join(json.dumps(s) + "\n" for s in samples_) + '{"t": 6.0}{\n{"cpu": {}}\n{"t":8.0,"cp')
    found, skipped = read_series(path)
    assert skipped == 2
    assert {name: (list(s.t), list(s.values)) for name, s in found.items()} == {
        "cpu.use_pct": ([0.0], [5.0]),
        "gpu.3.power_w": ([0.0, 2.0], [70.5, 600.0]),
        "gpu.3.throttle.idle": ([0.0, 2.0, 4.0], [0.0, 0.0, 0.0]),
        "gpu.3.throttle.power_cap": ([0.0, 2.0, 4.0], [0.0, 1.0, 1.0]),
        "gpu.3.throttle.sync_boost": ([0.0, 2.0, 4.0], [0.0, 1.0, 0.0]),
    }


@pytest.mark.parametrize(("count", "least", "most"), [(150, 150, 150), (1000, 90, 101), (30_000, 90, 101)])
def test_of_a_very_long_run_some_samples_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, least: int, most: int
) -> None:
    monkeypatch.setattr(series, "MOST", 100)
    path = tmp_path / "telemetry.jsonl"
    path.write_text("".join(json.dumps({"t": n, "cpu": {"use_pct": n % 7}}) + "\n" for n in range(count)))
    found, skipped = read_series(path)
    times = found["cpu.use_pct"].t
    assert not skipped
    assert least <= len(times) <= most
    assert np.all(np.diff(times) > 0)
    assert np.all(np.abs(np.diff(times) - count / len(times)) < 0.2 * count / len(times) + 1)
    assert times[0] == 0
    assert times[-1] >= 0.97 * (count - 1)
    assert list(found["cpu.use_pct"].values) == [t % 7 for t in times]
