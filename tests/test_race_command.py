"""``harness race`` as a person meets it: the grid, the table, what is kept, and bad input."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main
from harness.commands import race as command
from harness.mirror.follower import MirrorResult
from harness.places import Places, places
from harness.records import BuiltEnvironment
from harness.run.race.attempt import Runner

Capture = pytest.CaptureFixture[str]
ROOT = Path(__file__).resolve().parents[1]

STAND_IN = """
import os, signal, sys, time
from experiments.tries import make_tries, say
given = dict(option.removeprefix("--").split("=", 1) for option in sys.argv[1:])

def work():
    say("started", torch="2.13.0+cpu")
    if given["guard"] == "none":
        say("tracing error", thread=0, round=0, text="RuntimeError: told")
        os.kill(os.getpid(), signal.SIGSEGV)
    if given["guard"] == "shim":
        time.sleep(1000)
    say("done")

make_tries(int(given["tries"]), float(given["timeout"]), work)
"""


@pytest.fixture(autouse=True)
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Children that end at once, an environment that is there, and a MLflow that takes everything."""
    child = tmp_path / "child.py"
    child.write_text(STAND_IN)

    def built(name: str, *_: object, **__: object) -> BuiltEnvironment:
        return BuiltEnvironment(name, Path(sys.executable), tmp_path)

    monkeypatch.setenv("HARNESS_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(command, "built", built)
    monkeypatch.setattr(command, "Runner", functools.partial(Runner, child=(str(child),)))
    monkeypatch.setattr(command, "mirror_race", lambda *_: MirrorResult("mirrored", "", "m1"))


def kept() -> dict[str, Any]:
    """The record of the one race that there is."""
    (folder,) = (places().state / "races").iterdir()
    found: dict[str, Any] = json.loads((folder / "race.json").read_text())
    return found


def test_a_race_that_fails_is_shown_and_kept(capfd: Capture) -> None:
    assert main(["race", "--backend", "inductor", "--shapes", "static", "--tries", "2"]) == 1
    said = capfd.readouterr()
    failed, held = (line.split() for line in said.out.splitlines() if "inductor" in line)
    start = "2.13.0+cpu (cpu) flex_attention forward inductor static"
    assert " ".join(failed) == f"{start} none 0/2 segfault 2; the tracing error seen in 2"
    assert " ".join(held) == f"{start} compile_guard 2/2"
    assert "segfault after" in said.err
    assert "the tracing error seen 1 times: SIGSEGV" in said.err
    record = kept()
    assert [(cell["guard"], cell["passed"], cell["tries"]) for cell in record["cells"]] == [
        ("none", 0, 2),
        ("compile_guard", 2, 2),
    ]
    assert {each["outcome"] for each in record["tries"]} == {"passed", "segfault"}
    assert record["machine"]["environment.cpu.count"]
    lines = (Path(record["folder"]) / "tries.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == record["tries"]
    assert "segfault 2" in (Path(record["folder"]) / "table.txt").read_text()


def test_a_race_that_holds_is_good(capfd: Capture) -> None:
    assert main(["race", "--guard", "compile_guard", "--guard", "compile_guard", "--tries", "1", "--json"]) == 0
    answer = json.loads(capfd.readouterr().out)  # one JSON object and nothing else
    assert len(answer["cells"]) == 4  # a guard that is named twice is tried once
    assert answer["mlflow_run_id"] == "m1"
    assert not answer["interrupted"]
    assert {each["torch"] for each in answer["tries"]} == {"2.13.0+cpu"}


def test_a_hang_has_an_end(capfd: Capture) -> None:
    arguments = ["--backend", "inductor", "--shapes", "static", "--guard", "shim", "--tries", "1", "--timeout", "1"]
    assert main(["race", *arguments]) == 1
    assert "hang 1" in capfd.readouterr().out


def test_mlflow_that_is_away_costs_a_warning(capfd: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "mirror_race", lambda *_: MirrorResult("failed", "", None, "not reached"))
    assert main(["race", "--guard", "flag", "--tries", "1"]) == 0
    assert "warning: not in MLflow: not reached" in capfd.readouterr().err


def test_ctrl_c_ends_the_child_and_shows_what_was_done(capfd: Capture) -> None:
    def press() -> None:
        while not (begun := list((places().state / "races").glob("*/tries/*-shim/001.out"))):
            time.sleep(0.05)
        assert begun
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    presser = threading.Thread(target=press)
    presser.start()
    arguments = ["--backend", "inductor", "--shapes", "static", "--guard", "flag", "--guard", "shim", "--tries", "1"]
    assert main(["race", *arguments]) == 130
    presser.join()
    said = capfd.readouterr()
    assert "stopped by Ctrl-C" in said.err
    assert "1/1" in said.out
    assert "not tried" in said.out
    record = kept()
    assert record["interrupted"]
    assert not (Path(record["folder"]) / "cache").exists()
    assert [each["outcome"] for each in record["tries"]] == ["passed"]
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(places().state.parent / "child.py") not in listed


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--env", "cpu", "--env", "cpo"], "unknown environment 'cpo': did you mean cpu?"),
        (["--env", "tools"], "tools has no torch to compile with"),
        (["--threads", "0"], "Invalid value for '--threads': 0 is not in the range 1<=x<=64"),
        (["--tries", "0"], "Invalid value for '--tries': 0 is not in the range"),
        (["--timeout", "0"], "Invalid value for '--timeout'"),
        (["--timeout", "nan"], "Invalid value for '--timeout'"),
        (["--guard", "compile-guard"], "Invalid value for '--guard': 'compile-guard' is not one of 'none', 'flag'"),
        (["--backend", "eager"], "Invalid value for '--backend'"),
    ],
)
def test_bad_input_is_one_line_and_starts_nothing(
    arguments: list[str], said: str, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def built(*_: object, **__: object) -> BuiltEnvironment:
        raise AssertionError("an environment was built")

    monkeypatch.setattr(command, "built", built)
    assert main(["race", *arguments]) == 2
    line = capfd.readouterr().err
    assert said in line
    assert line.count("\n") == 1
    assert not (places().state / "races").exists()


@pytest.mark.slow
def test_the_guard_holds_in_the_cpu_environment(tmp_path: Path) -> None:
    """For real, through the command line: two children of torch that compile again and again, under the guard."""
    here = Places(ROOT, ROOT / ".harness", tmp_path / "runs")
    asked = [
        "--env",
        "cpu",
        "--backend",
        "aot_eager",
        "--shapes",
        "changing",
        "--guard",
        "compile_guard",
        "--tries",
        "2",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "harness.cli", "race", *asked, "--json"],
        cwd=ROOT,
        env=_variables(here, tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert [each["outcome"] for each in answer["tries"]] == ["passed", "passed"]
    assert all(each["torch"].startswith("2.13.0") for each in answer["tries"])
    assert answer["mlflow_run_id"]


def _variables(where: Places, tmp_path: Path) -> dict[str, str]:
    """The state is this checkout's, because an environment takes minutes to build; the MLflow store is the test's."""
    store = f"sqlite:///{tmp_path / 'mlflow.db'}"
    return {**os.environ, "HARNESS_STATE": str(where.state), "MLFLOW_TRACKING_URI": store}
