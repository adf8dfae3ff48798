"""``harness import`` as a person meets it; and the seeds' three comparisons, from logs alone."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main
from harness.commands import imports
from harness.places import places
from harness.run.folder import RunFolder, run_folders
from harness.run.imported.tracker import Logged, LoggedRun

Capture = pytest.CaptureFixture[str]
MLFLOW = "0123456789abcdef" * 2
SAMPLES_902K = ("--set", "workload.data.samples=902000", "--set", "workload.model.heads=balanced")
FX = (
    "Exception in thread drafter-1:\nTraceback (most recent call last):\n"
    '  File "/root/dflash/train.py", line 311, in _drafter_loop\n    out = self.attn(q, k, v)\n'
    "RuntimeError: Detected that you are using FX to symbolically trace a dynamo-optimized function. "
    "This is not supported at the moment.\nSegmentation fault (core dumped)\n"
)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/none/mlflow.db")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)


def log(name: str, rate: float, steps: int = 120, more: str = "", seed: int = 0) -> str:
    """A log of the seeds' kind: every tenth step, a loss, and Ktok/s with a noise of 1 %."""
    dice = random.Random(seed)
    lines = ["loading Qwen3.6-27B on 5 GPUs, 3 drafters"]
    for n in range(10, 10 * steps + 1, 10):
        lines.append(f"step {n} | loss {5 / (1 + n / 500):.4f} | {rate * dice.gauss(1, 0.01):.2f} Ktok/s")
    Path(name).write_text("\n".join(lines) + "\n" + more, encoding="utf-8")
    return name


