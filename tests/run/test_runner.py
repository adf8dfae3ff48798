"""Whole runs with real child processes: what ends up in the folder, and what is refused before there is one."""

from __future__ import annotations

import dataclasses
import io
import itertools
import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from harness.errors import UsageError
from harness.places import Places
from harness.records import BuiltEnvironment, CacheState, Finished, Note, RunSpec, Started, Step
from harness.run.folder import RunFolder, run_folders
from harness.run.gather import gather
from harness.run.resolve import resolve
from harness.run.runner import Order, execute, reap
from harness.view import display
from tests.watcher import Watcher

ROOT = Path(__file__).resolve().parents[2]


def toy(*settings: str) -> RunSpec:
    return resolve("toy", ("seconds=0.002", *settings))


def test_a_run_leaves_the_whole_record(where: Places, here: BuiltEnvironment, watcher: Watcher) -> None:
    run = execute(Order(toy("steps=60", "cold_start=0.05"), here, ROOT), where, watcher)
    assert run.result.status == "finished"
    assert run.result.exit_code == 0
    names = {path.name for path in Path(run.folder).iterdir()}
    assert names >= {
        "spec.json", "fingerprint.json", "events.jsonl", "telemetry.jsonl", "stdout.log", "stderr.log", "code.patch",
        "caches.json", "result.json", "steps.parquet", "artifacts",
    }  # fmt: skip
    for name in names:
        if name.endswith(".json"):
            assert json.loads((Path(run.folder) / name).read_text())["schema"] == 1
    assert re.fullmatch(r"\d{8}-\d{6}-toy-[0-9a-f]{4}", run.id)
    assert run.spec == toy("steps=60", "cold_start=0.05")
    assert run == RunFolder(Path(run.folder)).load()  # readable from the folder alone
    assert pq.read_table(Path(run.folder) / "steps.parquet").num_rows == 60

    summary = run.result.summary
    assert (summary.steps, summary.tokens, summary.compile_steps) == (60, 60_000, 1)
    assert summary.throughput_tok_s is not None
    assert 50_000 < summary.throughput_tok_s.value < 500_000
    assert summary.first_step_s is not None
    assert summary.first_step_s > 0.05

    told = watcher.events
    assert isinstance(told[0], Started)
    assert isinstance(told[-1], Finished)
    assert [e.step for e in told if isinstance(e, Step)] == list(range(1, 61))
    assert watcher.folder == Path(run.folder)


def test_the_fingerprint_has_the_settings_by_kind_and_what_the_child_knew(
    where: Places, here: BuiltEnvironment, watcher: Watcher
) -> None:
    run = execute(Order(toy("steps=2", "slow.data=0.001"), here, ROOT), where, watcher)
    assert run.fingerprint is not None
    facts = run.fingerprint.facts
    assert facts["workload.steps"] == 2
    assert facts["execution.slow.data"] == 0.001
    assert facts["workload.model.parameters"] == 2  # said by the child in its Started event
    assert facts["state.cache.start"] == "cold"
    assert facts["environment.python"] == ".".join(map(str, sys.version_info[:3]))
    assert "workload.model.parameters" not in watcher.facts


def test_telemetry_starts_at_once_on_the_clock_of_the_events(
    where: Places, here: BuiltEnvironment, watcher: Watcher
) -> None:
    run = execute(Order(toy("steps=100"), here, ROOT), where, watcher)
    samples = [json.loads(line) for line in (Path(run.folder) / "telemetry.jsonl").read_text().splitlines()]
    assert 0 <= samples[0]["t"] < 1.5
    assert samples[0]["run"]["processes"] >= 1
    assert samples[0]["memory"]["used_bytes"] > 0
    assert "gpus" not in samples[0] or samples[0]["gpus"]


