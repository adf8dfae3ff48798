"""Signals, exit codes and deaths between the harness, an engine's client and a container: every one a real process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.run.engines import FakeEngine

ROOT = Path(__file__).resolve().parents[2]

# Notes each signal that it gets, and ends as a harness would.
LISTENING = """
import signal, sys, time
def told(number, _):
    print("told", signal.Signals(number).name, flush=True)
    if STUBBORN:
        return
    sys.exit({2: 130}.get(number, 1))
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, told)
print("ready", flush=True)
while True:
    time.sleep(0.05)
"""
OBEDIENT, STUBBORN = LISTENING.replace("STUBBORN", "False"), LISTENING.replace("STUBBORN", "True")


DRIVER = """
import sys
from harness.errors import HarnessError
from harness.run.attached import attend
from harness.run.engine import Engine

engine = Engine("podman", sys.argv[1], "podman 5.4.2", False)
try:
    sys.exit(attend(engine, "harness-run-1", [sys.argv[1], "run", "--name=harness-run-1", "image"], False))
except HarnessError as error:
    sys.exit(f"error: {error}")
"""


class Outer:
    """A harness that has started a container, in a process of its own, with a stand-in for the engine."""

    def __init__(self, engine: FakeEngine, log: Path, **more: object) -> None:
        self.engine, self.log = engine, log
        with log.open("wb") as log_file:
            self.process = subprocess.Popen(
                [sys.executable, "-c", DRIVER, str(engine.bin / engine.kind)],
                cwd=ROOT,
                stdout=log_file,
                stderr=log_file,
                **more,  # type: ignore[call-overload]
            )

    def until(self, what: str, happened: Callable[[], bool], seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not happened():
            assert time.monotonic() < deadline, f"{what} did not happen in {seconds} s: {self.log.read_text()}"
            time.sleep(0.02)

    def until_said(self, text: str) -> None:
        self.until(text, lambda: text in self.log.read_text())

    def end(self) -> tuple[int, str]:
        return self.process.wait(60), self.log.read_text()


@pytest.fixture
def engine(tmp_path: Path) -> FakeEngine:
    return FakeEngine.install("podman", tmp_path)


@pytest.fixture
def outer(engine: FakeEngine, tmp_path: Path) -> Iterator[Callable[..., Outer]]:
    made: list[Outer] = []

    def start(inside: str, **more: object) -> Outer:
        engine.inside(inside)
        made.append(Outer(engine, tmp_path / "log", **more))
        return made[-1]

    yield start
    for harness in made:
        harness.process.kill()
        harness.process.wait()
        harness.until("the end of the container", lambda: not engine.containers)


@pytest.mark.parametrize("code", [0, 1, 2, 130])
def test_the_exit_code_and_standard_output_of_the_harness_inside_are_ours(
    outer: Callable[..., Outer], engine: FakeEngine, code: int
) -> None:
    assert outer(f"import sys; print('an answer'); sys.exit({code})").end() == (code, "an answer\n")
    assert engine.asked("stop") == []


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 1), (signal.SIGHUP, 1)], ids=lambda value: str(value)
)
def test_a_signal_reaches_the_harness_inside_once(
    outer: Callable[..., Outer], number: signal.Signals, code: int
) -> None:
    harness = outer(OBEDIENT)
    harness.until_said("ready")
    harness.process.send_signal(number)
    assert harness.end() == (code, f"ready\ntold {number.name}\n")


def test_the_terminals_ctrl_c_reaches_the_harness_inside_once(outer: Callable[..., Outer]) -> None:
    harness = outer(OBEDIENT, start_new_session=True)
    harness.until_said("ready")
    os.killpg(harness.process.pid, signal.SIGINT)  # as a terminal does: every process of its group
    assert harness.end() == (130, "ready\ntold SIGINT\n")


def test_a_second_signal_is_passed_on_too_and_the_third_kills(outer: Callable[..., Outer], engine: FakeEngine) -> None:
    harness = outer(STUBBORN)
    harness.until_said("ready")
    harness.process.send_signal(signal.SIGINT)
    harness.until_said("told SIGINT")
    harness.process.send_signal(signal.SIGTERM)
    harness.until_said("told SIGTERM")
    harness.process.send_signal(signal.SIGINT)
    code, said = harness.end()
    assert (code, said) == (130, "ready\ntold SIGINT\ntold SIGTERM\n")
    assert [asked[1] for asked in engine.asked("kill")] == ["--signal=SIGINT", "--signal=SIGTERM", "--signal=SIGKILL"]


def test_a_signal_before_the_container_is_there_waits_for_it(outer: Callable[..., Outer], engine: FakeEngine) -> None:
    harness = outer(OBEDIENT)
    harness.until("the client", lambda: bool(engine.asked("run")))
    harness.process.send_signal(signal.SIGTERM)
    code, said = harness.end()
    assert code in (1, 130)  # 130: it came before the handlers inside were there
    assert "Traceback" not in said


def test_a_harness_that_is_killed_takes_its_container_along(outer: Callable[..., Outer], engine: FakeEngine) -> None:
    harness = outer(OBEDIENT)
    harness.until_said("ready")
    harness.process.kill()
    harness.until_said("told SIGTERM")  # it can write down how its run ended
    harness.until("the end of the container", lambda: not engine.containers, 10)


def test_a_harness_that_is_killed_before_its_container_is_there_takes_it_along(
    outer: Callable[..., Outer], engine: FakeEngine
) -> None:
    harness = outer("import time; time.sleep(600)")
    harness.until("the client", lambda: bool(engine.asked("run")))
    harness.process.kill()
    harness.until("the container", lambda: bool(list(engine.folder.glob("*.pid"))))
    harness.until("its end", lambda: not engine.containers, 10)


def test_a_client_that_is_killed_leaves_no_container_and_no_silence(
    outer: Callable[..., Outer], engine: FakeEngine
) -> None:
    harness = outer(OBEDIENT)
    harness.until_said("ready")
    for child in Path(f"/proc/{harness.process.pid}/task/{harness.process.pid}/children").read_text().split():
        if b"fake_engine" in Path(f"/proc/{child}/cmdline").read_bytes():
            os.kill(int(child), signal.SIGKILL)
    code, said = harness.end()
    assert code == 1
    assert "podman let go of the container harness-run-" in said
    assert engine.containers == []


@pytest.mark.parametrize("code", [125, 126, 127])
def test_an_engine_that_refuses_has_its_own_words_and_one_line_of_ours(
    outer: Callable[..., Outer], engine: FakeEngine, code: int
) -> None:
    (engine.folder / "refuses").write_text(str(code))
    exit_code, said = outer("").end()
    assert exit_code == 1
    assert said.splitlines()[0] == "Error: the engine's own words"
    assert said.splitlines()[1].startswith("error: podman could not start the container, its own words are above; ")
    assert len(said.splitlines()) == 2


def test_a_container_that_is_killed_from_outside_is_said_to_be(outer: Callable[..., Outer]) -> None:
    code, said = outer("import os; os.kill(os.getpid(), 9)").end()
    assert code == 1
    assert "was ended by signal 9 from outside; its run's record says how far it got" in said
