"""The runs of one workload, the index of them, and the baseline."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from harness.errors import RecordError, UsageError
from harness.explain.comparing.comparable import work
from harness.records import Value, digest
from harness.run import history
from harness.run.folder import RunFolder
from harness.run.history import BASELINES, INDEX, baseline_of, earlier, set_baseline
from tests import samples

BASE: Mapping[str, Value] = {"train.batch": 8, "train.lr": 3e-4, "train.steps": 40, "train.seed": 0}


def run(runs: Path, number: int, speed: float = 1.0, **changed: Value) -> RunFolder:
    """A recorded run that began ``number`` hours in, with these facts of its workload changed."""
    folder = samples.recorded(runs, f"20261129-{number:02}0000-tiny-{number:04x}", speed=speed)
    facts = {f"workload.{name}": value for name, value in BASE.items()}
    facts |= {f"workload.{name.replace('__', '.')}": value for name, value in changed.items()}
    folder.write_json("fingerprint.json", {"facts": {**samples.FACTS, **facts}})
    result = json.loads((folder.path / "result.json").read_text())
    folder.write_json("result.json", {**result, "started_at": samples.STARTED_AT + 3600 * number})
    return folder


def test_earlier_runs_are_those_of_the_same_work_the_latest_first(tmp_path: Path) -> None:
    first, second = run(tmp_path, 1, speed=1.1), run(tmp_path, 2)
    run(tmp_path, 3, train__batch=16)  # other work
    mine = run(tmp_path, 4)
    later = run(tmp_path, 5)
    found = earlier(tmp_path, mine, work)
    assert [past.folder for past in found] == [second.path, first.path]
    assert [past.rate for past in found] == pytest.approx([20_000.0, 22_000.0])
    assert [past.first_step_s for past in found] == [9.2, 9.2]
    assert [past.folder for past in earlier(tmp_path, mine, work, whenever=True)] == [
        later.path, second.path, first.path,
    ]  # fmt: skip


def test_runs_that_were_executed_alike_in_one_environment_share_a_way(tmp_path: Path) -> None:
    alike = [run(tmp_path, number, train__seed=number) for number in (1, 2)]
    other = run(tmp_path, 3)
    facts = json.loads((other.path / "fingerprint.json").read_text())["facts"]
    other.write_json("fingerprint.json", {"facts": {**facts, "execution.attention": "dense"}})
    elsewhere = run(tmp_path, 4)
    elsewhere.write_json("fingerprint.json", {"facts": {**facts, "environment.python": "3.12.1"}})
    found = {past.folder: past.way for past in earlier(tmp_path, run(tmp_path, 5), work)}
    assert len({found[folder.path] for folder in alike}) == 1
    assert len(set(found.values())) == 3


def test_seeds_steps_and_what_follows_from_them_do_not_make_other_work(tmp_path: Path) -> None:
    one = run(tmp_path, 1, train__seed=7, train__steps=9, data__seed=1, data__kind="text", data__digest="a" * 64)
    two = run(tmp_path, 2, data__seed=2, data__kind="text", data__digest="b" * 64)
    three = run(tmp_path, 3, data__digest="b" * 64)
    assert [past.folder for past in earlier(tmp_path, two, work)] == [one.path]
    assert earlier(tmp_path, three, work) == []


def unknown(runs: Path, number: int) -> RunFolder:
    """A run that recorded nothing of its work but a seed, as an imported log may."""
    folder = run(runs, number)
    folder.write_json("fingerprint.json", {"facts": {"environment.python": "3.12.1", "workload.train.seed": number}})
    return folder


def test_runs_that_did_not_record_their_work_are_not_each_others_history(tmp_path: Path) -> None:
    one, two = unknown(tmp_path, 1), unknown(tmp_path, 2)
    assert earlier(tmp_path, two, work) == earlier(tmp_path, one, work, whenever=True) == []
    with pytest.raises(UsageError, match=f"{one.id} did not record what it computed"):
        set_baseline(tmp_path, one, work)
    (tmp_path / BASELINES).write_text(json.dumps({"schema": 1, "baselines": {one.id: work({})}}))  # an older version's
    assert baseline_of(tmp_path, two, work) is None


def test_only_runs_that_finished_and_count_the_same_unit_are_history(tmp_path: Path) -> None:
    steps_alone = {"summary": {"steps": 40, "tokens": 0}}
    changes: list[dict[str, Any]] = [{"status": "failed"}, {"status": "running"}, {"status": 5}, steps_alone]
    for number, change in enumerate(changes, 1):
        folder = run(tmp_path, number)
        result = json.loads((folder.path / "result.json").read_text())
        folder.write_json("result.json", {**result, **change})
    (run(tmp_path, 8).path / "result.json").unlink()
    (run(tmp_path, 9).path / "result.json").write_text('{"status": "fini')
    (run(tmp_path, 10).path / "fingerprint.json").write_text("[]")
    (tmp_path / "no run").mkdir()
    (tmp_path / "a file").write_text("x")
    assert earlier(tmp_path, run(tmp_path, 11), work) == []


def test_a_run_elsewhere_has_its_history_here(tmp_path: Path) -> None:
    here = run(tmp_path / "runs", 1)
    there = run(tmp_path / "elsewhere", 2)
    assert [past.folder for past in earlier(tmp_path / "runs", there, work)] == [here.path]
    assert earlier(tmp_path / "nowhere", there, work) == []


def test_a_run_that_has_not_ended_has_a_history(tmp_path: Path) -> None:
    before = run(tmp_path, 1)
    mine = run(tmp_path, 2)
    result = {"status": "running", "exit_code": None, "started_at": samples.STARTED_AT + 7200}
    mine.write_json("result.json", result)
    assert [past.folder for past in earlier(tmp_path, mine, work)] == [before.path]


# --- the index -------------------------------------------------------------------------------------------


def read_again(runs: Path, monkeypatch: pytest.MonkeyPatch, mine: RunFolder) -> list[str]:
    """Which runs' files a second look reads."""
    read: list[str] = []
    real = history._json

    def spy(folder: RunFolder, name: str) -> dict[str, object]:
        read.append(folder.id)
        return real(folder, name)

    monkeypatch.setattr(history, "_json", spy)
    earlier(runs, mine, work)
    return sorted(set(read) - {mine.id})


