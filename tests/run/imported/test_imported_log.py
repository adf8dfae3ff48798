"""A whole log: which of its lines are steps, what is left over, and how it ended."""

from __future__ import annotations

import pytest

from harness.errors import UsageError
from harness.run.imported.log import read_log
from harness.run.imported.rows import steps_of
from harness.run.logsteps import compiled

TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 7, in <module>\n    step()\n'


def log(count: int = 12, begin: str = "loading\n", line: str = "step {n} | loss 2.5 | 21.5 Ktok/s") -> str:
    return begin + "".join(line.format(n=n) + "\n" for n in range(1, count + 1))


def test_steps_are_told_from_all_else() -> None:
    found = read_log(log() + "saving step 12\nall done\n")
    assert (found.lines, len(found.rows), found.unread, found.crash, found.total) == (15, 12, (), None, None)
    assert [row.line for row in found.rows] == list(range(2, 14))


def test_lines_that_speak_of_a_step_and_say_too_little_are_named() -> None:
    text = log() + "best loss 2.1\nbest loss 2.1 at step 4\nstep 13 | loss 2.\n"
    found = read_log(text)
    assert found.unread == (14, 15)
    assert steps_of(found.rows).unused == (16,)
    assert len(steps_of(found.rows).steps) == 12


def test_a_hugging_face_log_has_its_steps_in_the_bar_and_its_losses_beside_it() -> None:
    said = "Loading shards: 100%|##| 2/2 [00:30<00:00, 15.0s/it]\n"
    for n in range(201):
        said += f"\r {n // 2}%|##   | {n}/200 [00:{n // 4:02}<00:45,  4.00it/s]"
        if n and n % 50 == 0:
            said += f"\n{{'loss': {n / 100}, 'learning_rate': 5e-05, 'epoch': 0.5}}\n"
            said += f"{{'eval_loss': {n / 200}, 'eval_runtime': 3.0, 'eval_steps_per_second': 1.0}}\n"
            said += "\r 50%|## | 5/10 [00:02<00:02, 2.5it/s]"  # evaluation has a bar of its own
    said += "{'train_runtime': 60.0, 'train_steps_per_second': 3.3, 'train_loss': 2.2, 'epoch': 1.0}\n"
    found = read_log(said)
    steps = steps_of(found.rows, found.begin).steps
    assert (len(steps), found.total, found.unread) == (200, 200, ())
    assert {step.seconds for step in steps} == {0.25}
    assert {step.step: step.metrics["loss"] for step in steps if step.metrics} == {50: 0.5, 100: 1, 150: 1.5, 200: 2}
    assert next((e.step, e.evaluated) for e in found.evaluations) == (50, {"loss": 0.25, "runtime": 3.0})


def test_the_bars_of_several_epochs_are_one_run() -> None:
    bars = [f"Epoch {e}: 50%|# | {n}/10 [00:{n:02}<00:05, 1.00it/s]" for e in range(3) for n in range(11)]
    found = read_log("\r".join(bars))
    assert [row.step for row in found.rows] == list(range(1, 31))
    assert found.rows[-1].clock == 30.0


def test_lines_of_their_own_say_more_than_the_bar_beside_them() -> None:
    bars = "".join(f"\r 5%|# | {n}/12 [00:{n:02}<00:05, 1.00it/s]\nstep {n} loss 2.5 dt 0.5\n" for n in range(1, 13))
    found = read_log(bars)
    assert [(row.step, row.seconds, row.bar) for row in found.rows[:2]] == [(1, 0.5, ""), (2, 0.5, "")]


def test_of_several_processes_one_is_taken() -> None:
    lines = [f"[rank{r}]:step: {n} loss: 2.5 tps: {1000 + r}" for n in range(1, 13) for r in (1, 0, 2)]
    found = read_log("\n".join(["[rank3]:warning: step 1 is slow", *lines]))
    assert {row.rate for row in found.rows} == {1000.0}
    assert found.remarks == ("4 processes wrote it: the lines of rank 0 are taken",)


def test_when_it_began_is_its_first_time_stamp_before_a_step() -> None:
    line = "2026-11-29 12:00:{n:02} step {n} 21.5 Ktok/s"
    assert read_log(log(line=line)).begin is None
    begun = read_log(log(line=line, begin="2026-11-29 11:59:00 loading\nyet more\n"))
    assert begun.begin == 1_795_953_540.0
    steps = steps_of(begun.rows, begun.begin)
    assert (steps.first_step, steps.steps[0].seconds) == (True, 61.0)


def test_a_clock_goes_on_after_midnight() -> None:
    lines = [
        f"{(23 * 3600 + 3590 + 5 * n) // 3600 % 24:02}:{59 if n < 2 else 0:02}:{(50 + 5 * n) % 60:02}"
        for n in range(12)
    ]
    found = read_log("\n".join(f"{stamp} step {n} 9 tok/s" for n, stamp in enumerate(lines, 1)))
    assert {step.seconds for step in steps_of(found.rows).steps} == {5.0}


@pytest.mark.parametrize("second", [1, 3])
def test_two_runs_in_one_log_are_refused_with_the_line(second: int) -> None:
    text = log(5) + f"restarted\nstep {second} | loss 2.5 | 21.5 Ktok/s\n"
    with pytest.raises(UsageError, match=f"line 8: step {second} comes after step 5 of line 6"):
        read_log(text)