def test_the_child_has_what_the_protocol_says_and_the_cache_root(
    where: Places, here: BuiltEnvironment, watcher: Watcher
) -> None:
    code = (
        "import os, json, sys, time; print(json.dumps({'env': dict(os.environ), 'cwd': os.getcwd(),"
        " 'late': time.monotonic() - float(os.environ['HARNESS_T0'])}))"
    )
    spec = dataclasses.replace(toy(), argv=("python", "-c", code))
    order = Order(spec, here, ROOT, data=where.state / "data")
    run = execute(order, where, watcher)
    said = json.loads((Path(run.folder) / "stdout.log").read_text())
    assert said["env"]["HARNESS_RUN"] == run.folder
    assert said["env"]["HARNESS_STATE"] == str(where.state)
    assert said["env"]["HARNESS_DATA"] == str(where.state / "data")
    assert said["env"]["PYTHONPATH"].split(os.pathsep)[0] == str(ROOT)
    assert said["env"]["PATH"].split(os.pathsep)[0] == str(here.python.parent)
    assert said["cwd"] == str(ROOT)
    assert 0 <= said["late"] < 5
    root = json.loads((Path(run.folder) / "caches.json").read_text())["root"]
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "CUDA_CACHE_PATH"):
        assert said["env"][name].startswith(root + "/")
    assert run.result.status == "failed"  # it exited with 0 and never said that it had finished
    assert "never said" in run.result.reason


def test_what_a_run_compiled_is_measured_and_a_cold_start_takes_a_new_root(
    where: Places, here: BuiltEnvironment, watcher: Watcher
) -> None:
    code = (
        "import os, pathlib; p = pathlib.Path(os.environ['TORCHINDUCTOR_CACHE_DIR']) / 'fxgraph' / 'ab';"
        "p.mkdir(parents=True); (p / 'graph').write_bytes(b'x' * 1000)"
    )
    filling = dataclasses.replace(toy(), argv=("python", "-c", code))

    def before_and_after(order: Order) -> tuple[CacheState, CacheState]:
        run = execute(order, where, watcher)
        assert run.cache_before is not None
        assert run.cache_after is not None
        return run.cache_before, run.cache_after

    before, after = before_and_after(Order(filling, here, ROOT))
    assert (before.bytes, after.bytes) == (0, 1000)
    assert after.by_kind == {"fxgraph": {"bytes": 1000, "entries": 1}}
    assert before_and_after(Order(toy("steps=1"), here, ROOT)) == (after, after)
    assert before_and_after(Order(toy("steps=1"), here, ROOT, cold=True))[0].entries == 0
    assert before_and_after(Order(toy("steps=1"), here, ROOT))[0] == after


@pytest.mark.parametrize(
    ("script", "status", "exit_code", "reason"),
    [
        ("import sys; sys.exit(3)", "failed", 3, "exit code 3"),
        ("import torch_is_not_here", "failed", 1, "ModuleNotFoundError: No module named 'torch_is_not_here'"),
        ("import os; os.kill(os.getpid(), 11)", "failed", 139, "SIGSEGV"),
        ("import os; os.kill(os.getpid(), 9)", "killed", 137, "killed by SIGKILL from outside"),
        ("import os; os.kill(os.getpid(), 15)", "killed", 143, "killed by SIGTERM from outside"),
        ("from harness.run.events import Recorder as R; R.from_environment().finished(False, 'the output differs')",
         "failed", 0, "the output differs"),
    ],
)  # fmt: skip
def test_how_a_child_ends_is_the_status(
    where: Places, here: BuiltEnvironment, watcher: Watcher, script: str, status: str, exit_code: int, reason: str
) -> None:
    spec = dataclasses.replace(toy(), argv=("python", "-c", script))
    run = execute(Order(spec, here, ROOT), where, watcher)
    assert (run.result.status, run.result.exit_code) == (status, exit_code)
    assert reason in run.result.reason


