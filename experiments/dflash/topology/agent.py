"""Starts the ranks of a training on this machine, waits for them, and names the one that failed first.

torch.distributed's elastic agent does it, which is what torchrun is. Ranks are never restarted.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from experiments.dflash.layout import Layout, TopologyConfig, layout_of, seat_of, seats_of_a_machine
from experiments.dflash.topology.devices import check_named, note_simulated
from harness.errors import HarnessError, UsageError, WorkerError
from harness.run.events import Recorder

MODULE = "experiments.dflash.train"


def run_ranks(topology: TopologyConfig, batch: int, threads: int, recorder: Recorder) -> str:
    """One process a device, each started as this one was. Returns why they gave the training up, or "".

    Raises WorkerError where one died, and the HarnessError or UsageError that one raised.
    """
    check_named(topology)
    note_simulated(topology, recorder)
    if topology.nodes > 1:
        recorder.note(f"waiting for {topology.nodes - 1} more of {topology.nodes} machines: {elsewhere(topology)}")
    else:
        recorder.note(f"starting {seats_of_a_machine(topology)} processes, each of which imports torch")
    os.environ["OMP_NUM_THREADS"] = str(threads)
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    command = [sys.executable, *sys.orig_argv[1:]]
    with tempfile.TemporaryDirectory(prefix="dflash-ranks-") as folder, _quiet():
        try:
            elastic_launch(_launch(topology, folder), command[0])(*command[1:])
        except ChildFailedError as error:
            return why(error.failures, layout_of(topology, batch, ""))
        except SignalException as stopped:
            raise SystemExit(128 + stopped.sigval) from None
    return ""


def _launch(topology: TopologyConfig, folder: str) -> LaunchConfig:
    """On one machine a rendezvous that needs no address; on several a static one: it says who is the first."""
    alone = topology.nodes == 1
    return LaunchConfig(
        min_nodes=topology.nodes,
        max_nodes=topology.nodes,
        nproc_per_node=seats_of_a_machine(topology),
        run_id=str(uuid.uuid4()) if alone else "none",  # "none": what a torchrun without --rdzv-id has
        rdzv_backend="c10d" if alone else "static",
        rdzv_endpoint="localhost:0" if alone else topology.rendezvous,
        rdzv_configs={"timeout": int(topology.patience)} | ({} if alone else {"rank": 0}),
        local_addr="localhost" if alone else None,
        max_restarts=0,
        logs_specs=DefaultLogsSpecs(log_dir=folder),
    )


def elsewhere(topology: TopologyConfig) -> str:
    """What to start on the other machines, in a checkout like this one and the same environment."""
    host, _, port = topology.rendezvous.rpartition(":")
    return (
        f"torchrun --nnodes {topology.nodes} --node-rank 1 --nproc-per-node {seats_of_a_machine(topology)} "
        f"--master-addr {host} --master-port {port} -m {MODULE}"
        + (" (and so on for --node-rank 2)" if topology.nodes > 2 else "")
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """The agent's own log says in many lines what the run's record says in one."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def why(failures: Mapping[int, ProcessFailure], layout: Layout) -> str:
    """In one line how the rank that failed first did; ``failures`` in the order in which the agent saw them.

    The agent ends the others by SIGTERM, and a rank that lost another says so: neither is a cause where there is
    another. Raises WorkerError for anything but a training that was given up, or the HarnessError of the rank itself.
    """
    seen = list(failures.items())
    rank, first = min(enumerate(seen), key=lambda item: (_follows(item[1][1], item[0]), item[0]))[1]
    word = first.error_file_data
    said = word["message"]["message"] if "kind" in word else ""
    name = f"{seat_of(layout, rank).name} (rank {rank})"
    match word.get("kind"):
        case "given up":
            return said
        case "line":
            raise UsageError(said) if word["exit_code"] == UsageError.exit_code else HarnessError(said)
        case "error":
            raise WorkerError(f"{name} failed: {said}")
        case "followed":
            raise WorkerError(f"a rank on another machine ended, whose torchrun says how; {said}")
    raise WorkerError(f"{name} {_ended(first.exitcode)}")


def _follows(failure: ProcessFailure, place: int) -> int:
    """0 for a failure of its own, more for one that comes from another."""
    kind = failure.error_file_data.get("kind")
    if kind is not None:
        return int(kind == "followed")
    return 2 if failure.exitcode == -signal.SIGTERM and place > 0 else 0


def _ended(code: int) -> str:
    if code >= 0:
        return f"exited with code {code} and did not say why"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    killed = -code in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    return f"was killed by {name}" if killed else f"crashed with {name}"
