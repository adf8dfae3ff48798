"""The tries of one cell: a child process forks them, and is watched until it has ended or hung for long enough."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.run import process
from harness.run.race.grid import Cell, Grid
from harness.run.race.outcome import Verdict, judge, said

CHILD = ("-m", "experiments.race")
"""What a cell runs, given to the environment's Python: by name, because the harness does not know the experiments."""

SLACK_S = 60.0
"""Seconds beyond the timeout of a try, after which the process that forks them is taken to hang itself."""

POLL_S = 0.2

_NOT_PASSED_ON = ("HARNESS_", "PYTHON", "TORCH", "TRITON_", "OMP_", "MKL_")


@dataclass(frozen=True)
class Runner:
    """Makes the tries of a grid, cell by cell.

    ``pythons`` is the interpreter of each environment, ``folder`` the race's own, ``root`` where the child's code is.
    """

    grid: Grid
    pythons: dict[str, Path]
    folder: Path
    root: Path
    child: Sequence[str] = CHILD

    def attempts(self, cell: Cell) -> Iterator[tuple[Verdict, float]]:
        """Make the tries of ``cell``: how each ended, and the seconds that it took, as it ends.

        Where the process that forks them dies, its end is the last. Whatever happens, no process stays.
        Raises KeyboardInterrupt after a Ctrl-C, a SIGTERM or a closed terminal: the try does not count then.
        """
        folder = self.folder / "tries" / cell.key
        folder.mkdir(parents=True)
        pressed: list[int] = []
        with process.signals_taken(pressed.append):  # a Ctrl-C that came while the child is started would leave it
            child = process.spawn(self._argv(cell), folder, self._variables(cell), folder, grace=0.0)
            done = False
            try:
                yield from self._each(child, folder, pressed)
                done = not pressed
            finally:
                if not done:
                    child.interrupt(signal.SIGKILL)
                child.close()
        if pressed:
            raise KeyboardInterrupt
        if not any(folder.glob("*.out")):
            shutil.rmtree(folder)  # what a try that passed wrote is of no use; that of the others stays to look into

    def _each(self, child: process.Child, folder: Path, pressed: Sequence[int]) -> Iterator[tuple[Verdict, float]]:
        number, began = 1, time.monotonic()
        while number <= self.grid.tries and not pressed:
            code = child.wait(POLL_S)  # before the reading: what it said before it ended is there then
            ends = [line for line in said(_text(folder / "stdout.log")) if line["event"] == "ended"]
            for end in ends[number - 1 :]:
                yield _judged(folder, number, end["code"]), float(end["seconds"])
                number, began = number + 1, time.monotonic()
            took = time.monotonic() - began
            if number <= self.grid.tries and (code is not None or took > self.grid.timeout + SLACK_S):
                yield judge(code, _text(folder / "stdout.log"), _text(folder / "stderr.log")), took
                return

    def remove_cache(self) -> None:
        """What the tries shared is of no use once the race is over, and tens of megabytes."""
        if self._cache.exists():
            shutil.rmtree(self._cache)

    @property
    def _cache(self) -> Path:
        return self.folder / "cache"

    def _argv(self, cell: Cell) -> list[str]:
        options = {
            "work": cell.work,
            "backend": cell.backend,
            "guard": cell.guard,
            "shapes": cell.shapes,
            "device": cell.device,
            "threads": str(self.grid.threads),
            "tries": str(self.grid.tries),
            "timeout": str(self.grid.timeout),
        }
        return [str(self.pythons[cell.env]), *self.child, *(f"--{name}={value}" for name, value in options.items())]

    def _variables(self, cell: Cell) -> dict[str, str]:
        """One thread for the mathematics, and a cache of the race's own, cold but for what a C++ compiler made.

        With the caches of graphs off, torch traces and compiles in every try. What is shared beside the binaries is
        Python's bytecode: without it each child would spend seconds on reading torch's sources.
        """
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_PASSED_ON)}
        cache = self._cache / cell.env
        return kept | {
            "PYTHONPATH": str(self.root),
            "PYTHONUNBUFFERED": "1",
            "PYTHONPYCACHEPREFIX": str(cache / "bytecode"),
            "OMP_NUM_THREADS": "1",
            "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
            "TRITON_CACHE_DIR": str(cache / "triton"),
            "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
            "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
        }


def _judged(folder: Path, number: int, code: int | None) -> Verdict:
    """The verdict on one try; the files of one that passed go."""
    files = [folder / f"{number:03}.{ending}" for ending in ("out", "err")]
    verdict = judge(code, *(_text(file) for file in files))
    if verdict.outcome == "passed":
        for file in files:
            file.unlink(missing_ok=True)
    return verdict


def _text(file: Path) -> str:
    return file.read_text(errors="replace") if file.exists() else ""