def imported(capfd: Capture, *arguments: str) -> dict[str, Any]:
    assert main(["import", *arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capfd.readouterr().out)
    return found


def explained(capfd: Capture, before: str, after: str) -> tuple[int, dict[str, Any]]:
    code = main(["explain", before, after, "--json"])
    return code, json.loads(capfd.readouterr().out)


# --- the seeds -------------------------------------------------------------------------------------------


def test_different_work_is_said_first_and_is_no_regression(capfd: Capture) -> None:
    """21.5 against 12.8 Ktok/s: 902,000 samples, balanced heads; 1,100,000 samples, full query heads."""
    good = imported(capfd, log("good.log", 21.5), *SAMPLES_902K)["id"]
    other = ("--set", "workload.data.samples=1.1e6", "--set", "workload.model.heads=full query")
    later = imported(capfd, log("later.log", 12.8, seed=1), *other)["id"]
    code, found = explained(capfd, good, later)
    assert (code, found["comparability"]) == (125, "NOT_COMPARABLE")
    assert {s["fact"] for s in found["suspects"]} <= {"workload.data.samples", "workload.model.heads"}
    assert found["sentence"].startswith("This is not the same work")
    assert "no regression" in found["sentence"]
    assert "21.5" in found["sentence"]
    assert "12.8" in found["sentence"]


def test_a_fall_back_to_dense_attention_is_slower_with_its_suspect(capfd: Capture) -> None:
    """21.5 against 4.3 Ktok/s: one run a side is enough to call that slower."""
    good = imported(capfd, log("good.log", 21.5), *SAMPLES_902K, "--set", "execution.attention=flex")["id"]
    dense = imported(capfd, log("dense.log", 4.3, seed=1), *SAMPLES_902K, "--set", "execution.attention=dense")["id"]
    code, found = explained(capfd, good, dense)
    assert (code, found["comparability"], found["verdict"]) == (1, "COMPARABLE", "SLOWER")
    assert found["sentence"].startswith("5.0 times slower: 4.30 Ktok/s instead of 21.5 Ktok/s")
    assert found["suspects"][0]["fact"] == "execution.attention"
    assert "rerun" not in found["suspects"][0]["confirm"]  # only its record is here
    assert found["ratio"]["value"] == pytest.approx(0.2, rel=0.02)
    assert found["first_step"]["ratio"] is None  # these logs do not say when they began


def test_a_crash_after_the_cache_went_cold_names_the_failure_and_the_cache(capfd: Capture) -> None:
    """Warm against cold: 353 MB in 285 entries, 19 MB in 62; the good run and the one that crashed."""
    warm = ("--set", "state.cache.bytes=353e6", "--set", "state.cache.entries=285", "--set", "state.cache.start=warm")
    cold = ("--set", "state.cache.bytes=19e6", "--set", "state.cache.entries=62", "--set", "state.cache.start=cold")
    good = imported(capfd, log("good.log", 21.5), *SAMPLES_902K, *warm)
    bad = imported(capfd, log("bad.log", 21.5, 3, FX), *SAMPLES_902K, *cold)
    assert (bad["status"], bad["signal"]) == ("failed", 11)
    assert good["cache"]["before"] == {"bytes": 353_000_000, "entries": 285, "by_kind": {}}
    code, found = explained(capfd, good["id"], bad["id"])
    assert code == 1
    sentence = found["sentence"]
    assert "FX" in sentence
    assert "SIGSEGV" in sentence
    assert "step 30" in sentence
    assert "went from warm (353 MB in 285 entries) to cold (19.0 MB in 62 entries)" in sentence
    assert "the warm cache may have hidden the fault" in sentence


def test_a_fact_that_one_side_lacks_is_unknown(capfd: Capture) -> None:
    good = imported(capfd, log("good.log", 21.5), *SAMPLES_902K)["id"]
    bare = imported(capfd, log("bare.log", 21.4, seed=1))["id"]
    code, found = explained(capfd, good, bare)
    assert (code, found["comparability"]) == (125, "UNKNOWN")


# --- importing -------------------------------------------------------------------------------------------


def test_what_was_understood_is_said(capfd: Capture) -> None:
    log("good.log", 21.5, more="best loss 2.0 at step 40\n")
    assert main(["import", "good.log", *SAMPLES_902K]) == 0
    said = capfd.readouterr().out
    assert 'good.log: 120 steps (10 to 1,200), loss, tokens from a rate, "Ktok/s", no time: a second a line' in said
    assert "1 line not understood: 122" in said
    assert "imported as " in said
    assert "21.5 Ktok/s" in said
    (folder,) = run_folders(places().runs)
    assert (folder.path / "stdout.log").read_bytes() == Path("good.log").read_bytes()
    assert "rerun" not in said


def test_the_same_again_is_the_same_run_and_more_facts_are_added(capfd: Capture) -> None:
    log("good.log", 21.5)
    first = imported(capfd, "good.log", *SAMPLES_902K)
    os.utime("good.log", (1, 1))
    again = imported(capfd, "good.log", "--set", "workload.data.samples=902000")
    assert (first["import"]["outcome"], again["import"]["outcome"]) == ("imported", "unchanged")
    more = imported(capfd, "good.log", "--set", "execution.attention=flex", "--set", "workload.model.heads=full")
    assert (more["import"]["outcome"], more["id"]) == ("changed", first["id"])
    assert more["config"] == {"data.samples": 902_000, "model.heads": "full", "attention": "flex"}
    assert len(run_folders(places().runs)) == 1
    other = imported(capfd, "good.log", "--name", "another")
    assert other["id"] != first["id"]
    assert main(["import", "good.log"]) == 0
    assert f"imported before as {first['id']}" in capfd.readouterr().out


def test_read_otherwise_it_would_be_another_run(capfd: Capture) -> None:
    log("good.log", 21.5)
    first = imported(capfd, "good.log")
    assert main(["import", "good.log", "--tokens-regex", r"(?P<tok_s>[\d.]+) Ktok"]) == 2
    said = capfd.readouterr().err
    assert f"is {first['id']} already, read by the usual patterns; import it under another --name" in said
    own = imported(capfd, "good.log", "--tokens-regex", r"(?P<tok_s>[\d.]+) Ktok", "--name", "own")
    assert own["throughput_tok_s"]["value"] == pytest.approx(21.5, rel=0.01)


def test_an_imported_run_is_shown_listed_tagged_and_never_run_again(capfd: Capture) -> None:
    run = imported(capfd, log("good.log", 21.5), *SAMPLES_902K)
    assert run["first_step_s"] is None
    assert main(["show", run["id"]]) == 0
    assert main(["runs"]) == 0
    assert main(["tag", "good", run["id"]]) == 0
    capfd.readouterr()
    assert main(["rerun", run["id"]]) == 2
    assert "only its record is here, so it cannot run again" in capfd.readouterr().err
    assert imported(capfd, "good.log")["tags"] == ["good"]


def test_an_import_that_is_interrupted_leaves_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: Path) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("harness.run.imported.folder.write_columns", interrupted)
    assert main(["import", log("good.log", 21.5)]) == 130
    assert list(places().runs.iterdir()) == []


