"""How a try of a race ends, told from real children that die, hang, raise and lie; and what is kept of it."""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.run import watchdog
from harness.run.race.attempt import Runner
from harness.run.race.grid import Grid, Place
from harness.run.race.outcome import Verdict, judge
from harness.run.race.record import TRIES, Race, Try

ROOT = Path(__file__).resolve().parents[2]
SEEDS_LINE = "RuntimeError: Detected that you are using FX to symbolically trace a dynamo-optimized function."
FOUND_STACK = 'File "torch/_dynamo/eval_frame.py", line 7 in call'

STAND_IN = '''
"""Says what a child of a race says, and ends as --guard tells it."""
import ctypes, os, signal, sys, threading, time

from experiments.tries import make_tries, say

given = dict(option.removeprefix("--").split("=", 1) for option in sys.argv[1:])
end = given["guard"]

def deep_inside():
    ctypes.string_at(0)

def race():
    say("started", torch="9.8.7", note="a remark")
    if end.startswith("traced"):
        for number in range(20):
            say("tracing error", thread=1, round=number, text="" if number else SEEDS_LINE)
    if end.endswith("segfault"):
        deep_inside()
    if end == "hang":
        threading.Thread(target=time.sleep, args=(1000,), name="sleeper").start()
        os.fork()
        time.sleep(1000)
    if end == "abort":
        os.abort()
    if end == "bus":
        os.kill(os.getpid(), signal.SIGBUS)
    if end == "raise":
        raise ValueError("broke at once")
    if end == "error":
        line = '  File "/a/lib/python3.11/site-packages/torch/x.py", line 1, in f'
        stack = ["Traceback (most recent call last):", line]
        say("error", thread=0, round=0, text="\\n\\nPrevious Traceback:\\n  line", stack=[*stack, "KeyError: 'x'"])
    if end == "wrong":
        say("error", thread=0, round=0, text="KeyError: 'x'", stack=[])
        say("wrong result", thread=2, round=7, text="tensor 0 is off by 1.5")
    if end == "torn":
        os.write(1, b'{"event": "tracing err')
        os._exit(0)
    if end == "torn-and-done":
        os.write(1, b'{"event": "tracing err\\nnoise of a library\\n[1]\\n')
    if end == "silent":
        os._exit(3)
    say("done", calls=6)

if end == "no-torch":
    raise ImportError("libtorch.so: cannot open shared object file")
tries = int(given["tries"])
make_tries(tries - (end == "few"), float(given["timeout"]), race)
'''.replace("SEEDS_LINE", repr(SEEDS_LINE))


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    child = tmp_path / "child.py"
    child.write_text(STAND_IN)
    grid = Grid((Place("here", "9.8.7"),), ("inductor",), ("none",), ("static",), tries=1, timeout=20.0)
    return Runner(grid, {"here": Path(sys.executable)}, tmp_path / "race", ROOT, (str(child),))


def attempt(runner: Runner, end: str, timeout: float = 20.0) -> Verdict:
    """One real child that ends in this way."""
    (verdict,) = attempts(runner, end, 1, timeout)
    return verdict


def attempts(runner: Runner, end: str, tries: int, timeout: float = 20.0) -> list[Verdict]:
    """The tries of one cell, all of which end in this way."""
    (cell,) = runner.grid.cells()
    grid = dataclasses.replace(runner.grid, tries=tries, timeout=timeout)
    made = list(dataclasses.replace(runner, grid=grid).attempts(dataclasses.replace(cell, guard=end)))
    assert all(seconds > 0 for _, seconds in made)
    return [verdict for verdict, _ in made]


def left_behind(runner: Runner) -> list[str]:
    """Processes of the race that live."""
    child, found = str(runner.folder.parent / "child.py"), []
    for path in Path("/proc").iterdir():
        try:
            arguments = (path / "cmdline").read_text().split("\0")
        except (OSError, UnicodeDecodeError):  # no process, or gone meanwhile
            continue
        if len(arguments) > 1 and arguments[1] == child:
            found.append(path.name)
    return found


def kept(runner: Runner) -> list[str]:
    return sorted(path.name for path in (runner.folder / "tries").iterdir())


def test_one_that_passes_leaves_nothing(runner: Runner) -> None:
    assert attempt(runner, "none") == Verdict("passed", torch="9.8.7", note="a remark")
    assert kept(runner) == []


