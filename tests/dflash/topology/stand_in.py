"""A training whose ranks only meet, started as the trainer is: ``python -m tests.dflash.topology.stand_in``.

``DIE`` says who dies of what and when, as in "1 kill meeting": rank, way, moment. ``WAIT``: all stay in the middle.
``REASON``: why it is given up.
"""

from __future__ import annotations

import os
import signal
import sys
import time

import torch
import torch.distributed as dist

from experiments.dflash.config import DFlashConfig
from experiments.dflash.topology.peers import talking
from experiments.dflash.topology.start import start
from harness.errors import HarnessError, UsageError
from harness.run.events import Recorder

ROUNDS = 50


def die_if_asked(moment: str) -> None:
    who, how, when = os.environ.get("DIE", "- - -").split()
    if os.environ.get("RANK") != who or when != moment:
        return
    if how == "raise":
        raise ValueError("three\nlines\nof words")
    if how == "runtime":
        raise RuntimeError("no communication at all")
    if how == "usage":
        raise UsageError("device=none is no device")
    if how == "exit":
        os._exit(7)
    os.kill(os.getpid(), getattr(signal, f"SIG{how.upper()}"))
    time.sleep(600)


def run(_: DFlashConfig, recorder: Recorder) -> str:
    """Load, wait for rank 0, which is long at something, meet often, and leave."""
    die_if_asked("loading")
    for meeting in range(ROUNDS):
        if meeting == 1:
            recorder.note("met")
        if meeting == 2 and dist.get_rank() == 0 and os.environ.get("DIE", "").endswith("evaluating"):
            time.sleep(600)  # rank 0 talks to nobody
        if meeting == 2:
            die_if_asked("evaluating")
        if meeting == 10:
            die_if_asked("meeting")
        if meeting == 10 and "WAIT" in os.environ:
            time.sleep(600)
        with talking():
            dist.all_reduce(torch.ones(1))
    return os.environ.get("REASON", "")


def main() -> int:
    """As the trainer's own."""
    die_if_asked("starting")
    recorder = Recorder.from_environment()
    try:
        reason = start(run, recorder)
    except HarnessError as error:
        recorder.finished(ok=False, reason=str(error))
        return error.exit_code
    recorder.finished(ok=not reason, reason=reason)
    return 1 if reason else 0


if __name__ == "__main__":
    sys.exit(main())
