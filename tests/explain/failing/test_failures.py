"""How a run failed: each signature on the text of its public report, the rules of precedence, and what is unknown."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.comparison import Failure
from harness.evidence import Series
from harness.explain.failing.failures import recognise
from harness.explain.failing.signatures import Signature, table
from harness.records import Checkpoint, Compile, Finished, Note, Value
from tests.explain.failing.failures_table import page
from tests.explain.failing.logbook import FIXTURES, failed, read, steps


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_a_report_is_recognised_by_its_own_signature(path: Path) -> None:
    evidence, head = read(path)
    failure = recognise(evidence)
    assert failure is not None
    assert (failure.signature or "unknown") == path.stem
    assert head.get("says", "") in failure.sentence
    assert head.get("not_says", "nothing of the kind") not in failure.sentence
    assert head.get("last", "") in failure.last
    assert head.get("advice", "") in failure.advice
    assert failure.reference == table()[path.stem].report
    assert not re.search(r"[{}\[\]]", failure.sentence.replace("[Errno", ""))
    assert failure.lines


TRACEBACK = 'Traceback (most recent call last):\n  File "/me/train.py", line {line}, in {name}\n    go()\n{error}\n'


def raised(error: str, line: int = 9, name: str = "step") -> str:
    return TRACEBACK.format(line=line, name=name, error=error)


def told(*args: Any, **kwargs: Any) -> Failure:
    failure = recognise(failed(*args, **kwargs))
    assert failure is not None
    return failure


# --- which error counts ------------------------------------------------------------------------------------

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
WATCHDOG = "[rank0]:[E ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(...)"
BARS = "\n".join(f" {n}%|#  | {n}/100 [00:{n:02}<01:00,  1.00it/s]" for n in range(10, 20))
FX = (
    "RuntimeError: Detected that you are using FX to symbolically trace a dynamo-optimized function. "
    "This is not supported at the moment."
)


@pytest.mark.parametrize("status", ["running", "finished"])
def test_a_run_that_did_not_fail_has_no_failure(status: str) -> None:
    assert recognise(failed(raised("KeyError: 1"), status=status, exit_code=0)) is None


def test_the_first_error_counts_and_not_what_followed() -> None:
    log = "".join(f"[rank1]: {line}\n" for line in raised("KeyError: 'row'").splitlines()) + WATCHDOG + "\n"
    failure = told(log + raised("BrokenPipeError: [Errno 32] Broken pipe"))
    assert failure.signature == "python-exception"
    assert failure.sentence == "a Python exception ended it on rank 1: KeyError: 'row', in /me/train.py, line 9 (step)"
    assert told(raised("BrokenPipeError: [Errno 32] Broken pipe") + WATCHDOG).signature == "nccl-timeout"


def test_a_specific_signature_beats_a_general_one_in_the_same_error() -> None:
    assert told(raised(f"RuntimeError: {OOM}")).signature == "cuda-oom"
    chain = "\nDuring handling of the above exception, another exception occurred:\n\n"
    assert told(raised("KeyError: 1") + chain + raised(OOM)).signature == "cuda-oom"


def test_the_rank_that_torchrun_saw_fail_first_counts_before_another() -> None:
    def rank(number: int, error: str) -> str:
        return "".join(f"[rank{number}]: {line}\n" for line in raised(error).splitlines())

    root = "Root Cause (first observed failure):\n[0]:\n  rank      : 2 (local_rank: 2)\n  exitcode  : 1 (pid: 7)\n"
    both = rank(0, "ValueError: late") + rank(2, OOM)
    assert told(both).signature == "python-exception"
    assert told(both + root).signature == "cuda-oom"


def test_an_error_that_the_run_outlived_is_not_what_ended_it() -> None:
    handled = raised("ImportError: No module named 'apex'")
    assert "ValueError" in told(handled + BARS + "\n" + raised("ValueError: the end")).sentence
    assert told(handled + BARS, signal=9, exit_code=137, status="killed").signature == "killed-from-outside"
    assert "ImportError" in told(handled + "going on without\n" + raised("ValueError: the end")).sentence
    assert "ImportError" in told(handled + BARS).sentence  # there is nothing else


def test_what_nothing_caught_in_a_thread_counts_however_long_the_others_went_on() -> None:
    log = "Exception in thread loader:\n" + raised("KeyError: 1") + BARS + "\n" + raised("RuntimeError: no loader")
    assert told(log).sentence.startswith("a Python exception ended it in thread loader: KeyError: 1")


def test_a_warning_says_what_may_go_wrong_and_is_no_error() -> None:
    """As joblib says it where /dev/shm is small (VITS-fast-fine-tuning#397)."""
    warning = "joblib/_multiprocessing_helpers.py:46: UserWarning: [Errno 28] No space left on device.  joblib will\n"
    assert told(warning + raised("KeyError: 1")).signature == "python-exception"
    assert told("OSError: [Errno 28] No space left on device\n").signature == "disk-full"


def test_standard_output_counts_where_standard_error_says_nothing() -> None:
    assert told("", raised(OOM)).signature == "cuda-oom"
    assert told(raised("KeyError: 1"), raised(OOM)).signature == "python-exception"


def test_a_warning_in_the_other_log_makes_dense_attention_of_memory_that_ran_out() -> None:
    warning = "UserWarning: flex_attention called without torch.compile() - this will use an unfused implementation"
    assert told(raised(OOM), warning).signature == "dense-attention"
    assert told(raised(OOM), "training").signature == "cuda-oom"


def test_sizes_are_compared_and_not_only_found() -> None:
    at = "CUDA out of memory. Tried to allocate {}. GPU 0 has a total capacity of 11.00 GiB of which 1.00 GiB is free."
    assert told(raised(f"torch.OutOfMemoryError: {at.format('900.00 MiB')}")).signature == "cuda-oom"
    assert told(raised(f"torch.OutOfMemoryError: {at.format('11.01 GiB')}")).signature == "cuda-oom-one-tensor"
    assert told(raised(f"torch.OutOfMemoryError: {at.format('1.20 TiB')}")).signature == "cuda-oom-one-tensor"


# --- how it ended ------------------------------------------------------------------------------------------


def test_the_race_is_named_also_where_the_crash_hid_the_rest() -> None:
    """On torch 2.11 each thread prints the error some twenty times before the segmentation fault."""
    log = "".join(f"Exception in thread t{n % 3}:\n{raised(FX)}" for n in range(20))
    failure = told(log, signal=11, exit_code=139, reason="crashed with SIGSEGV")
    assert failure.signature == "fx-tracing-race"
    assert "in 3 threads" in failure.sentence
    assert failure.sentence.endswith("; then it ended with SIGSEGV")


def test_a_trace_that_was_asked_for_is_no_race() -> None:
    traced = FX.replace("RuntimeError", '  File "/v/torch/fx/_symbolic_trace.py", line 914, in trace\nRuntimeError')
    assert told(raised(traced)).signature == "fx-trace-of-compiled"


STOPPED: dict[str, Any] = {"status": "killed", "exit_code": 130, "reason": "stopped by Ctrl-C"}


def test_a_stop_is_a_stop_whatever_the_workers_then_say() -> None:
    noise = raised("KeyboardInterrupt") + raised("BrokenPipeError: [Errno 32] Broken pipe") + raised("ValueError: 1")
    assert told(noise, **STOPPED).signature == "stopped-by-user"
    assert told("", **STOPPED).sentence == "it was stopped on purpose, by Ctrl-C"


def test_a_run_that_hung_on_a_dead_thread_failed_before_it_was_stopped() -> None:
    failure = told(f"Exception in thread t0:\n{raised(FX)}" + raised("KeyboardInterrupt"), **STOPPED)
    assert failure.signature == "fx-tracing-race"
    assert failure.sentence.endswith("; then it was stopped by Ctrl-C")


@pytest.mark.parametrize("code", [139, -11])
def test_a_shell_in_between_and_a_worker_tell_the_signal_too(code: int) -> None:
    log = "" if code == 139 else "subprocess.CalledProcessError: Command 'x' died with <Signals.SIGSEGV: 11>."
    assert told(log, exit_code=139 if code == 139 else 1).signature == "segfault"


def test_a_crash_of_one_rank_comes_before_what_the_others_say_of_it() -> None:
    root = "Root Cause (first observed failure):\n  rank      : 1 (local_rank: 1)\n  exitcode  : {} (pid: 7)\n"
    error = raised("torch.distributed.DistBackendError: NCCL error in: x.cpp:1, unhandled system error, NCCL version 2")
    assert told(error + root.format(-11)).signature == "segfault"
    assert told(error + root.format(-9)).signature == "killed-from-outside"
    assert told(error + root.format(-6)).signature == "nccl-error"


def test_a_crash_while_compiling_is_told_from_another() -> None:
    stack = "Fatal Python error: Segmentation fault\n\nCurrent thread 0x1 (most recent call first):\n"
    stack += '  File "{}", line 1 in f\n'
    crash: dict[str, Any] = {"signal": 11, "exit_code": 139}
    assert told(stack.format("/v/torch/_inductor/codecache.py"), **crash).signature == "segfault-compiling"
    assert told(stack.format("/v/torch/_dynamo/eval_frame.py"), **crash).signature == "segfault"  # it only calls
    noted = (Note(3.0, "training: the first step also compiles"),)
    assert told("", notes=noted, **crash).signature == "segfault-compiling"
    assert told("", notes=noted, steps={"drafter": steps([9.0])}, **crash).signature == "segfault"
    again = {"compiles": (Compile(9.5, "graph 1/0", 2.0),), "steps": {"drafter": steps([9.0])}}
    assert told("", **again, **crash).signature == "segfault-compiling"


def test_memory_that_ran_out_is_seen_in_the_last_sample() -> None:
    def killed(left: float) -> Failure:
        series = Series(np.array([1.0, 2.0]), np.array([20e9, left]))
        facts = {"environment.memory.bytes": 25_000_000_000}
        return told("", signal=9, exit_code=137, telemetry={"memory.available_bytes": series}, facts=facts)

    assert killed(1e8).signature == "killed-for-memory"
    assert killed(5e9).signature == "killed-from-outside"


# --- the last thing that happened --------------------------------------------------------------------------


def last(end: float = 100.0, facts: dict[str, Value] | None = None, **happened: Any) -> str:
    return told(raised("KeyError: 1"), end=end, facts=facts, **happened).last


def test_the_last_thing_that_happened() -> None:
    two = {"target": steps([90.0], [900]), "drafter": steps([95.0, 97.0], [811, 812])}
    assert last(steps=two, facts={"workload.train.steps": 5000}) == "step 812 of 5,000, 3.00 s before it ended"
    assert last(97.4, steps=two) == "step 812, just before it ended"
    saved = (Checkpoint(98.0, "x.safetensors", 812),)
    assert last(steps=two, checkpoints=saved) == "a checkpoint at step 812, after step 812, 2.00 s before it ended"
    notes = (Note(2.0, "loading the target"), Note(3.0, "no compiler", "warning"))
    assert last(62.0, notes=notes) == "loading the target, 1:00 before it ended; no step was reached"
    assert last(started_t=1.0, end=1.5) == "the trainer had started, just before it ended; no step was reached"
    assert (
        last(compiles=(Compile(9.0, "graph 0/0 forward", 6.5),), end=9.0)
        == "compiling a function, before the first step"
    )


def test_a_trainer_of_ours_that_never_spoke_is_told_from_a_command_that_never_does() -> None:
    evidence = failed(raised("KeyError: 1"))
    assert recognise(evidence).last == "no step was seen"  # type: ignore[union-attr]
    ours = replace(evidence, run=replace(evidence.run, spec=replace(evidence.run.spec, recipe="tiny")))
    assert recognise(ours).last == "it ended before it said that it had started"  # type: ignore[union-attr]


# --- little to go by ---------------------------------------------------------------------------------------


def test_a_reason_alone_is_read_like_a_log() -> None:
    assert told(reason=OOM).signature == "cuda-oom"
    assert told(reason="KeyError: 'a'").sentence == "a Python exception ended it: KeyError: 'a'"


def test_unknown_is_said_to_be_unknown_with_the_lines_that_matter() -> None:
    failure = told("\n".join(["one", "two", BARS, "\x1b[31mthree\x1b[0m", BARS]), exit_code=7)
    assert failure.signature == ""
    assert failure.sentence == "it failed in no way that is known here: exit code 7, and it said nothing"
    assert failure.lines == ("one", "two", "three")
    assert told(exit_code=None).sentence == "it failed in no way that is known here"


def test_what_the_trainer_said_itself_counts() -> None:
    said = Finished(9.0, False, "3 steps in a row were skipped, the last because the loss or a gradient is not finite")
    assert told(raised("KeyError: 1"), finished=said).signature == "nan-loss"
    assert told(finished=Finished(9.0, False, "it is worse than n-gram lookup")).signature == "trainer-said"
    assert told(raised("KeyError: 1"), finished=Finished(9.0)).signature == "python-exception"  # it fell over after


def test_the_doctor_is_asked_of_the_runs_own_python_where_no_environment_has_a_name() -> None:
    missing = failed(
        "ImportError: libnccl.so.2: cannot open shared object file", facts={"context.python": "/a b/python"}
    )
    there = replace(missing, run=replace(missing.run, spec=replace(missing.run.spec, env="")))
    assert "harness doctor --python '/a b/python' --fix" in recognise(there).advice  # type: ignore[union-attr]


@given(st.data())
def test_a_log_cut_anywhere_is_answered_with_a_whole_sentence(data: st.DataObject) -> None:
    evidence, _ = read(data.draw(st.sampled_from(FIXTURES)))
    log = evidence.stderr
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(log))] * 2)))
    mixed = data.draw(st.permutations(log[start:end])) if data.draw(st.booleans()) else log[start:end]
    failure = recognise(replace(evidence, stderr=tuple(mixed)))
    assert failure is not None
    assert failure.sentence
    assert not re.search(r"\{\w+\}|\[ ?\{", failure.sentence + failure.advice)