def test_a_segfault_is_told_with_the_stack_of_the_thread_that_died(runner: Runner) -> None:
    verdict = attempt(runner, "segfault")
    assert (verdict.outcome, verdict.detail, verdict.seen) == ("segfault", "SIGSEGV", 0)
    assert verdict.stack[0].startswith("Current thread")
    assert verdict.stack[1].startswith('  File "ctypes/__init__.py"')  # from the package on
    assert "in deep_inside" in verdict.stack[2]
    (folder,) = (runner.folder / "tries").iterdir()
    assert folder.name == "here-flex-cpu-inductor-static-segfault"
    assert {"001.out", "001.err"} <= {path.name for path in folder.iterdir()}


def test_each_try_of_a_cell_is_a_process_of_its_own(runner: Runner) -> None:
    assert [verdict.outcome for verdict in attempts(runner, "segfault", 3)] == ["segfault"] * 3
    assert [verdict.outcome for verdict in attempts(runner, "none", 3)] == ["passed"] * 3


def test_a_cell_whose_process_ends_before_its_tries_says_how(runner: Runner) -> None:
    (verdict,) = attempts(runner, "no-torch", 3)
    assert (verdict.outcome, verdict.detail) == ("error", "ImportError: libtorch.so: cannot open shared object file")
    first, second = attempts(runner, "few", 2)
    assert (first.outcome, second.outcome) == ("passed", "error")


def test_the_seeds_error_is_not_lost_to_the_segfault_that_follows(runner: Runner) -> None:
    verdict = attempt(runner, "traced-segfault")
    assert (verdict.outcome, verdict.seen) == ("segfault", 20)


def test_the_seeds_error_alone(runner: Runner) -> None:
    verdict = attempt(runner, "traced")
    assert (verdict.outcome, verdict.detail, verdict.seen) == ("tracing error", SEEDS_LINE, 20)


def test_a_hang_ends_with_all_that_it_started_and_shows_every_stack(runner: Runner) -> None:
    verdict = attempt(runner, "hang", timeout=2.0)
    assert verdict.outcome == "hang"
    assert [line.split()[0] for line in verdict.stack if "0x" in line] == ["Thread", "Current"]
    assert any(line.endswith("in race") for line in verdict.stack)
    assert left_behind(runner) == []


@pytest.mark.parametrize(
    ("end", "outcome", "detail"),
    [
        ("bus", "segfault", "SIGBUS"),
        ("abort", "error", "SIGABRT: Fatal Python error: Aborted"),
        ("raise", "error", "ValueError: broke at once"),
        ("silent", "error", "it ended with exit code 3 and without its last word"),
        ("torn", "error", "it ended with exit code 0 and without its last word"),
        ("torn-and-done", "passed", ""),
        ("wrong", "wrong result", "tensor 0 is off by 1.5"),  # worse than the error before it
        ("error", "error", "Previous Traceback:"),  # the first line that says something
    ],
)
def test_every_other_end(runner: Runner, end: str, outcome: str, detail: str) -> None:
    verdict = attempt(runner, end)
    assert (verdict.outcome, verdict.detail) == (outcome, detail)


def test_an_errors_stack_ends_with_the_error_and_names_no_folder_of_ours(runner: Runner) -> None:
    assert attempt(runner, "error").stack[1:] == ('  File "torch/x.py", line 1, in f', "KeyError: 'x'")


def test_an_interrupted_try_leaves_no_process(runner: Runner) -> None:
    """Ctrl-C reaches the harness alone; the child, in a session of its own, is ended before the exception goes on."""
    folder = runner.folder.parent
    script = f"""
import dataclasses, sys
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from harness.run.race.attempt import Runner
from harness.run.race.grid import Grid, Place
grid = Grid((Place("here", "9.8.7"),), ("inductor",), ("hang",), ("static",), tries=1)
folder, root = Path({str(runner.folder)!r}), Path({str(ROOT)!r})
runner = Runner(grid, {{"here": Path(sys.executable)}}, folder, root, ({runner.child[0]!r},))
try:
    list(runner.attempts(grid.cells()[0]))
except KeyboardInterrupt:
    sys.exit(77)
"""
    harness = subprocess.Popen([sys.executable, "-c", script], cwd=folder)
    while not left_behind(runner):
        time.sleep(0.05)
    harness.send_signal(signal.SIGINT)
    assert harness.wait(60) == 77
    assert left_behind(runner) == []


