"""A folder as evidence: an answer whatever part of it is gone, and what is gone is told."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness.errors import NewerRecord, RecordError
from harness.run.columns import write_columns
from harness.run.folder import RunFolder
from harness.run.gather import gather
from tests import samples


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
