"""How an end is told: by exit code, by signal, by what the child said, by what it wrote last."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from harness.records import Finished
from harness.run.verdict import judge, last_words, outcome

TRACEBACK = b"""\
Epoch 1:  10%|#         | 1/10\rEpoch 1:  20%|##        | 2/10
Traceback (most recent call last):
  File "train.py", line 9, in <module>
    main()
    ~~~~^^
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 298.00 GiB
    (details follow)

Set TORCHDYNAMO_VERBOSE=1 for more.
"""


@pytest.fixture
def stderr(tmp_path: Path) -> Path:
    path = tmp_path / "stderr.log"
    path.write_bytes(TRACEBACK)
    return path


def test_the_exception_is_the_last_word_whatever_advice_follows_it(stderr: Path) -> None:
    assert last_words(stderr) == "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 298.00 GiB"
    stderr.write_text("warming up\nno such file: corpus.txt\n\n")
    assert last_words(stderr) == "no such file: corpus.txt"
    stderr.write_text("x" * 100_000)
    assert last_words(stderr) == "x" * 300
    assert last_words(stderr.with_name("nothing.log")) == ""


OK, BAD = Finished(1.0), Finished(1.0, False, "lossless was lost")


@pytest.mark.parametrize(
    ("code", "sent", "finished", "ours", "status", "reason"),
    [
        (0, [], OK, True, "finished", ""),
        (0, [], None, False, "finished", ""),
        (0, [], None, True, "failed", "never said"),
        (0, [], BAD, True, "failed", "lossless was lost"),
        (0, [], BAD, False, "failed", "lossless was lost"),  # a command may speak the protocol too
        (1, [], None, True, "failed", "CUDA out of memory"),
        (1, [], OK, True, "failed", "CUDA out of memory"),  # it fell over after it had finished
        (-11, [], None, True, "failed", "crashed with SIGSEGV; its last words: torch.OutOfMemoryError"),
        (-9, [], None, True, "killed", "SIGKILL from outside"),
        (-15, [], BAD, True, "failed", "lossless was lost"),  # then the launcher ended its workers, and itself
        (-15, [signal.SIGTERM], BAD, True, "killed", "SIGTERM to the harness"),  # which may be why it failed
        (0, [signal.SIGINT], OK, True, "finished", ""),  # it had finished before the signal came
        (0, [signal.SIGTERM], None, False, "killed", "SIGTERM to the harness"),  # it ended well, before its time
        (1, [signal.SIGINT], None, True, "killed", "stopped by Ctrl-C"),
        (-9, [signal.SIGINT, signal.SIGKILL], None, True, "killed", "Ctrl-C, and killed because it did not end"),
        (-1, [signal.SIGHUP], None, True, "killed", "terminal was closed"),
    ],
)
def test_every_end_has_its_status_and_its_reason(
    stderr: Path, code: int, sent: list[int], finished: Finished | None, ours: bool, status: str, reason: str
) -> None:
    verdict = judge(code, sent, finished, ours, stderr, memory_ran_out=False)
    assert verdict.status == status
    died_of = -code if code < 0 else None
    assert verdict.signal == (sent[0] if sent and status == "killed" else died_of)
    assert reason in verdict.reason
    assert bool(verdict.reason) == (status != "finished")
    assert "\n" not in verdict.reason


def test_the_out_of_memory_killer_is_named_only_where_it_was_at_work(stderr: Path) -> None:
    assert "memory" not in judge(-9, [], None, True, stderr, memory_ran_out=False).reason
    assert "memory ran out" in judge(-9, [], None, True, stderr, memory_ran_out=True).reason
    assert "memory" not in judge(-15, [], None, True, stderr, memory_ran_out=True).reason


WORKER = Finished(1.0, False, "rank 2 (drafter on cuda:5): CUDA out of memory")
LAUNCHER = Finished(2.0, False, "a worker failed")


@pytest.mark.parametrize(
    ("told", "which"),
    [
        ([], None),
        ([OK], OK),
        ([WORKER, LAUNCHER], WORKER),
        ([WORKER, BAD, LAUNCHER], WORKER),
        ([OK, LAUNCHER], LAUNCHER),  # a worker that was done is not the run
        ([WORKER, OK], WORKER),  # nor is a launcher that did not notice
        ([Finished(1.0), OK], OK),
    ],
)
def test_of_several_the_first_failure_is_the_reason(told: list[Finished], which: Finished | None) -> None:
    assert outcome(iter(told)) is which


# What torchrun of torch 2.14.1 prints where rank 1 of 3 dies: without a process group, with gloo, and of a signal.
ALONE = """\
Traceback (most recent call last):
  File "train.py", line 8, in <module>
    raise ValueError("the drafter's loss is not finite at step 7")
ValueError: the drafter's loss is not finite at step 7
"""
TOGETHER = """\
[rank1]: Traceback (most recent call last):
[rank1]:   File "train.py", line 8, in <module>
[rank1]:     raise ValueError("the drafter's loss is not finite at step 7")
[rank1]: ValueError: the drafter's loss is not finite at step 7
[rank0]: Traceback (most recent call last):
[rank0]:     work.wait()
[rank0]: RuntimeError: [gloo/transport/tcp/pair.cc:561] Connection closed by peer [127.0.0.1]:16297.
[rank2]: RuntimeError: [gloo/transport/tcp/pair.cc:561] Connection closed by peer [127.0.0.1]:16297.
"""
BY_A_SIGNAL = "[rank0]: RuntimeError: [gloo/transport/tcp/pair.cc:561] Connection closed by peer [127.0.0.1]:16297.\n"
TORCHRUN = """\
W1130 04:20:08.249000 430 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 437 closing signal
Traceback (most recent call last):
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 437)  (SIGTERM)
  traceback : Signal 15 (SIGTERM) received by PID 437
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-30_04:20:08
  host      : localhost
  rank      : 1 (local_rank: 1)
  exitcode  : {exitcode}
  error_file: <N/A>
  traceback : {traceback}
============================================================
"""
AN_ERROR = TORCHRUN.format(exitcode="1 (pid: 438)", traceback="To enable traceback see: https://pytorch.org/docs/")
A_SIGNAL = TORCHRUN.format(exitcode="-11 (pid: 438)  (SIGSEGV)", traceback="Signal 11 (SIGSEGV) received by PID 438")


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        (ALONE + AN_ERROR, "ValueError: the drafter's loss is not finite at step 7"),
        (TOGETHER + AN_ERROR, "ValueError: the drafter's loss is not finite at step 7"),
        (BY_A_SIGNAL + A_SIGNAL, "rank 1 was ended by SIGSEGV"),
        (AN_ERROR, "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:"),  # nothing else is known
    ],
)
def test_the_worker_that_failed_first_has_the_last_word(stderr: Path, printed: str, said: str) -> None:
    stderr.write_text(printed)
    assert last_words(stderr) == said
