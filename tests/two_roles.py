"""A trainer of two targets and three drafters, standard library only: ``two_roles.py processes`` or ``threads``.

A target takes 4 ms for the features of a share and puts them in its drafter's queue, which holds two; a drafter takes
half a millisecond, and meets the others after each step. So the drafters wait for the targets.
"""

from __future__ import annotations

import multiprocessing
import queue
import sys
import threading
import time
from typing import Any

from harness.run.events import Recorder

TARGETS, DRAFTERS, STEPS = 2, 3, 40


def target(record: Recorder, number: int, queues: list[Any]) -> None:
    shares = [share for share in range(STEPS * DRAFTERS) if share % TARGETS == number]
    for step, share in enumerate(shares, 1):
        with record.step(step, "target", f"cpu:{number}") as timer:
            with timer.phase("target"):
                time.sleep(0.004)
            with timer.phase("wait"):
                queues[share % DRAFTERS].put(share)


def drafter(record: Recorder, number: int, queues: list[Any], meeting: Any) -> None:
    for step in range(1, STEPS + 1):
        with record.step(step, "drafter", f"cpu:{TARGETS + number}") as timer:
            with timer.phase("wait"):
                queues[number].get()
            with timer.phase("forward"):
                time.sleep(0.0005)
            with timer.phase("wait"):
                meeting.wait()
            with timer.phase("communication"):
                time.sleep(0.0002)
            timer.count(tokens=100 + number, padding=number)
            timer.metrics(loss=5.0 / step)


def main(kind: str) -> None:
    record = Recorder.from_environment()
    record.started(total_steps=STEPS)
    fork = multiprocessing.get_context("fork")
    processes = kind == "processes"
    queues: list[Any] = [fork.Queue(2) if processes else queue.Queue(2) for _ in range(DRAFTERS)]
    meeting: Any = fork.Barrier(DRAFTERS) if processes else threading.Barrier(DRAFTERS)
    start: Any = fork.Process if processes else threading.Thread
    workers = [start(target=target, args=(record, n, queues)) for n in range(TARGETS)]
    workers += [start(target=drafter, args=(record, n, queues, meeting)) for n in range(DRAFTERS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    failed = [worker.exitcode for worker in workers if processes and worker.exitcode]
    record.finished(not failed, f"{len(failed)} workers failed" if failed else "")


if __name__ == "__main__":
    main(sys.argv[1])
