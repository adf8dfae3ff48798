"""How an end is told: by exit code, by signal, by what the child said, by what it wrote last."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from harness.records import Finished
from harness.run.verdict import judge, last_words

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
    assert reason in verdict.reason
    assert bool(verdict.reason) == (status != "finished")
    assert "\n" not in verdict.reason


def test_the_out_of_memory_killer_is_named_only_where_it_was_at_work(stderr: Path) -> None:
    assert "memory" not in judge(-9, [], None, True, stderr, memory_ran_out=False).reason
    assert "memory ran out" in judge(-9, [], None, True, stderr, memory_ran_out=True).reason
    assert "memory" not in judge(-15, [], None, True, stderr, memory_ran_out=True).reason
