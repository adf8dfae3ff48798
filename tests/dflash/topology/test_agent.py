"""An agent and its ranks: whichever dies, of whatever and whenever, it is the one that is named, and none is left."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from experiments.dflash.config import DFlashConfig, TrainConfig
from experiments.dflash.layout import TopologyConfig, layout_of
from experiments.dflash.topology.agent import elsewhere, why
from harness.config import flatten
from harness.errors import HarnessError, UsageError, WorkerError
from harness.run import watchdog

ROOT = Path(__file__).resolve().parents[3]
TWO_AND_ONE = TopologyConfig("processes", "cpu:0,cpu:1", "cpu:2")
LAYOUT = layout_of(TWO_AND_ONE, 6, "")
LINE_OF_A_RANK = re.compile(r"\[rank\d\]: .*\n")


# --- which failure is named ------------------------------------------------------------------------------


def failed(
    folder: Path, rank: int, code: int, kind: str = "", text: str = "", exit_code: int = 1
) -> tuple[int, ProcessFailure]:
    """A rank's end as an agent sees it, with the word that the rank left, where it left one."""
    path = folder / f"{rank}.json"
    if kind:
        said = {"message": text, "extraInfo": {"py_callstack": "", "timestamp": "0"}}
        path.write_text(json.dumps({"message": said, "kind": kind, "exit_code": exit_code}))
    return rank, ProcessFailure(local_rank=rank, pid=1, exitcode=code, error_file=str(path))


def told(*ends: tuple[int, ProcessFailure]) -> str:
    with pytest.raises(WorkerError) as raised:
        why(dict(ends), LAYOUT)
    return str(raised.value)


def test_a_rank_that_was_killed_is_named_with_its_seat_and_its_signal(tmp_path: Path) -> None:
    assert told(failed(tmp_path, 1, -9), failed(tmp_path, 0, -15)) == "target 1 on cpu:1 (rank 1) was killed by SIGKILL"
    assert told(failed(tmp_path, 2, -11)) == "drafter 0 on cpu:2 (rank 2) crashed with SIGSEGV"
    assert told(failed(tmp_path, 2, 7)) == "drafter 0 on cpu:2 (rank 2) exited with code 7 and did not say why"
    assert told(failed(tmp_path, 0, -15), failed(tmp_path, 2, -15)).startswith("target 0")  # somebody else's SIGTERM
    assert told(failed(tmp_path, 0, -40)).endswith("crashed with signal 40")


def test_what_only_follows_gives_way_to_a_cause_even_where_it_was_seen_before_it(tmp_path: Path) -> None:
    follower = failed(tmp_path, 0, 1, "followed", "rank 0 lost another rank")
    cause = failed(tmp_path, 2, -15, "error", "ValueError: no")  # it had said so before it was ended with the others
    assert told(follower, failed(tmp_path, 1, -15), cause) == "drafter 0 on cpu:2 (rank 2) failed: ValueError: no"
    assert told(follower, failed(tmp_path, 1, -9)).endswith("(rank 1) was killed by SIGKILL")
    alone = told(follower, failed(tmp_path, 1, -15))
    assert alone == "a rank on another machine ended, whose torchrun says how; rank 0 lost another rank"


def test_a_line_for_a_person_is_passed_on_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^no such thing$"):
        why(dict([failed(tmp_path, 0, 2, "line", "no such thing", 2)]), LAYOUT)
    with pytest.raises(HarnessError, match=r"^not the same$"):
        why(dict([failed(tmp_path, 1, 1, "line", "not the same")]), LAYOUT)
    assert why(dict([failed(tmp_path, 0, 1, "given up", "20 steps")]), LAYOUT) == "20 steps"


def test_the_line_for_other_machines_names_the_first_one_and_as_many_ranks_as_there_are_devices() -> None:
    topology = TopologyConfig("processes", "cuda:0,cuda:1", "cuda:2", nodes=3, rendezvous="box:29500")
    assert elsewhere(topology) == (
        "torchrun --nnodes 3 --node-rank 1 --nproc-per-node 3 --master-addr box --master-port 29500 "
        "-m experiments.dflash.train (and so on for --node-rank 2)"
    )


# --- real ranks ------------------------------------------------------------------------------------------


def begin(folder: Path, variables: Mapping[str, str], stderr: int = subprocess.PIPE) -> subprocess.Popen[str]:
    """A stand-in's agent, as the harness starts a run."""
    config = replace(DFlashConfig(), train=TrainConfig(batch=6), topology=TWO_AND_ONE)
    (folder / "spec.json").write_text(json.dumps({"config": flatten(config)}))
    own = {"HARNESS_RUN": str(folder), "HARNESS_T0": repr(time.monotonic()), "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.dflash.topology.stand_in"],
        cwd=ROOT,
        env={**os.environ, **own, "PYTHONUNBUFFERED": "1", **variables},
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )


def events(folder: Path, kind: str) -> list[dict[str, Any]]:
    path = folder / "events.jsonl"
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return [event for event in map(json.loads, lines) if event["kind"] == kind]


def ended(folder: Path, **variables: str) -> tuple[int, str, list[str]]:
    """A stand-in to its end: exit code, the one reason in its record, each write to standard error. Nothing is left."""
    read, write = os.pipe2(os.O_DIRECT)  # hands over one write at a time, as it was made
    process = begin(folder, variables, write)
    os.close(write)
    late = threading.Timer(300, process.kill)
    late.start()
    with os.fdopen(read, "rb", buffering=0) as stderr:
        writes = [each.decode() for each in iter(lambda: stderr.read(4096), b"")]
    process.communicate()
    late.cancel()
    assert watchdog.members(watchdog.NO_SESSION, str(folder)) == []
    (finished,) = events(folder, "finished")
    assert finished["ok"] == (process.returncode == 0)
    return process.returncode, finished["reason"], writes


def test_ranks_that_all_come_to_their_end_are_a_run_that_does_and_say_nothing(tmp_path: Path) -> None:
    assert ended(tmp_path) == (0, "", [])
    said = [note["text"] for note in events(tmp_path, "note")]
    simulated = len(os.sched_getaffinity(0)) < 3
    assert len(said) == 3 + 1 + simulated  # from all ranks, in one file, and that they were started
    assert "starting 3 processes, each of which imports torch" in said


@pytest.mark.slow
def test_an_exception_in_a_drafter_is_the_runs_reason_and_its_traceback_is_there_once(tmp_path: Path) -> None:
    code, reason, writes = ended(tmp_path, DIE="2 raise meeting")
    assert (code, reason) == (1, "drafter 0 on cpu:2 (rank 2) failed: ValueError: three")
    assert all(LINE_OF_A_RANK.fullmatch(write) for write in writes)  # no two ranks' lines in one another
    stderr = "".join(writes)
    assert "[rank2]: ValueError: three" in stderr
    assert stderr.count("Traceback") == 1


WAYS = {
    "exit": "exited with code 7 and did not say why",
    "kill": "was killed by SIGKILL",
    "segv": "crashed with SIGSEGV",
    "runtime": "failed: RuntimeError: no communication at all",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "dies",
    [
        "1 exit starting",  # before it is a rank
        "2 segv starting",
        "0 kill loading",  # the one that leads
        "0 runtime loading",
        "2 kill evaluating",  # while rank 0 talks to nobody
        "1 segv evaluating",
        "1 runtime meeting",  # while all talk to all
        "0 exit meeting",
        "2 kill meeting",
    ],
)
def test_whoever_dies_of_whatever_and_whenever_is_named(tmp_path: Path, dies: str) -> None:
    rank, way, _ = dies.split()
    seat = ("target 0 on cpu:0", "target 1 on cpu:1", "drafter 0 on cpu:2")[int(rank)]
    code, reason, _ = ended(tmp_path, DIE=dies)
    assert (code, reason) == (1, f"{seat} (rank {rank}) {WAYS[way]}")


@pytest.mark.slow
def test_a_wrong_request_that_only_a_rank_can_see_is_one_line(tmp_path: Path) -> None:
    code, reason, writes = ended(tmp_path, DIE="1 usage loading")
    assert (code, reason) == (2, "device=none is no device")
    assert {line.partition(": ")[2] for line in writes} <= {"rank 1: device=none is no device\n"}  # no stack


@pytest.mark.slow
def test_a_training_that_is_given_up_has_that_reason(tmp_path: Path) -> None:
    assert ended(tmp_path, REASON="20 steps were skipped") == (1, "20 steps were skipped", [])


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_rank_outlives_an_agent_that_is_stopped(tmp_path: Path, number: signal.Signals) -> None:
    process = begin(tmp_path, {"WAIT": "1"})
    until(lambda: len([note for note in events(tmp_path, "note") if note["text"] == "met"]) == 3)
    process.send_signal(number)
    process.communicate(timeout=300)
    assert process.returncode == (-number if number == signal.SIGKILL else 128 + number)
    until(lambda: watchdog.members(watchdog.NO_SESSION, str(tmp_path)) == [])
    assert not events(tmp_path, "finished")


def until(true: Any, seconds: float = 300.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)