# --- the table ---------------------------------------------------------------------------------------------

ALWAYS = {"doctor", "words"}


def names(template: str) -> set[str]:
    """The names that a template cannot do without: those outside of its optional parts."""
    return set(re.findall(r"\{(\w+)\}", re.sub(r"\[[^\[\]]*\]", "", template)))


@pytest.mark.parametrize("signature", table().signatures, ids=lambda signature: signature.id)
def test_every_signature_is_complete(signature: Signature) -> None:
    known = ALWAYS | ({"signal"} if signature.signal else set())
    for pattern in signature.text or signature.reason or (re.compile(""),):
        assert names(signature.sentence) <= known | set(pattern.groupindex), pattern.pattern
    assert names(signature.advice) <= ALWAYS
    ours = ("harness-died", "never-said-finished", "trainer-said", "unknown")
    assert signature.report.startswith("https://") or signature.id in ours
    assert all(see.startswith("https://") for see in signature.see)
    assert not signature.sentence.endswith(".")
    known_facts = {"workload", "execution", "environment", "code", "state", "context"}
    assert all(fact.split(".")[0] in known_facts and why for fact, why in signature.facts.items())


def test_every_signature_has_a_fixture_and_every_fixture_a_signature() -> None:
    assert {path.stem for path in FIXTURES} == {signature.id for signature in table().signatures}
    assert len({signature.id for signature in table().signatures}) == len(table().signatures)


def test_the_page_for_people_is_level_with_the_table() -> None:
    there = (Path(__file__).resolve().parents[3] / "docs" / "failures.md").read_text("utf-8")
    assert there == page(), "python -m tests.explain.failing.failures_table > docs/failures.md"