LAUNCHER = """
import subprocess, sys
from harness.run.events import Recorder
record = Recorder.from_environment()
if len(sys.argv) > 1:
    sys.exit(record.finished(False, f"rank {sys.argv[1]}: no memory left on cuda:{sys.argv[1]}") or 1)
record.started()
workers = [subprocess.Popen([sys.executable, sys.argv[0], str(rank)], start_new_session=True) for rank in FAILING]
failed = [rank for rank, worker in zip(FAILING, workers) if worker.wait()]
record.finished(not failed, f"ranks {failed} failed" if failed else "")
sys.exit(bool(failed))
"""


@pytest.mark.parametrize(("failing", "reason"), [("()", ""), ("(3,)", "rank 3: no memory left on cuda:3")])
def test_the_first_worker_that_failed_gives_the_reason(
    where: Places, here: BuiltEnvironment, watcher: Watcher, tmp_path: Path, failing: str, reason: str
) -> None:
    (tmp_path / "launcher.py").write_text(LAUNCHER.replace("FAILING", failing))
    spec = dataclasses.replace(toy(), argv=("python", str(tmp_path / "launcher.py")))
    run = execute(Order(spec, here, ROOT), where, watcher)
    told = [event for event in watcher.events if isinstance(event, Finished)]
    assert len(told) == 1 + bool(reason)  # the launcher's, after the worker's
    assert (run.result.status, run.result.reason) == (("failed", reason) if reason else ("finished", ""))
    assert gather(RunFolder(Path(run.folder))).finished == told[0]
    shown = Console(file=io.StringIO(), width=120)
    shown.print(display.show(run))
    assert isinstance(shown.file, io.StringIO)
    assert reason in shown.file.getvalue()


def command(*argv: str, tokens_regex: str | None = None) -> RunSpec:
    return RunSpec(recipe="", env="", argv=argv, tokens_regex=tokens_regex)


def test_any_command_is_a_run_like_any_other(
    where: Places, here: BuiltEnvironment, watcher: Watcher, tmp_path: Path
) -> None:
    trainer = tmp_path / "their_trainer.py"
    trainer.write_text(
        "import sys, time\n"
        "for i in range(1, 13):\n"
        "    time.sleep(0.15)\n"
        "    print(f'step {i} | loss {5 / i:.3f} | tokens 2,048', file=sys.stderr if i % 2 else sys.stdout)\n"
    )
    regex = r"step (?P<step>\d+) .*loss (?P<loss>[\d.]+) .*tokens (?P<tokens>[\d,]+)"
    spec = command(sys.executable, str(trainer), tokens_regex=regex)
    run = execute(Order(spec, here, tmp_path), where, watcher)
    assert run.result.status == "finished"
    assert "[stdout] step 2 |" in watcher.text
    assert "[stderr] step 1 |" in watcher.text
    assert len((Path(run.folder) / "stdout.log").read_text().splitlines()) == 6
    summary = run.result.summary
    assert (summary.steps, summary.tokens) == (12, 12 * 2048)
    assert summary.loss_last == pytest.approx(0.417)
    assert summary.throughput_tok_s is not None
    arrived = [event.t for event in RunFolder(Path(run.folder)).events() if isinstance(event, Step)]
    gaps = [after - before for before, after in itertools.pairwise(arrived)]
    assert 2048 / max(gaps) <= summary.throughput_tok_s.value <= 2048 / min(gaps)
    assert run.id.split("-")[2] == Path(sys.executable).name.lower()
    assert run.fingerprint is not None
    assert run.fingerprint.facts["context.cwd"] == str(tmp_path)


