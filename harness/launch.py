"""Composes a run: the runner, its mirror, and what the terminal shows; and the plan of one that is not started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import termios
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from harness.comparison import Explanation
from harness.errors import HarnessError, RecordError, UsageError
from harness.mirror.follower import MirrorResult, database, finish, start_follower, tracking_uri
from harness.pin import venvs
from harness.pin.aside import Say
from harness.places import Places
from harness.records import Run, RunSpec
from harness.run.container import Errand, run_in_image, written
from harness.run.engine import Image
from harness.run.folder import RunFolder, run_folders
from harness.run.orders import built
from harness.run.runner import Order, execute, reap
from harness.view.terminal import Watch

PLANNER = "cpu"
"""The environment that plans for one that is not built here: the figures come from shapes alone."""


class Outcome(NamedTuple):
    """A run that has ended, in a line what MLflow has of it, and what it is against its baseline: None without one."""

    run: Run
    mirrored: str
    explanation: Explanation | None


def start(order: Order, where: Places, console: Console, quiet_stdout: bool = False, against: bool = True) -> Outcome:
    """Make the run, shown on ``console`` and mirrored live, and hold it ``against`` its baseline."""
    mirrored: list[MirrorResult] = []
    explanations: list[Explanation | None] = []

    with _no_echo_of_controls(), Watch(console, order.spec.recipe, order.spec.env, quiet_stdout) as watch:

        @contextmanager
        def mirror(folder: Path) -> Iterator[None]:
            follower = start_follower(folder, where)
            try:
                yield
            finally:
                watch.stop()
                explanations.append(_against_baseline(RunFolder(folder), where, console) if against else None)
                mirrored.append(_finish(follower, folder, console))

        run = execute(order, where, watch, mirror)
    return Outcome(run, _in_words(mirrored[0], run), explanations[0])


def _against_baseline(folder: RunFolder, where: Places, console: Console) -> Explanation | None:
    """Hold a run that has ended against its baseline, and keep the answer in its folder, from where MLflow gets it."""
    from harness import explained  # scipy takes a second to load: not before the run

    try:
        before = explained.before_of(folder, where.runs)
        if before is None:
            return None
        console.print(f"holding it against {before.name} ...", style="dim", markup=False)
        found = explained.answer(before, explained.Group(folder.id, (folder,)), where.runs)
        explained.keep(found, folder)
    except HarnessError as error:
        console.print(f"not held against its baseline: {error}", style="yellow", markup=False)
        return None
    except Exception as error:  # a fault of ours must not take the report of hours of training along
        log = folder.path / "explanation.log"
        log.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
        fault = f"{type(error).__name__}: {error}"
        console.print(
            f"not held against its baseline, by a fault of the harness: {fault}; see {log}",
            style="yellow",
            markup=False,
        )
        return None
    return found


def start_in_image(
    image: Image, arguments: Sequence[str], where: Places, quiet_stdout: bool = False, read: tuple[Path, ...] = ()
) -> int:
    """Give ``arguments`` to the harness in ``image``, with this machine's runs, caches and MLflow; its exit code.

    It has the terminal where there is one; where anything is piped, or is for a program, both streams stay apart.
    """
    store = database(tracking_uri(where))
    folders = written(where, store.absolute().parent if store else None)
    terminal = not quiet_stdout and all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
    return run_in_image(Errand(image, tuple(arguments), folders, read), where, terminal)


@contextmanager
def _no_echo_of_controls() -> Iterator[None]:
    """A terminal that echoes ^C moves the cursor under the panel, and half of it stays behind."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    quiet = [*before[:3], before[3] & ~termios.ECHOCTL, *before[4:]]
    termios.tcsetattr(sys.stdin, termios.TCSANOW, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSANOW, before)


def _finish(follower: subprocess.Popen[bytes], folder: Path, console: Console) -> MirrorResult:
    if follower.poll() is None:
        console.print("sending the rest to MLflow ...", style="dim")
    try:
        return finish(follower, folder)
    except KeyboardInterrupt:
        return MirrorResult("failed", "", None, "not waited for; the mirror goes on by itself")


def _in_words(result: MirrorResult, run: Run) -> str:
    if result.status in ("failed", "busy"):
        return f"warning: {result.reason}; fill it in later: harness mirror {run.id}"
    return f"{result.status} as {result.mlflow_run_id}"


def reap_dead(where: Places) -> None:
    """Write down the end of every run whose harness died. A folder that cannot be read is left as it is."""
    for folder in run_folders(where.runs):
        try:
            reap(folder)
        except RecordError:
            continue


def plan(spec: RunSpec, where: Places, say: Say) -> dict[str, Any]:
    """What a run of ``spec`` would be: ``{"spec", "environment", "devices", "notes"}``. Starts no training."""
    listed = next(row for row in venvs.list_environments(where) if row.name == spec.env)
    memory = _memory(spec, where, spec.env if listed.built else PLANNER, say) if spec.plan_argv else {}
    return {"spec": spec.to_json(), "environment": asdict(listed), **memory}


def _memory(spec: RunSpec, where: Places, env: str, say: Say) -> dict[str, Any]:
    python = built(env, where, say=say).python
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "spec.json").write_text(json.dumps(spec.to_json()), encoding="utf-8")
        variables = {
            **os.environ,
            "HARNESS_RUN": folder,
            "HARNESS_STATE": str(where.state),
            "PYTHONPATH": str(where.root),
        }
        done = subprocess.run(
            [python, *spec.plan_argv[1:]], cwd=where.root, env=variables, capture_output=True, text=True, check=False
        )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1].removeprefix("error: ")
        raise UsageError(last) if done.returncode == 2 else HarnessError(f"the plan of {spec.recipe} failed: {last}")
    planned: dict[str, Any] = json.loads(done.stdout)
    return planned
