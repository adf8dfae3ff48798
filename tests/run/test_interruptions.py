"""A kill at any place leaves a record that can be read and no process behind. Everything here is a real process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.places import Places
from harness.records import Started
from harness.run.folder import RunFolder, run_folders
from harness.run.runner import reap
from harness.run.watchdog import NO_SESSION, members

ROOT = Path(__file__).resolve().parents[2]

DRIVER = """
import sys, sysconfig
from pathlib import Path
from harness.places import Places
from harness.records import Started
from harness.records import BuiltEnvironment, RunSpec
from harness.run.resolve import resolve
from harness.run.runner import Order, execute
from tests.watcher import Watcher

here = BuiltEnvironment("", Path(sys.executable), Path(sysconfig.get_path("purelib")))
state, script, grace = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
spec = RunSpec("", "", (sys.executable, "-c", script)) if script else resolve("toy", ["steps=100000", "seconds=0.01"])
where = Places(Path.cwd(), state / "state", state / "runs")
run = execute(Order(spec, here, Path.cwd(), grace=grace), where, Watcher())
print(run.result.status)
"""

STUBBORN = """
import signal, sys, time
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(600)
"""

# A launcher that dies of its signal at once, with a worker in a session of its own that ignores them all.
LAUNCHER = f"""
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", {STUBBORN!r}], start_new_session=True)
time.sleep(600)
"""


class Driven:
    """A harness in a process of its own, making one run."""

    def __init__(self, base: Path, script: str, grace: float, before: str) -> None:
        self.where = Places(ROOT, base / "state", base / "runs")
        self.process = subprocess.Popen(
            [sys.executable, "-c", before + DRIVER, str(base), script, str(grace)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def folder(self) -> RunFolder:
        (found,) = run_folders(self.where.runs)
        return found

    def until(self, what: str, happened: Callable[[], bool], seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not happened():
            assert time.monotonic() < deadline, f"{what} did not happen in {seconds} s"
            time.sleep(0.02)

    def until_steps(self) -> None:
        self.until("a step", lambda: bool(run_folders(self.where.runs)) and b'"step"' in self.bytes("events.jsonl"))

    def until_ready(self) -> None:
        self.until("the child", lambda: bool(run_folders(self.where.runs)) and b"ready" in self.bytes("stdout.log"))

    def bytes(self, name: str) -> bytes:
        path = self.folder.path / name
        return path.read_bytes() if path.exists() else b""

    def left_over(self) -> list[int]:
        return members(NO_SESSION, str(self.folder.path))

    def end(self) -> str:
        out, err = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, err
        return out.strip()


@pytest.fixture
def drive(tmp_path: Path) -> Iterator[Callable[..., Driven]]:
    made: list[Driven] = []

    def start(script: str = "", grace: float = 10.0, before: str = "") -> Driven:
        made.append(Driven(tmp_path, script, grace, before))
        return made[-1]

    yield start
    for driven in made:
        if driven.process.poll() is None:
            driven.process.kill()
        driven.process.communicate()
        for pid in driven.left_over():
            os.kill(pid, signal.SIGKILL)


def assert_complete(folder: RunFolder) -> None:
    """Every file of the record is there and can be read."""
    run = folder.load()
    assert run.fingerprint is not None
    assert run.cache_after is not None
    assert list(folder.events())
    assert {p.name for p in folder.path.iterdir()} >= {"telemetry.jsonl", "stdout.log", "stderr.log", "code.patch"}


def test_a_child_killed_by_sigkill_leaves_a_complete_folder(drive: Callable[..., Driven]) -> None:
    driven = drive()
    driven.until_steps()
    (child,) = [e.pid for e in driven.folder.events() if isinstance(e, Started)]
    os.kill(child, signal.SIGKILL)
    assert driven.end() == "killed"
    result = driven.folder.load().result
    assert (result.status, result.signal, result.exit_code) == ("killed", 9, 137)
    assert "SIGKILL from outside" in result.reason
    assert result.summary.steps > 0
    assert_complete(driven.folder)


@pytest.mark.parametrize(
    ("number", "reason"),
    [(signal.SIGINT, "stopped by Ctrl-C"), (signal.SIGTERM, "stopped by a SIGTERM to the harness")],
)
def test_a_signal_to_the_harness_ends_the_run_and_is_recorded(
    drive: Callable[..., Driven], number: int, reason: str
) -> None:
    driven = drive()
    driven.until_steps()
    driven.process.send_signal(number)
    assert driven.end() == "killed"
    result = driven.folder.load().result
    assert (result.status, result.reason) == ("killed", reason)
    assert driven.left_over() == []
    assert_complete(driven.folder)


def test_a_harness_killed_by_sigkill_takes_its_run_along_and_is_reaped(drive: Callable[..., Driven]) -> None:
    driven = drive()
    driven.until_steps()
    assert driven.folder.load().result.status == "running"
    assert reap(driven.folder) is None  # not while it lives
    driven.process.kill()
    driven.process.wait()
    driven.until("the end of the child", lambda: not driven.left_over(), 10)
    assert not driven.folder.alive
    assert driven.folder.load().result.status == "killed"  # read as what it is even before it is written down
    assert json.loads(driven.bytes("result.json"))["status"] == "running"
    result = reap(driven.folder)
    assert result is not None
    assert (result.status, result.reason) == ("killed", "the harness died before the run ended")
    assert result.summary.steps > 0
    assert result.ended_at is not None
    assert json.loads(driven.bytes("result.json"))["status"] == "killed"
    assert reap(driven.folder) is None


def test_a_harness_killed_by_sigkill_takes_a_stubborn_worker_along(drive: Callable[..., Driven]) -> None:
    driven = drive(LAUNCHER, grace=0.5)
    driven.until_ready()
    assert len(driven.left_over()) == 2
    driven.process.kill()
    driven.process.wait()
    driven.until("the end of the worker", lambda: not driven.left_over(), 10)


def test_a_child_that_ignores_its_signal_is_killed_after_the_grace(drive: Callable[..., Driven]) -> None:
    driven = drive(STUBBORN, grace=1.0)
    driven.until_ready()
    start = time.monotonic()
    driven.process.send_signal(signal.SIGTERM)
    assert driven.end() == "killed"
    assert time.monotonic() - start > 1.0
    result = driven.folder.load().result
    assert result.reason == "stopped by a SIGTERM to the harness, and killed because it did not end"
    assert (result.signal, result.exit_code) == (signal.SIGTERM, 137)  # what it was sent, and what it died of
    assert driven.left_over() == []


def test_a_second_ctrl_c_kills_at_once(drive: Callable[..., Driven]) -> None:
    driven = drive(STUBBORN, grace=300.0)
    driven.until_ready()
    driven.process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert driven.process.poll() is None
    driven.process.send_signal(signal.SIGINT)
    assert driven.end() == "killed"  # within the 60 s that end() waits, not 300
    assert driven.left_over() == []


def test_ctrl_c_ends_a_worker_that_its_launcher_left_behind(drive: Callable[..., Driven]) -> None:
    driven = drive(LAUNCHER, grace=0.5)
    driven.until_ready()
    driven.process.send_signal(signal.SIGINT)
    assert driven.end() == "killed"
    assert driven.left_over() == []


def test_the_terminals_ctrl_c_reaches_the_harness_alone(drive: Callable[..., Driven]) -> None:
    driven = drive(STUBBORN)
    driven.until_ready()
    (child,) = driven.left_over()
    assert os.getsid(child) == child
    assert os.getpgid(child) != os.getpgid(driven.process.pid)


IMPATIENT = """
import os, signal
from harness.run import runner
write = runner._Running._write_caches
def interrupted(self, prepared, after):
    if after is not None:  # the child has ended, and the record is being written
        os.kill(os.getpid(), signal.SIGINT)
    write(self, prepared, after)
runner._Running._write_caches = interrupted
"""


def test_ctrl_c_while_the_record_is_written_changes_nothing(drive: Callable[..., Driven]) -> None:
    driven = drive("print('ready')", before=IMPATIENT)
    assert driven.end() == "finished"
    assert driven.folder.load().result.reason == ""
