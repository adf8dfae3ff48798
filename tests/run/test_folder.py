"""The run folder: written whole or not at all, read whatever a kill left, found by what a person types."""

from __future__ import annotations

import json
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import RecordError, UsageError
from harness.records import Note, RunSpec, event_to_json
from harness.run.folder import EventTail, LineTail, RunFolder, find, run_folders


def written(runs: Path, name: str = "toy") -> RunFolder:
    folder = RunFolder.create(runs, name)
    folder.write_json("spec.json", RunSpec(name, "", ("true",)).to_json())
    return folder


def line(number: int) -> bytes:
    return json.dumps(event_to_json(Note(float(number), f"note {number}"))).encode() + b"\n"


def test_a_torn_last_line_waits_and_is_read_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    tail = EventTail(path)
    assert list(tail.poll()) == []
    path.write_bytes(line(1) + line(2)[:-9])
    assert [event.t for event in tail.poll()] == [1.0]
    assert list(tail.poll()) == []
    path.write_bytes(line(1) + line(2) + line(3))
    assert [event.t for event in tail.poll()] == [2.0, 3.0]


def test_a_line_torn_in_the_middle_and_kinds_of_a_later_version_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(line(1) + line(2)[:20] + line(3) + b'{"kind":"of a later version","t":1}\n[]\n' + line(4))
    tail = EventTail(path)
    assert [event.t for event in tail.poll()] == [1.0, 4.0]
    assert tail.skipped == 2


@given(st.lists(st.integers(0, 400), max_size=6))
def test_however_the_file_grows_the_events_are_the_same(cuts: list[int]) -> None:
    data = b"".join(line(number) for number in range(6))
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "events.jsonl"
        tail = EventTail(path)
        seen = []
        for size in [*sorted(cuts), len(data)]:
            path.write_bytes(data[:size])
            seen += [event.t for event in tail.poll()]
    assert seen == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.write_json("result.json", {"n": 0})
    stop = threading.Event()

    def write() -> None:
        for number in range(200):
            folder.write_json("result.json", {"n": number, "ballast": "x" * 20_000})
        stop.set()

    writer = threading.Thread(target=write)
    writer.start()
    reads = 0
    while not stop.is_set():
        data = folder.read_json("result.json")
        assert data is not None
        reads += 1
    writer.join()
    assert reads > 10
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]  # nothing is left beside it


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "cannot be read"), ("[]", "not a JSON object"), ('{"schema": 99}', "schema 99 and this version reads 1")],
)
def test_a_record_that_cannot_be_read_says_which_and_why(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "spec.json").write_text(text)
    with pytest.raises(RecordError, match=message):
        RunFolder(tmp_path).load()


def test_a_folder_without_a_spec_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="harness runs"):
        RunFolder(tmp_path).load()


def test_the_lock_tells_a_living_harness_from_a_dead_one(tmp_path: Path) -> None:
    folder = written(tmp_path)
    assert folder.result().status == "killed"
    with folder.held():
        assert folder.alive
        assert folder.result().status == "running"
        with pytest.raises(RecordError, match="still running"), RunFolder(folder.path).held():
            pass
    assert folder.result().status == "killed"


def test_names_are_distinct_and_fit_a_file_system(tmp_path: Path) -> None:
    folders = [RunFolder.create(tmp_path, "My Trainer/v2.py") for _ in range(50)]
    assert len({folder.id for folder in folders}) == 50
    assert all(folder.id.split("-")[2] == "my_trainer_v2.py" for folder in folders)


def test_a_run_is_found_by_what_a_person_types(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = (written(tmp_path / "runs") for _ in range(3))
    runs = tmp_path / "runs"
    (runs / "no run").mkdir()
    assert run_folders(runs) == [third, second, first]
    assert find(runs, "@1") == third
    assert find(runs, "@3") == first
    assert find(runs, second.id) == second
    assert find(runs, str(first.path)) == first
    monkeypatch.chdir(runs)
    assert find(Path("/elsewhere"), f"./{first.id}") == first
    for reference, message in {
        "@4": "there are 3",
        "@x": "@1 is the latest",
        "20": "3 runs start so",
        "zz": "no run",
    }.items():
        with pytest.raises(UsageError, match=message):
            find(runs, reference)


def test_one_run_is_found_by_the_start_of_its_id(tmp_path: Path) -> None:
    folder = written(tmp_path)
    assert find(tmp_path, folder.id[:9]) == folder


@pytest.mark.parametrize("damage", [b"not json\n", b"[1, 2]\n", b'{"a": \n', b"\xff\xfe\n", b"\n", b"null\n"])
def test_a_damaged_line_of_telemetry_costs_that_line_alone(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "telemetry.jsonl"
    path.write_bytes(b'{"t": 1}\n' + damage + b'{"t": 2}\n{"t": 3')
    tail = LineTail(path)
    assert [line["t"] for line in tail.poll()] == [1, 2]
    assert tail.skipped == 1
    with path.open("ab") as file:
        file.write(b"}\n")
    assert [line["t"] for line in tail.poll()] == [3]
