"""The command line as a person meets it: what it prints, where, and with which exit code."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from harness.cli import main
from harness.places import places
from tests import samples

ROOT = Path(__file__).resolve().parents[1]
Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One MLflow store for all tests: making one takes MLflow many seconds."""
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of this test alone, out of the way of the real ones; the environments that are built stay where they are."""
    monkeypatch.setenv("HARNESS_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    monkeypatch.setenv("COLUMNS", "100")


BOX = ("run", "qwen3_6_27b_8gpu")
THREADS = ("run", "tiny", "topology.kind=threads", "topology.targets=cpu:0,cpu:1", "topology.drafters=cpu:2")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "tinny"], "unknown recipe tinny: did you mean tiny?"),
        (["run", "toy", "stepz=3"], "unknown setting stepz: did you mean steps?"),
        (["run", "toy", "steps=many"], "steps=many: expected a whole number"),
        (["run", "toy", "steps"], "'steps' is not an override; write key=value, for example "),
        (["run", "toy", "slow.forward=-1"], "slow.forward"),
        (["run", "--env", "cpu"], "--env and --tokens-regex go with a command after --"),
        (["run", "toy", "--", "true"], "a command after -- has neither a recipe nor a plan"),
        (["run", "--", "no-such-command-here"], "no-such-command-here: no such command"),
        (["run", "--env", "gpu", "--", "true"], "unknown environment 'gpu'"),
        (["run", "--tokens-regex", "(", "--", "true"], "("),
        (["run", "qwen3_6_27b_8gpu"], "qwen3_6_27b_8gpu needs 8 RTX PRO 6000 GPUs and this machine has"),
        (["run", "--no-such-option"], "No such option '--no-such-option'. (see harness run --help)"),
        (["show", "@1"], "'@1' names no run: there are none in "),
        (["show", ""], "'' names no run"),
        (["show", "./nowhere"], "./nowhere is not a run folder"),
        (["rerun", "@x"], "'@x' names no run"),
        (["mirror", "@1"], "'@1' names no run"),
        (["run", "--"], "no command: write it after --"),
        (["run", "stepz=3"], "unknown setting stepz: "),
        (["run", "toy", "=3"], "'=3' is not an override; write key=value"),
        (["run", "tiny", "attention=flex"], "attention=flex needs CUDA, and this run of tiny has no GPU"),
        (["run", "tiny", "device=cuda:63"], "tiny needs 64 GPUs and this machine has"),
        (["run", "tiny", "device=gpu"], "device must be auto, cpu or a CUDA device as in cuda:0, not 'gpu'"),
        (["run", "tiny", "scale=small"], "scale=small: tiny has one scale only, its own"),
        ([*BOX, "scale=huge"], "there is no scale=huge: qwen3_6_27b_8gpu has its own and scale=tiny"),
        ([*THREADS, "topology.drafters=cuda:63", "topology.targets=cuda:0"], "tiny needs 64 GPUs and this machine has"),
        ([*THREADS, "topology.drafters=cpu:1"], "targets and drafters name cpu:1 twice"),
        ([*THREADS, "topology.drafters="], "topology.drafters must name at least one device"),
        ([*THREADS, "topology.targets="], "topology.targets must name at least one device"),
        ([*THREADS, "topology.targets=gpu:0"], "topology.targets must be devices with a number, as in cuda:0"),
        ([*THREADS, "topology.queue=0"], "topology.queue must be at least 1, not 0"),
        ([*THREADS, "topology.kind=thread"], "expected one of inline, threads, processes"),
        ([*THREADS, "topology.drafters=cuda:2"], "must all be CUDA devices, or all be simulated on the CPU"),
        ([*THREADS, "topology.nodes=2"], "nodes=2 needs kind=processes"),
        ([*THREADS, "device=cpu"], "device=cpu goes with topology.kind=inline"),
        ([*BOX, "scale=tiny", "train.batch=7"], "train.batch must be a multiple of the 3 drafters"),
        ([*BOX, "scale=tiny", "topology.nodes=2"], "topology.rendezvous must be HOST:PORT of the first of 2 machines"),
        (["run", "tiny", "topology.targets=cpu:0"], "topology.targets go with kind=threads or kind=processes"),
        (["run", "tiny", "train.steps=0"], "train.steps must be at least 1, not 0"),
        (["run", "tiny", "model.target_layer_ids=9", "--plan"], "target_layer_ids names layer 9"),
        (["ui", "--port", "99999999"], "Invalid value for '--port'"),
        (["sync", "gpu"], "unknown environment 'gpu'"),
        (["recipes", "big"], "unknown recipe big"),
        (["runs", "-n", "0"], "Invalid value for '-n'"),
        (["frobnicate"], "there is no command frobnicate: the commands are run, "),
        (["reruns"], "there is no command reruns: did you mean rerun?"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_started(arguments: list[str], message: str, capfd: Capture) -> None:
    assert main(arguments) == 2
    printed = capfd.readouterr()
    assert printed.out == ""
    assert message in printed.err
    assert printed.err.count("\n") == 1
    assert printed.err.startswith("error: ")
    assert not places().runs.exists() or not list(places().runs.iterdir())


@pytest.mark.parametrize(
    "arguments", [[], ["run"], ["rerun"], ["show"], ["runs"], ["envs"], ["sync"], ["mirror"], ["ui"]]
)
def test_every_command_has_help_with_an_example(arguments: list[str], capfd: Capture) -> None:
    assert main([*arguments, "--help"]) == 0
    text = capfd.readouterr().out
    assert "Example" in text
    assert f"harness {' '.join(arguments)}".strip() in text


def answer(arguments: list[str], capfd: Capture) -> Any:
    assert main([*arguments, "--json"]) == 0
    return json.loads(capfd.readouterr().out)


def test_what_there_is_to_run_for_people_and_for_programs(capfd: Capture) -> None:
    assert {"toy", "tiny", "smollm2", "qwen3_6_27b_8gpu"} <= answer(["recipes"], capfd).keys()
    names = [row["name"] for row in answer(["envs"], capfd)["environments"]]
    assert {"cpu", "cu128", "cu130", "cu130-race", "harness", "dev"} <= set(names)
    assert main(["envs"]) == 0
    table = capfd.readouterr().out
    assert all(name in table for name in names)
    assert main(["recipes", "toy"]) == 0
    assert "slow.forward" in capfd.readouterr().out


def test_recorded_runs_for_people_and_for_programs(capfd: Capture) -> None:
    folder = samples.recorded(places().runs, "20261129-100000-tiny-aaaa")
    shown = answer(["show", "@1"], capfd)
    assert shown["id"] == folder.id
    assert shown["throughput_tok_s"].keys() == {"value", "low", "high"}
    assert shown["accept_length"].keys() == {"before", "after", "repeat_anchor", "ngram"}
    assert shown["cache"]["before"].keys() >= {"bytes", "entries"}
    wanted = {
        "recipe",
        "status",
        "folder",
        "lock_digest",
        "fingerprint_digest",
        "mlflow_run_id",
        "lossless",
        "compile_s",
    }
    assert wanted <= shown.keys()
    assert answer(["show", str(folder.path)], capfd) == shown
    assert answer(["runs"], capfd)["runs"] == [shown]
    assert main(["show", "20261129"]) == 0
    assert folder.id in capfd.readouterr().out


def test_a_folder_from_a_newer_version_is_said_to_be_one(capfd: Capture) -> None:
    folder = samples.recorded(places().runs, "20261129-100000-tiny-aaaa")
    folder.write_json("spec.json", {"schema": 99})
    assert main(["show", "@1"]) == 1
    assert "has schema 99 and this version reads 1" in capfd.readouterr().err
    assert main(["runs"]) == 0
    assert "left out: " in capfd.readouterr().err


def test_an_id_that_no_run_has_is_said_with_where_it_was_looked_for(capfd: Capture) -> None:
    samples.recorded(places().runs, "20261129-100000-tiny-aaaa")
    assert main(["show", "20990101"]) == 2
    assert "20990101: no run in " in capfd.readouterr().err
    assert main(["show", "@2"]) == 2
    assert "there are 1, and @1 is the latest" in capfd.readouterr().err


def test_recipes_that_do_not_import_are_one_line(capfd: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def broken(name: str) -> ModuleType:
        if name.startswith("experiments"):
            raise SyntaxError("invalid syntax", ("experiments/toy.py", 7, 1, ")"))
        return real(name)

    monkeypatch.setattr("importlib.import_module", broken)
    assert main(["run", "toy"]) == 1
    printed = capfd.readouterr().err
    assert printed.count("\n") == 1
    assert "the recipes cannot be imported: SyntaxError: invalid syntax (toy.py, line 7)" in printed


def test_a_folder_that_cannot_hold_runs_is_said(
    capfd: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("HARNESS_RUNS", str(tmp_path / "file" / "runs"))
    assert main(["run", "--", "true"]) == 2
    assert "cannot hold runs: Not a directory; set HARNESS_RUNS" in capfd.readouterr().err


def test_without_arguments_the_help_is_shown(capfd: Capture) -> None:
    assert main([]) == 2
    printed = capfd.readouterr()
    assert printed.err.startswith("Usage: harness")
    assert not printed.out


def harness(*arguments: str, **more: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "harness.cli", *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)


def test_a_recipe_is_run_recorded_and_mirrored(capfd: Capture) -> None:
    process = harness("run", "toy", "steps=40", "seconds=0.01", "--json")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    record = json.loads(out)
    assert answer(["show", "@1"], capfd) == record  # of a run without a baseline, both say the same
    assert record["status"] == "finished"
    assert record["throughput_tok_s"]["value"] > 0
    assert record["mlflow_run_id"]
    assert record["config"]["steps"] == 40


def test_a_command_keeps_its_streams_and_its_failure_becomes_ours() -> None:
    loop = "[print(f'step {i} tok=100', flush=True) for i in range(20)]"
    code = f"import sys; {loop}; print('oops', file=sys.stderr); sys.exit(7)"
    process = harness("run", "--tokens-regex", r"tok=(?P<tokens>\d+)", "--", sys.executable, "-c", code)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert out.startswith("step 0 tok=100\nstep 1 tok=100\n")
    assert "oops\n" in err
    (folder,) = places().runs.iterdir()
    result = json.loads((folder / "result.json").read_text())
    assert (result["status"], result["exit_code"]) == ("failed", 7)
    assert result["summary"]["tokens"] == 2000


def test_a_command_reads_what_it_is_sent_and_its_bytes_come_out_as_they_are() -> None:
    code = "import sys; data = sys.stdin.buffer.read(); sys.stdout.buffer.write(data)"
    command = [sys.executable, "-m", "harness.cli", "run", "--", sys.executable, "-c", code]
    sent = b"hello \xff\xfe \xc3\xa9\r\n" * 1000
    done = subprocess.run(command, cwd=ROOT, input=sent, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == sent  # the summary is not in it
    assert b"finished" in done.stderr


def test_an_expression_that_matches_nothing_is_a_warning() -> None:
    process = harness(
        "run", "--json", "--tokens-regex", r"zzz(?P<tokens>\d+)", "--", sys.executable, "-c", "print('a')"
    )
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    (warning,) = json.loads(out)["warnings"]
    assert "matched no line" in warning


def test_ctrl_c_ends_the_run_in_order() -> None:
    process = harness("run", "toy", "steps=2000", start_new_session=True)
    events = first(lambda: next(places().runs.glob("*/events.jsonl"), None))
    first(lambda: events.read_text().count('"step"') > 3)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    result = json.loads((events.parent / "result.json").read_text())
    assert result["status"] == "killed"
    assert result["summary"]["steps"] > 0


def test_ctrl_c_is_130_also_where_a_launcher_answers_it_by_an_exit_code() -> None:
    waits = "import time\ntry:\n    print('here', flush=True)\n    time.sleep(60)\n"
    child = waits + "except KeyboardInterrupt:\n    raise SystemExit(1)"
    process = harness("run", "--", sys.executable, "-c", child, start_new_session=True)
    log = first(lambda: next(places().runs.glob("*/stdout.log"), None))
    first(lambda: "here" in log.read_text())
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert json.loads((log.parent / "result.json").read_text())["exit_code"] == 1


def first(look: Callable[[], Any], seconds: float = 60.0) -> Any:
    """The first answer that is true; the test fails where there is none in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(0.05)
    raise AssertionError("waited in vain")


@pytest.mark.slow
def test_mlflow_out_of_reach_costs_a_warning_and_nothing_else() -> None:
    variables = {**os.environ, "MLFLOW_TRACKING_URI": "http://127.0.0.1:9"}  # the discard port: nobody answers
    process = harness("run", "toy", "steps=5", env=variables)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert out.count("warning: ") == 1
    assert "harness mirror " in out
    for said in ("mirrored", "unchanged"):  # within reach again
        process = harness("mirror", "@1")
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        assert said in out