def hugging_face(name: str, runtime: float) -> str:
    """Losses every tenth step, and the time of all steps in the last line."""
    said = "  Total optimization steps = 312\n"
    said += "".join(f"{{'loss': {3 / n}, 'learning_rate': 5e-05, 'epoch': {n / 31:.2f}}}\n" for n in range(1, 32))
    said += f"{{'train_runtime': {runtime}, 'train_steps_per_second': {312 / runtime:.3f}, 'train_loss': 1.2}}\n"
    Path(name).write_text(said, encoding="utf-8")
    return name


def test_a_log_that_times_all_steps_together_has_the_rate_of_the_whole_run(capfd: Capture) -> None:
    facts = ("--set", "workload.model=owl")
    good = imported(capfd, hugging_face("good.log", 400.0), *facts)
    bad = imported(capfd, hugging_face("bad.log", 800.0), *facts)
    understood = good["import"]["understood"]
    assert understood[:2] == ["312 steps", "loss"]
    assert 'seconds from "train_runtime / 312 steps"' in understood
    assert "tokens unknown (--tokens-per-step N says them)" in understood
    assert any("how much the steps varied is not known" in warning for warning in good["warnings"])
    code, found = explained(capfd, good["id"], bad["id"])
    assert (code, found["verdict"], found["ratio"]["value"]) == (1, "SLOWER", pytest.approx(0.5))
    counted = imported(capfd, "good.log", "--tokens-per-step", "1000", "--name", "counted")
    assert counted["throughput_tok_s"]["value"] == pytest.approx(780.0)


def test_tokens_that_a_log_says_once_count_and_those_that_a_person_says_go_before(capfd: Capture) -> None:
    steps = "".join(f"iter {n}: loss 2.5, time 500.00ms, mfu 38.00%\n" for n in range(30))
    Path("nano.log").write_text(f"tokens per iteration will be: 491,520\n{steps}", encoding="utf-8")
    run = imported(capfd, "nano.log")
    assert 'tokens from "tokens per iteration: 491,520"' in run["import"]["understood"]
    assert run["throughput_tok_s"]["value"] == pytest.approx(983_040.0)
    assert main(["import", "nano.log", "--tokens-per-step", "1000"]) == 2
    assert "read by the usual patterns; import it under another --name" in capfd.readouterr().err
    own = imported(capfd, "nano.log", "--tokens-per-step", "1000", "--name", "own")
    assert own["throughput_tok_s"]["value"] == pytest.approx(2000.0)