def test_colours_are_no_part_of_what_is_said() -> None:
    found = read_log(log(line="\x1b[31mstep:  {n}  \x1b[32mloss:  2.5  \x1b[34mtps: 3,456\x1b[0m"))
    assert {(row.loss, row.rate) for row in found.rows} == {(2.5, 3456.0)}


@pytest.mark.parametrize(
    ("end", "reason", "signal", "line"),
    [
        (TRACEBACK + "ValueError: odd\n", "ValueError: odd", None, 14),
        (
            TRACEBACK + "torch.cuda.OutOfMemoryError: CUDA out of memory.\n",
            "torch.cuda.OutOfMemoryError: CUDA out",
            None,
            14,
        ),
        ("Segmentation fault (core dumped)\n", "crashed with SIGSEGV; its last words: Segmentation fault", 11, 14),
        ("saving\n/bin/sh: line 1: 77 Killed python train.py\nKilled\n", "crashed with SIGKILL", 9, 16),
        (
            TRACEBACK + "RuntimeError: fx\n\nSegmentation fault\n",
            "crashed with SIGSEGV; its last words: RuntimeError: fx",
            11,
            14,
        ),
        ("[rank0]: " + TRACEBACK + "[rank0]: RuntimeError: NCCL\n", "RuntimeError: NCCL", None, 14),
        (TRACEBACK, "a traceback without its exception", None, 14),
    ],
)
def test_how_it_ended_is_read_from_its_last_lines(end: str, reason: str, signal: int | None, line: int) -> None:
    crash = read_log(log() + end).crash
    assert crash is not None
    assert crash.reason.startswith(reason)
    assert (crash.signal, crash.line) == (signal, line)


def test_a_crash_that_the_training_survived_is_none() -> None:
    assert read_log("".join([log(3), TRACEBACK, "ValueError: odd\n", log(9, "")[len(log(3, "")) :]])).crash is None
    assert read_log(log() + "done, 0 errors\nException ignored in: <x>\n").crash is None


def test_a_log_may_be_a_crash_alone() -> None:
    found = read_log("loading\n" + TRACEBACK + "RuntimeError: fx\n")
    assert found.rows == ()
    assert found.crash is not None
    assert found.crash.line == 2


def test_a_persons_own_expression_reads_what_no_pattern_does() -> None:
    line = "~ {n} ~ 2,048 ~ 0.25"
    own = compiled(r"~ (?P<step>\d+) ~ (?P<tokens>[\d,]+) ~ (?P<seconds>[\d.]+)", ("seconds", "time"))
    assert read_log(log(line=line)).rows == ()
    steps = steps_of(read_log(log(line=line), own).rows).steps
    assert [(step.step, step.tokens, step.seconds) for step in steps[:2]] == [(1, 2048, 0.25), (2, 2048, 0.25)]
    rates = compiled(r"~ \d+ ~ (?P<ktok_s>[\d,]+)")
    assert {row.rate for row in read_log(log(line=line), rates).rows} == {2_048_000.0}
    stamped = compiled(r"(?P<time>[\d:]+)!(?P<tokens>\d+)", ("seconds", "time"))
    found = read_log("".join(f"12:00:{n:02}!7\n" for n in range(12)), stamped)
    assert {step.seconds for step in steps_of(found.rows).steps} == {1.0}


@pytest.mark.parametrize("pattern", [r"tok=(?P<tokens>\d+)", r"tok=(\d+)"])
def test_a_persons_own_expression_adds_to_what_the_patterns_find(pattern: str) -> None:
    found = read_log(
        log(begin="tok=1 of the vocabulary\n", line="[it {n}] tok=8192 dt=0.38 loss 2.5"), compiled(pattern)
    )
    steps = steps_of(found.rows[-12:])
    assert {(step.tokens, step.seconds, step.metrics["loss"]) for step in steps.steps} == {(8192, 0.38, 2.5)}
    assert [step.step for step in steps.steps] == list(range(1, 13))
    named = "tokens" if "?P" in pattern else "the group without a name: (?P<tokens>...) names it"
    assert f'tokens from "{named}"' in steps.words


def test_a_persons_figures_go_before_those_of_the_patterns() -> None:
    line = "step 7{n} | 1 tokens | val loss 2.5 | 21.5 Ktok/s | 9 s/it | true step {n}, 400 a second, 2 s"
    own = compiled(r"true step (?P<step>\d+), (?P<tok_s>\d+) a second, (?P<seconds>\d+)", ("seconds", "time"))
    steps = steps_of(read_log(log(line=line), own).rows)
    assert [(step.step, step.tokens, step.seconds) for step in steps.steps[:2]] == [(1, 800, 2.0), (2, 800, 2.0)]


def test_a_group_without_a_name_that_finds_no_number_is_said_to_need_one() -> None:
    with pytest.raises(
        UsageError, match=r"line 2: the first group .* found 'tok', which is no number; .*\(\?P<tokens>"
    ):
        read_log(log(line="[it {n}] tok=8192 dt=0.38"), compiled(r"(tok|t)=(\d+)"))
