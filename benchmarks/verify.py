"""What the doctor costs on a real environment: ``python -m benchmarks.verify PYTHON [--sha256sum]``.

The goals, on a CUDA environment of 5.5 GB: the first verification takes at most 1.5 times what hashing the same bytes
with all cores takes; again, with nothing changed, under 0.5 s; the fast form before a run under 0.3 s.

Hashing alone is measured in threads and in processes, and by sha256sum where it is asked for: coreutils knows nothing
of the processor's own SHA instructions and is no yardstick. The rounds of all take turns, in one run with the files in
memory, and the ratio is between the best of each.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

from harness.pin.doctor.case import Case, Question
from harness.pin.doctor.checks.files import check
from harness.pin.doctor.diagnose import diagnose
from harness.pin.doctor.installed.digests import digests
from harness.pin.doctor.installed.installation import Installation
from harness.pin.doctor.installed.layout import ask
from harness.pin.doctor.installed.read import read
from harness.pin.doctor.installed.stat_cache import StatCache
from harness.pin.doctor.installed.tree import signature, walk
from harness.places import Places, places
from harness.run.guard import FOREIGN_LIMIT_BYTES

FIRST_GOAL, AGAIN_GOAL_S, BEFORE_A_RUN_GOAL_S = 1.5, 0.5, 0.3
ROUNDS = 3
BATCH = 1 << 20
"""Bytes of small files that a worker is given at a time."""


def hash_files(paths: Sequence[str]) -> int:
    """Hash each file; the number of bytes."""
    buffer, done = bytearray(1 << 20), 0
    view = memoryview(buffer)
    for path in paths:
        digest = hashlib.sha256()
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - nothing but the hashing is to be measured
            while size := file.readinto(buffer):
                digest.update(view[:size])
                done += size
        digest.digest()
    return done


def batches(sizes: Mapping[str, int]) -> list[list[str]]:
    """The files, the largest first, the small ones together."""
    found: list[list[str]] = []
    room = 0
    for path in sorted(sizes, key=sizes.__getitem__, reverse=True):
        if sizes[path] > room:
            found.append([])
            room = BATCH
        found[-1].append(path)
        room -= sizes[path]
    return found


def hashed_by(pool: type[Executor], sizes: Mapping[str, int]) -> Callable[[], None]:
    def run() -> None:
        with pool(len(os.sched_getaffinity(0))) as workers:  # type: ignore[call-arg]
            assert sum(workers.map(hash_files, batches(sizes))) == sum(sizes.values())

    return run


def sha256sum(sizes: Mapping[str, int]) -> None:
    command = ["xargs", "-0", "-n", "64", "-P", str(len(os.sched_getaffinity(0))), "sha256sum", "-b"]
    ordered = "\0".join(path for batch in batches(sizes) for path in batch)
    subprocess.run(command, input=os.fsencode(ordered), stdout=subprocess.DEVNULL, check=True)


def best(rounds: int, **actions: Callable[[], object]) -> dict[str, float]:
    """Seconds of each action, in the round that was disturbed least; the actions take turns."""
    seconds = dict.fromkeys(actions, float("inf"))
    for _ in range(rounds):
        for name, action in actions.items():
            begun = time.perf_counter()
            action()
            seconds[name] = min(seconds[name], time.perf_counter() - begun)
    return seconds


def parts(python: Path, installation: Installation, folder: Path) -> dict[str, float]:
    """Seconds of each step that a diagnosis is made of, with every digest remembered."""
    index = folder / "index"
    first = digests(installation, StatCache())
    case = Case(installation, digests=first.known)
    first.remembered.save(index)
    return best(
        ROUNDS,
        ask=lambda: ask(python),
        walk=lambda: walk(installation.layout),
        signature=lambda: signature(installation.files),
        read=lambda: read(installation.layout),
        load=lambda: StatCache.load(index),
        digests=lambda: digests(installation, first.remembered),
        save=lambda: first.remembered.save(index),
        files=lambda: list(check(case)),
    )


def whole(python: Path, state: Path) -> dict[str, float]:
    """Seconds of a whole diagnosis: the first, another with nothing changed, and a limited one of the unknown."""
    question = Question(python)
    known, unknown = (Places(places().root, state / name, state / "runs") for name in ("known", "unknown"))
    return {
        **best(1, first=lambda: diagnose(question, known)),
        **best(ROUNDS, again=lambda: diagnose(question, known)),  # what a run waits for, too
        **best(1, limited=lambda: diagnose(question, unknown, limit=FOREIGN_LIMIT_BYTES)),
    }


def main(python: Path, with_sha256sum: bool) -> None:
    """Print each figure for a person, and all of them as one line of JSON."""
    installation = read(ask(python))
    owned = {claim.path for d in installation.distributions for claim in d.claims if claim.algorithm}
    sizes = {path: installation.files[path].size for path in owned if path in installation.files}
    hash_files(list(sizes))  # into memory
    alone = {name: hashed_by(pool, sizes) for name, pool in POOLS.items()}
    hashing = best(ROUNDS, **alone, doctor=lambda: digests(installation, StatCache()))
    if with_sha256sum:
        hashing |= best(1, sha256sum=lambda: sha256sum(sizes))
    with tempfile.TemporaryDirectory() as name:
        steps = parts(python, installation, Path(name))
        diagnosis = whole(python, Path(name))
    yardstick = min(hashing[name] for name in POOLS)
    print(f"{len(sizes):,} files, {sum(sizes.values()) / 1e9:.2f} GB, {len(os.sched_getaffinity(0))} cores")
    for title, seconds in (("hashing", hashing), ("steps", steps), ("diagnosis", diagnosis)):
        print(f"{title:10}", "  ".join(f"{name} {value:.3f} s" for name, value in seconds.items()))
    ratios = {"digests": hashing["doctor"] / yardstick, "first": diagnosis["first"] / yardstick}
    print(f"{'ratio':10}", "  ".join(f"{name} {ratio:.2f} of hashing alone" for name, ratio in ratios.items()))
    goals = {"first": FIRST_GOAL, "again_s": AGAIN_GOAL_S, "before_a_run_s": BEFORE_A_RUN_GOAL_S}
    print(
        json.dumps({"goals": goals, "ratios": ratios, "hashing_s": hashing, "steps_s": steps, "diagnosis_s": diagnosis})
    )


POOLS: Mapping[str, type[Executor]] = {"threads": ThreadPoolExecutor, "processes": ProcessPoolExecutor}

if __name__ == "__main__":
    main(Path(sys.argv[1]), "--sha256sum" in sys.argv)