@pytest.mark.parametrize(
    ("content", "arguments", "message"),
    [
        (b"", [], "x.log is empty: there is no run in it"),
        (b" \n\n", [], "x.log is empty"),
        (b"\x7fELF\x00\x00", [], "x.log is not text in UTF-8"),
        (b"\xff\xfe\xfc" * 99, [], "x.log is not text in UTF-8"),
        (b"hello\nworld\n", [], "x.log: no step was understood (line 1 to line 2), so nothing is imported; say how"),
        (b"step 1 | loss 2.5\nstep 2 | loss 2.4\n", [], "2 steps in lines 1 to 2: its steps have neither seconds"),
        (b"step 5 dt 1.0\nstep 1 dt 1.0\n", [], "line 2: step 1 comes after step 5 of line 1"),
        (b"step 5 dt 1.0\n", ["--tokens-regex", "zz(?P<tokens>x)"], "matches none of the 1 lines of "),
        (b"step 5 dt 1.0\n", ["--tokens-regex", "("], "is not a regular expression"),
        (
            b"step 5 dt 1.0\n",
            ["--tokens-regex", "(?P<when>x)"],
            "its groups may be tokens, tok_s, ktok_s, step, loss, s",
        ),
        (b"step 5 dt 1.0\n", ["--tokens-per-step", "0"], "0 is not in the range"),
        (b"step 5 dt 1.0\n", ["--set", "workload.x"], "--set workload.x: write fact=value"),
        (b"step 5 dt 1.0\n", ["--set", "samples=3"], "a fact begins with its kind, one of workload, execution"),
        (
            b"step 5 dt 1.0\n",
            ["--set", "observed.dense_fallback=true"],
            "say what ran instead, for example --set execution.attention.used=dense",
        ),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_kept(
    content: bytes, arguments: list[str], message: str, capfd: Capture
) -> None:
    Path("x.log").write_bytes(content)
    assert main(["import", "x.log", *arguments]) == 2
    printed = capfd.readouterr()
    assert message in printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == ""
    assert not places().runs.exists() or list(places().runs.iterdir()) == []


def test_what_is_no_log_is_said(capfd: Capture) -> None:
    Path("folder").mkdir()
    run = imported(capfd, log("good.log", 21.5))
    for source, message in (
        ("folder", "folder is a folder: name the log in it"),
        (run["folder"], "is a folder: it is a run folder already"),
        ("nowhere.log", "nowhere.log cannot be read: No such file"),
        (MLFLOW, "there is no MLflow store at sqlite:"),
    ):
        assert main(["import", source]) == 2
        printed = capfd.readouterr()
        assert message in printed.err
        assert printed.err.startswith(("error: ", "asking MLflow ...\nerror: "))


def test_a_run_that_mlflow_knows_is_asked_for_once(monkeypatch: pytest.MonkeyPatch, capfd: Capture) -> None:
    asked: list[str] = []

    def fetch(run_id: str, *_: object) -> LoggedRun:
        asked.append(run_id)
        points = [Logged(2.0 * n, n, 100.0) for n in range(1, 31)]
        metrics = {"tokens_per_second": points}
        return LoggedRun(run_id, "http://s", "owl", "finished", "FINISHED", 1.0, 90.0, metrics, {}, {})

    monkeypatch.setattr(imports, "fetch", fetch)
    run = imported(capfd, MLFLOW)
    assert run["throughput_tok_s"]["value"] == pytest.approx(100.0)
    assert imported(capfd, MLFLOW)["import"]["outcome"] == "unchanged"
    assert asked == [MLFLOW]
    assert imported(capfd, MLFLOW, "--set", "workload.x=1")["import"]["outcome"] == "changed"
    assert main(["show", "@1"]) == 0
    capfd.readouterr()
    assert RunFolder(Path(run["folder"])).load().spec.config == {"x": 1}
    code, found = explained(capfd, MLFLOW, imported(capfd, log("other.log", 0.1))["id"])
    assert (code, found["before"]["runs"]) == (125, [run["id"]])


# --- evaluations -----------------------------------------------------------------------------------------


def trainers(name: str, pause: float, gap: bool, steps: int = 300) -> str:
    """A log of the Trainer's kind: half a second a step, and each 50 steps an evaluation of ``pause`` seconds.

    gap  a bar tells each step's own time, so that an evaluation lies between two; else stamps, so it is in the next
    """
    lines, t = [], 0.0
    for n in range(1, steps + 1):
        t += 0.5
        bar = f" {100 * n // steps}%|###| {n}/{steps} [{int(t) // 60:02}:{int(t) % 60:02}<01:00,  2.00it/s]"
        stamp = f"2026-11-29 {12 + int(t) // 3600:02}:{int(t) // 60 % 60:02}:{t % 60:06.3f} step {n} loss 2.5"
        lines.append(bar if gap else stamp)
        if pause and n % 50 == 0 and n < steps:
            t += pause
            lines.append(f"{{'eval_loss': 2.25, 'eval_runtime': {pause}, 'eval_steps_per_second': 3.0, 'epoch': 1.0}}")
    Path(name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return name


def test_an_evaluation_between_two_steps_is_counted_once_and_there(capfd: Capture) -> None:
    """150 s in steps, 100 s in five evaluations: 40 % of the time, and of no step's."""
    before, after = (imported(capfd, trainers(f"{pause}.log", pause, gap=True))["id"] for pause in (0.0, 20.0))
    _, found = explained(capfd, before, after)
    assert "40 % of its time passed between the steps, before: " in found["sentence"]
    assert "(it evaluated more often)" in found["sentence"]
    assert [each["name"] for each in found["interruptions"]] == ["between the steps"]
    assert all(c["after"] < 0.01 for c in found["contributions"] if c["phase"] == "evaluation")  # clocks of a second


def test_an_evaluation_within_the_next_step_is_that_steps(capfd: Capture) -> None:
    before, after = (imported(capfd, trainers(f"{pause}.log", pause, gap=False))["id"] for pause in (0.0, 20.0))
    _, found = explained(capfd, before, after)
    (evaluation,) = [c for c in found["contributions"] if c["phase"] == "evaluation"]
    assert evaluation["after"] == pytest.approx(100 / 299, rel=0.02)  # seconds a step, of those that have a time
    assert (found["interruptions"], found["verdict"]) == ([], "SLOWER")