def test_what_has_not_changed_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [run(tmp_path, number) for number in range(1, 6)]
    mine = run(tmp_path, 9)
    assert len(earlier(tmp_path, mine, work)) == 5
    assert read_again(tmp_path, monkeypatch, mine) == []
    folders[2].write_json("tags.json", {"tags": []})
    os.utime(folders[2].path, ns=(1, 2))
    assert read_again(tmp_path, monkeypatch, mine) == [folders[2].id]
    shutil.rmtree(folders[0].path)
    assert len(earlier(tmp_path, mine, work)) == 4


@pytest.mark.parametrize("harm", [None, b"", b"[1, 2", b'{"schema":1,"work":"x","runs":[]}', b'{"schema":9}', b"\xff"])
def test_the_index_is_lost_without_harm(tmp_path: Path, harm: bytes | None) -> None:
    before, mine = run(tmp_path, 1), run(tmp_path, 2)
    expected = earlier(tmp_path, mine, work)
    index = tmp_path / INDEX
    index.unlink() if harm is None else index.write_bytes(harm)
    assert earlier(tmp_path, mine, work) == expected
    assert [past.folder for past in expected] == [before.path]
    assert json.loads(index.read_text())["runs"].keys() == {before.id, mine.id}


def test_another_table_makes_the_index_anew(tmp_path: Path) -> None:
    run(tmp_path, 1, train__seed=5)
    mine = run(tmp_path, 2)
    assert len(earlier(tmp_path, mine, work)) == 1

    def strict(facts: Mapping[str, Value]) -> str:
        return digest({name: value for name, value in facts.items() if name.startswith("workload.")})

    assert earlier(tmp_path, mine, strict) == []
    assert len(earlier(tmp_path, mine, work)) == 1


def test_no_index_is_kept_where_none_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, 1)
    mine = run(tmp_path, 2)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(history, "_write", full)
    assert len(earlier(tmp_path, mine, work)) == 1
    assert not (tmp_path / INDEX).exists()


# --- the baseline ----------------------------------------------------------------------------------------


def test_a_baseline_holds_for_its_workload_until_another_is_set(tmp_path: Path) -> None:
    first, second, other = run(tmp_path, 1), run(tmp_path, 2), run(tmp_path, 3, train__batch=16)
    mine = run(tmp_path, 4)
    assert baseline_of(tmp_path, mine, work) is None
    assert set_baseline(tmp_path, first, work) is None
    assert set_baseline(tmp_path, other, work) is None
    assert baseline_of(tmp_path, mine, work) == first
    assert set_baseline(tmp_path, second, work) == first.id
    assert baseline_of(tmp_path, mine, work) == second
    assert baseline_of(tmp_path, other, work) == other
    assert not list(tmp_path.glob(".baselines*"))


def test_a_baseline_that_is_gone_is_said_to_be_gone(tmp_path: Path) -> None:
    gone, other, mine = run(tmp_path, 1), run(tmp_path, 2, train__batch=16), run(tmp_path, 3)
    set_baseline(tmp_path, gone, work)
    shutil.rmtree(gone.path)
    with pytest.raises(RecordError, match=f"baseline of this workload, {gone.id}, is gone from .*: harness baseline"):
        baseline_of(tmp_path, mine, work)
    assert baseline_of(tmp_path, other, work) is None
    set_baseline(tmp_path, mine, work)
    assert baseline_of(tmp_path, mine, work) == mine


def test_bad_requests_for_a_baseline(tmp_path: Path) -> None:
    mine = run(tmp_path / "runs", 1)
    with pytest.raises(UsageError, match="a baseline is one of the runs that are kept there"):
        set_baseline(tmp_path / "runs", run(tmp_path / "elsewhere", 2), work)
    (tmp_path / "runs" / BASELINES).write_text("{")
    with pytest.raises(RecordError, match=r"baselines.json cannot be read .*: remove it"):
        baseline_of(tmp_path / "runs", mine, work)
    (tmp_path / "runs" / "empty").mkdir()
    with pytest.raises(RecordError, match=r"is not a run folder: it has no spec.json"):
        earlier(tmp_path / "runs", RunFolder(tmp_path / "runs" / "empty"), work)