def test_a_command_keeps_its_own_path_and_cache(
    where: Places, here: BuiltEnvironment, watcher: Watcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our folder on its path could hide a package of its own; its warm cache is not taken from it."""
    monkeypatch.setenv("PYTHONPATH", "/their/own")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton" / "kernel").write_text("compiled")
    spec = command(sys.executable, "-c", "import os; print(os.environ['PYTHONPATH'], os.environ['TRITON_CACHE_DIR'])")
    run = execute(Order(spec, here, tmp_path), where, watcher)
    assert (Path(run.folder) / "stdout.log").read_text().split() == ["/their/own", str(tmp_path / "triton")]
    assert run.cache_before is not None
    assert run.cache_before.by_kind == {"triton": {"bytes": 8, "entries": 1}}


def test_a_secret_on_the_command_line_is_used_and_not_recorded(
    where: Places, here: BuiltEnvironment, watcher: Watcher
) -> None:
    script = "import sys; print(len(sys.argv[2]))"
    spec = command(sys.executable, "-c", script, "--hf-token", "hf_AbCdEfGhIjKlMnOpQrSt")
    run = execute(Order(spec, here, ROOT), where, watcher)
    assert (Path(run.folder) / "stdout.log").read_text() == "23\n"
    for path in Path(run.folder).rglob("*.json*"):
        assert "hf_AbC" not in path.read_text()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (command("no-such-command-here", "--steps", "5"), "no-such-command-here: no such command"),
        (command("true", tokens_regex="tokens ("), "not a regular expression"),
        (command("true", tokens_regex="step (?P<step>.)"), "no group for the tokens"),
        (dataclasses.replace(command("true"), needs_gpus=512), "needs 512 GPUs and this machine has"),
    ],
)
def test_what_cannot_run_is_refused_and_nothing_is_started(
    where: Places, here: BuiltEnvironment, watcher: Watcher, spec: RunSpec, message: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        execute(Order(spec, here, ROOT), where, watcher)
    assert not where.runs.exists()


def test_what_outlives_the_child_is_ended(where: Places, here: BuiltEnvironment, watcher: Watcher) -> None:
    """A grandchild in a session of its own that ignores SIGTERM, as a launcher's worker may."""
    script = (
        "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', "
        "'import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True); time.sleep(600)'],"
        " start_new_session=True, stdout=subprocess.PIPE); p.stdout.readline(); print(p.pid)"
    )
    run = execute(Order(command(sys.executable, "-c", script), here, ROOT, grace=0.3), where, watcher)
    assert run.result.status == "finished"
    pid = int((Path(run.folder) / "stdout.log").read_text())
    assert not Path(f"/proc/{pid}/cmdline").exists() or not Path(f"/proc/{pid}/cmdline").read_bytes()
    assert any("outlived the run" in event.text for event in watcher.events if isinstance(event, Note))


def test_an_error_of_the_harness_itself_ends_the_child_and_is_recorded(
    where: Places, here: BuiltEnvironment, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> None:
        raise RuntimeError("the display broke")

    monkeypatch.setattr(watcher, "event", broken)
    with pytest.raises(RuntimeError, match="the display broke"):
        execute(Order(toy("steps=100000"), here, ROOT, grace=1.0), where, watcher)
    (folder,) = run_folders(where.runs)
    result = folder.load().result
    assert (result.status, result.reason) == ("failed", "the harness failed: RuntimeError: the display broke")
    assert result.summary.steps > 0


def test_the_mirror_is_there_before_the_child_and_until_the_record_is_complete(
    where: Places, here: BuiltEnvironment, watcher: Watcher
) -> None:
    seen: list[object] = []

    @contextmanager
    def mirror(folder: Path) -> Iterator[None]:
        seen.append((folder / "events.jsonl").exists())
        yield
        seen.append(json.loads((folder / "result.json").read_text())["status"])
        seen.append((folder / "steps.parquet").exists())

    execute(Order(toy("steps=2"), here, ROOT), where, watcher, mirror)
    assert seen == [False, "finished", True]


def test_a_run_that_ended_is_not_reaped(where: Places, here: BuiltEnvironment, watcher: Watcher) -> None:
    run = execute(Order(toy("steps=1"), here, ROOT), where, watcher)
    assert reap(RunFolder(Path(run.folder))) is None
    assert RunFolder(Path(run.folder)).load().result.status == "finished"
