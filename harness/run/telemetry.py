"""How the machine is doing while a run goes: one sample every two seconds into ``telemetry.jsonl``.

A line is ``{"schema", "t", "cpu", "memory", "disk", "run", "gpus"}``: objects of numbers, ``gpus`` a list with one for
each card. ``t`` is on the clock of the events. Rates are since the sample before; ``run`` is the child and all that it
started. Per cents of a processor are of one core, so eight busy cores are 800.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from harness.pin import gpus
from harness.records import SCHEMA

INTERVAL_S = 2.0
TREE_EVERY = 5
"""Samples between two looks at which processes the run has: each looks through all processes of the machine.

Each of the first so many samples looks: a launcher starts its workers, one after another, when it is there itself.
"""


class _Used(NamedTuple):
    """What a process has used since it began: seconds of processor time, and bytes of disk traffic."""

    cpu: float
    read: int
    written: int


class RunProcesses:
    """The child and its descendants: what they hold, and what they use between two samples."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._processes: dict[int, psutil.Process] = {}
        self._used: dict[int, _Used] = {}
        self._looks = 0
        self._at = time.monotonic()

    def sample(self) -> dict[str, float]:
        """Processor use in per cent of a core, memory in bytes, and disk traffic in bytes a second."""
        if self._looks < TREE_EVERY or self._looks % TREE_EVERY == 0:
            self._look()
        self._looks += 1
        before, self._used = self._used, {}
        memory = threads = 0
        for pid, process in list(self._processes.items()):
            try:
                with process.oneshot():
                    times = process.cpu_times()
                    memory += process.memory_info().rss
                    threads += process.num_threads()
                    read, written = _disk(process)
                    self._used[pid] = _Used(times.user + times.system, read, written)
            except psutil.Error:
                del self._processes[pid]  # it has ended
        # A process that is new since the last sample counts from the next one on.
        grown = [(now, before[pid]) for pid, now in self._used.items() if pid in before]
        elapsed = max(time.monotonic() - self._at, 1e-9)
        self._at += elapsed
        return {
            "processes": len(self._processes),
            "threads": threads,
            "memory_bytes": memory,
            "cpu_pct": round(100 * sum(now.cpu - then.cpu for now, then in grown) / elapsed, 1),
            "disk_read_bytes_s": round(sum(now.read - then.read for now, then in grown) / elapsed),
            "disk_write_bytes_s": round(sum(now.written - then.written for now, then in grown) / elapsed),
        }

    def _look(self) -> None:
        try:
            root = psutil.Process(self._pid)
            found = [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return
        self._processes = {process.pid: self._processes.get(process.pid, process) for process in found}


def _disk(process: psutil.Process) -> tuple[int, int]:
    try:
        counters = process.io_counters()
    except psutil.AccessDenied:  # a container may keep them to itself
        return 0, 0
    return counters.read_bytes, counters.write_bytes


class Machine:
    """The whole machine's processors, memory and disks."""

    def __init__(self) -> None:
        psutil.cpu_percent()  # the first call only starts the count
        self._disk = psutil.disk_io_counters()
        self._at = time.monotonic()

    def sample(self) -> dict[str, dict[str, float]]:
        """``{"cpu": ..., "memory": ..., "disk": ...}``; no disk where the kernel shows none."""
        memory, swap = psutil.virtual_memory(), psutil.swap_memory()
        result: dict[str, dict[str, float]] = {
            "cpu": {"use_pct": psutil.cpu_percent(), "load_1m": os.getloadavg()[0]},
            "memory": {
                "used_bytes": memory.total - memory.available,
                "available_bytes": memory.available,
                "swap_used_bytes": swap.used,
            },
        }
        before, self._disk = self._disk, psutil.disk_io_counters()
        elapsed = max(time.monotonic() - self._at, 1e-9)
        self._at += elapsed
        if before is not None and self._disk is not None:
            result["disk"] = {
                "read_bytes_s": round((self._disk.read_bytes - before.read_bytes) / elapsed),
                "write_bytes_s": round((self._disk.write_bytes - before.write_bytes) / elapsed),
            }
        return result


@contextmanager
def running(folder: Path, pid: int, t0: float, interval: float = INTERVAL_S) -> Iterator[None]:
    """Sample beside the run for as long as the context lasts; the first sample is taken at once.

    ``t0`` is the ``time.monotonic()`` reading at the start of the run. Raises what the sampling thread raised.
    """
    stop = threading.Event()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            _sample_until(stop, folder, pid, t0, interval)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work, name="telemetry", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    if failures:
        raise failures[0]


def _sample_until(stop: threading.Event, folder: Path, pid: int, t0: float, interval: float) -> None:
    machine, processes = Machine(), RunProcesses(pid)
    with gpus.opened() as cards, (folder / "telemetry.jsonl").open("a", encoding="utf-8") as file:
        due = time.monotonic()
        while True:
            sample: dict[str, Any] = {"schema": SCHEMA, "t": round(time.monotonic() - t0, 3), **machine.sample()}
            sample["run"] = processes.sample()
            if cards.cards:
                sample["gpus"] = [{"index": card.index, **card.state()} for card in cards.cards]
            file.write(json.dumps(sample, separators=(",", ":")) + "\n")
            file.flush()
            due += interval
            if stop.wait(max(0.0, due - time.monotonic())):
                return