def test_a_child_does_not_outlive_a_harness_that_is_killed(runner: Runner) -> None:
    (cell,) = runner.grid.cells()
    folder = runner.folder / "tries"
    folder.mkdir(parents=True)
    killed = subprocess.run(
        [
            sys.executable,
            "-c",
            "import os, signal, sys; sys.path.insert(0, sys.argv[1])\n"
            "from pathlib import Path; from harness.run import process\n"
            "process.spawn(sys.argv[3:], Path(sys.argv[2]), dict(os.environ), Path(sys.argv[2]), grace=0.0)\n"
            "os.kill(os.getpid(), signal.SIGKILL)",
            str(ROOT),
            str(folder),
            *dataclasses.replace(runner)._argv(dataclasses.replace(cell, guard="hang")),
        ],
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 60
    while left_behind(runner) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left_behind(runner) == []
    assert watchdog.members(watchdog.NO_SESSION, str(folder)) == []


def test_a_childs_variables_are_cold_private_and_its_own(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HARNESS_RUN", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE", "TORCHINDUCTOR_FORCE_DISABLE_CACHES"):
        monkeypatch.setenv(name, "1")
    (cell,) = runner.grid.cells()
    given = runner._variables(cell)
    ours = {name: value for name, value in given.items() if name.startswith(("HARNESS_", "PYTHON", "TORCH", "OMP_"))}
    cache = runner.folder / "cache" / "here"
    assert ours == {
        "PYTHONPATH": str(runner.root),
        "PYTHONUNBUFFERED": "1",
        "PYTHONPYCACHEPREFIX": str(cache / "bytecode"),
        "OMP_NUM_THREADS": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
        "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
        "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }


def test_a_grid_is_every_way_with_every_other() -> None:
    places = (Place("a", "1"), Place("b", "2", "cuda"))
    cells = Grid(places, guards=("none", "flag", "both"), backward=True).cells()
    assert len(cells) == len(set(cells)) == len({cell.key for cell in cells}) == 2 * 2 * 3 * 2
    # On the CPU flex_attention has no backward, and the name of what stands in for it says so.
    assert {cell.work for cell in cells if cell.env == "a"} == {"mlp-backward"}
    assert {cell.work for cell in cells if cell.env == "b"} == {"flex-backward"}
    assert cells[0].name == "a: MLP forward and backward, aot_eager, static shapes, guard none"
    assert {cell.work for cell in Grid(places).cells()} == {"flex"}


def test_every_try_is_on_disk_before_the_next(tmp_path: Path) -> None:
    grid = Grid((Place("a", "1"),), ("inductor",), ("none",), ("static",), tries=3)
    race = Race.begin(tmp_path / "races", grid, {"environment.cpu.count": 2})
    (cell,) = grid.cells()
    for number, verdict in enumerate((Verdict("passed"), Verdict("segfault", "SIGSEGV", seen=4)), 1):
        race.add(Try(cell, number, verdict, 2.0, 100.0 + number))
        written = [json.loads(line) for line in (race.folder / TRIES).read_text().splitlines()]
        assert [each["number"] for each in written] == list(range(1, number + 1))
    (tally,) = race.tallies()
    assert (tally.tries, tally.passed, tally.seen, tally.seconds) == (2, 1, 1, 4.0)
    assert not race.passed  # one failed, and one is missing
    race.add(Try(cell, 3, Verdict("passed"), 2.0, 103.0))
    assert not race.passed
    assert race.to_json()["cells"][0]["outcomes"] == {"passed": 2, "segfault": 1}


@pytest.mark.parametrize(("made", "passed"), [(0, False), (1, False), (2, True)])
def test_a_race_in_which_a_try_is_missing_has_not_passed(tmp_path: Path, made: int, passed: bool) -> None:
    grid = Grid((Place("a", "1"),), ("inductor",), ("none",), ("static",), tries=2)
    race = Race.begin(tmp_path, grid, {})
    for number in range(1, made + 1):
        race.add(Try(grid.cells()[0], number, Verdict("passed"), 1.0, 0.0))
    assert race.passed is passed
    assert race.tallies()[0].tries == made


def test_a_stack_in_torchs_own_words() -> None:
    """From a segfault of torch 2.11.0, shortened: of several threads the dying one counts."""
    stderr = """W1130 a warning of torch
Fatal Python error: Segmentation fault

Thread 0x00007f8ce68536c0 (most recent call first):
  File "/e/lib/python3.11/site-packages/torch/_dynamo/convert_frame.py", line 2314 in __call__

Current thread 0x00007f8ce70546c0 (most recent call first):
  File "/e/lib/python3.11/site-packages/torch/_dynamo/eval_frame.py", line 7 in call
  File "/e/lib/python3.11/threading.py", line 982 in run

Extension modules: numpy.core (total: 1)
"""
    assert judge(-11, "", stderr).stack == (
        "Current thread 0x00007f8ce70546c0 (most recent call first):",
        f"  {FOUND_STACK}",
        '  File "threading.py", line 982 in run',
    )
