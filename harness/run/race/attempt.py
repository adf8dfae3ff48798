"""One try: a child process that compiles from threads, watched until it ends, dies or has hung for long enough."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.run import process
from harness.run.race.grid import Cell, Grid
from harness.run.race.outcome import Verdict, judge

CHILD = ("-m", "experiments.race")
"""What a try runs, given to the environment's Python: by name, because the harness does not know the experiments."""

STACKS_S = 2.0
"""Seconds that a child which hangs has to write its stacks, before it is killed."""

POLL_S = 0.2

_NOT_PASSED_ON = ("HARNESS_", "PYTHON", "TORCH", "TRITON_", "OMP_", "MKL_")


@dataclass(frozen=True)
class Runner:
    """Makes the tries of a grid. ``pythons``: the interpreter of each environment; ``folder``: the race's own."""

    grid: Grid
    pythons: dict[str, Path]
    folder: Path
    root: Path
    child: Sequence[str] = CHILD

    def attempt(self, cell: Cell, number: int) -> tuple[Verdict, float]:
        """Make one try; how it ended, and the seconds that it took. Whatever happens, no process of it stays.

        Raises KeyboardInterrupt after a Ctrl-C, a SIGTERM or a closed terminal: the try does not count then.
        """
        folder = self.folder / "tries" / f"{cell.key}-{number:03}"
        folder.mkdir(parents=True)
        began = time.monotonic()
        pressed: list[int] = []
        with process.signals_taken(pressed.append):  # a Ctrl-C that came while the child is started would leave it
            child = process.spawn(self._argv(cell), folder, self._variables(cell), folder, grace=0.0)
            code = None
            try:
                code = self._wait(child, pressed)
            finally:
                if code is None:
                    child.interrupt(signal.SIGKILL)
                child.close()
        if pressed:
            raise KeyboardInterrupt
        verdict = judge(code, *((folder / f"{name}.log").read_text(errors="replace") for name in ("stdout", "stderr")))
        if verdict.outcome == "passed":
            shutil.rmtree(folder)  # what it wrote is of no use; that of the others stays for whoever looks into it
        return verdict, time.monotonic() - began

    def _wait(self, child: process.Child, pressed: Sequence[int]) -> int | None:
        """The exit code; None where it hangs, with its stacks written, or where somebody ``pressed`` Ctrl-C."""
        deadline = time.monotonic() + self.grid.timeout
        while time.monotonic() < deadline and not pressed:
            if (code := child.wait(POLL_S)) is not None:
                return code
        if not pressed:
            os.kill(child.pid, signal.SIGUSR1)  # faulthandler's cue in the child
            child.wait(STACKS_S)
        return None

    def _argv(self, cell: Cell) -> list[str]:
        options = {
            "work": cell.work,
            "backend": cell.backend,
            "guard": cell.guard,
            "shapes": cell.shapes,
            "device": cell.device,
            "threads": str(self.grid.threads),
        }
        return [str(self.pythons[cell.env]), *self.child, *(f"--{name}={value}" for name, value in options.items())]

    def _variables(self, cell: Cell) -> dict[str, str]:
        """One thread for the mathematics, and a cache of the race's own, cold but for what a C++ compiler made.

        With its caches of graphs off, torch traces and compiles in every try. What is shared beside the binaries is
        Python's bytecode: without it each child would spend seconds on reading torch's sources.
        """
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_PASSED_ON)}
        cache = self.folder / "cache" / cell.env
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
