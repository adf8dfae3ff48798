"""A rank's process: joins the others, trains, and leaves word of what went wrong for the agent that started it.

The word is the error file of torch.distributed's elastic agents (so a plain torchrun prints it too) with two fields
of our own: ``kind`` and ``exit_code``.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import os
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal, NoReturn

import torch.distributed as dist
from torch.distributed.distributed_c10d import Store
from torch.distributed.rendezvous import rendezvous

from experiments.dflash.config import DFlashConfig
from experiments.dflash.layout import seats_of_a_machine
from experiments.dflash.topology.peers import KeptRecorder, PeerLost, talking
from experiments.dflash.topology.start import Run
from harness.errors import HarnessError, UsageError
from harness.run.events import Recorder

Kind = Literal["error", "line", "given up", "followed"]
"""error     an exception; its type and text
line      a HarnessError, whose text is for a person and needs no more
given up  why the training was given up, by rank 0
followed  nothing but that another rank could not be reached"""

FIRST_ERROR = "first error"  # its key in the store of all ranks
OTHERS_WORD_S = 3.0
"""Seconds that a rank which lost another waits for that one's word, and for the agent to see how that one ended."""


@dataclass(frozen=True)
class Word:
    """What a rank says of its end."""

    kind: Kind
    text: str
    exit_code: int = 1

    def leave(self, trace: str = "") -> None:
        """Write the error file, where an agent asked for one."""
        path = os.environ.get("TORCHELASTIC_ERROR_FILE")
        if not path:
            return
        details = {"py_callstack": trace or self.text, "timestamp": str(int(time.time()))}
        said = {"message": self.text, "extraInfo": details, "errorCode": self.exit_code}
        aside = Path(f"{path}.partial")
        aside.write_text(json.dumps({"message": said, "kind": self.kind, "exit_code": self.exit_code}), "utf-8")
        aside.rename(path)


def work(run: Run, recorder: Recorder) -> NoReturn:
    """``run`` as the rank that the environment says, to the end of this process."""
    _end_with_the_agent()
    faulthandler.enable()  # a segmentation fault leaves a stack on standard error
    store = None
    try:
        with talking():
            store, rank, ranks = next(iter(rendezvous("env://")))
            dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
        reason = run(_shared_config(recorder, rank, ranks), _recorder_of(recorder, rank))
        word = Word("given up", reason) if reason and rank == 0 else None
        trace = ""
    except PeerLost as lost:
        word, trace = _followed(lost, store), ""
        _print(word.text)
    except HarnessError as error:
        word, trace = Word("line", str(error), error.exit_code), ""
    except Exception as error:
        trace = traceback.format_exc()
        word = Word("error", (f"{type(error).__name__}: {error}".strip(": ").splitlines())[0])
        _print(trace)
    if word is not None:
        _end(word, trace, store)
    dist.destroy_process_group()
    sys.exit(0)


def _end(word: Word, trace: str, store: Store | None) -> NoReturn:
    """At once: a rank that failed does not wait for threads that talk to the others."""
    word.leave(trace)
    if store is not None and word.kind != "followed":
        with contextlib.suppress(RuntimeError):  # the first machine's agent, which keeps the store, may be gone
            store.compare_set(FIRST_ERROR, "", f"{_name()}: {word.text}")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(word.exit_code)


def _followed(lost: PeerLost, store: Store | None) -> Word:
    """What another rank says of its own end; where it says nothing, it was killed, or is on a machine that is gone."""
    try:
        if store is None:
            raise PeerLost
        with talking():
            store.wait([FIRST_ERROR], timedelta(seconds=OTHERS_WORD_S))
            return Word("followed", store.get(FIRST_ERROR).decode())
    except PeerLost:
        return Word("followed", f"{_name()} lost another rank, which said nothing: {lost}")


def _name() -> str:
    return f"rank {os.environ['RANK']}"


def _print(text: str) -> None:
    """On standard error, each line marked as torch.distributed marks it.

    A line is one write: print makes two where Python does not buffer, and another rank's line would come in between.
    """
    for line in text.rstrip().splitlines():
        sys.stderr.write(f"[rank{os.environ['RANK']}]: {line}\n")


def _shared_config(recorder: Recorder, rank: int, ranks: int) -> DFlashConfig:
    """Rank 0's, which is the one on the machine where the run is.

    Raises UsageError where these processes are not those that it asks for.
    """
    shared: list[DFlashConfig | None] = [recorder.config(DFlashConfig) if rank == 0 else None]
    with talking():
        dist.broadcast_object_list(shared, src=0)
    (config,) = shared
    assert config is not None
    topology = config.topology
    if topology.kind != "processes":
        raise UsageError(f"torchrun started {ranks} processes, and topology.kind={topology.kind} is one: use processes")
    here = seats_of_a_machine(topology)
    if ranks != here * topology.nodes or int(os.environ.get("LOCAL_WORLD_SIZE", here)) != here:
        raise UsageError(
            f"torchrun started {ranks} processes, and the topology has {topology.nodes} machines of {here} devices: "
            f"use --nnodes {topology.nodes} --nproc-per-node {here}"
        )
    return config


def _recorder_of(recorder: Recorder, rank: int) -> Recorder:
    """A machine without a run folder keeps its events for rank 0, which may have one."""
    elsewhere = recorder.folder is None and rank >= int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return KeptRecorder(time.monotonic()) if elsewhere else recorder


def _end_with_the_agent() -> None:
    """Die when the agent does, however it does, and at Ctrl-C without a traceback from every rank.

    An agent that is gone already has taken the store along, and the rendezvous fails.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
