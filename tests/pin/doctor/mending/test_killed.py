"""Whoever is killed or interrupted, uv or the mender: the environment is as it was, is mended, or is rolled back."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.pin.doctor.mending import journal, mend
from tests.pin.doctor.breakages import FIX, edit, environment, unharmed
from tests.pin.doctor.exchanges import at_step, interrupt
from tests.pin.doctor.locked import Locked
from tests.pin.doctor.trees import snapshot

ROOT = Path(__file__).resolve().parents[4]

MENDER = """
import sys
from pathlib import Path
from harness.pin.locks import read_lock
from harness.places import Places, places
from tests.pin.doctor.exchanges import at_step, die
from tests.pin.doctor.locked import Locked
folder, uv, number = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
lock = read_lock(folder / "lock.txt", "x", ("3.11",))
where = Places(places().root, folder / "state", folder / "runs")
with at_step(number, die) as seen:
    Locked(folder / "venv", folder / "index", lock, uv, where).mend()
print(len(seen), seen.index("_sync_file_system") + 1)
"""


def run_mender(env: Locked, uv: Path | None = None, die_at: int = 0) -> subprocess.CompletedProcess[str]:
    """A mender in a process of its own, which kills itself at a step."""
    command = [sys.executable, "-c", MENDER, env.prefix.parent, uv or env.uv, die_at]
    with (env.prefix.parent / "said").open("w") as said:  # no pipe, which an orphan would hold open
        words = [str(part) for part in command]
        return subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=said, text=True, check=False)


def wrapped(env: Locked, script: str) -> Path:
    """A program to be called in the place of uv."""
    path = env.prefix.parent / "uv"
    path.write_text(f"#!/bin/bash\n{script}\n".replace("UV", f'{env.uv} "$@"'))
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    "script",
    [
        "kill -9 $$",
        "UV; kill -9 $$",
        "UV; exit 1",
        "ulimit -f 16; exec UV",  # a full disk, as far as uv can tell
        "kill -INT $PPID; exec UV",
    ],
)
def test_whatever_happens_to_uv_changes_nothing(locked: Locked, script: str) -> None:
    shutil.rmtree(locked.site / "tool")
    before = snapshot(locked.prefix)
    assert run_mender(locked, wrapped(locked, script)).returncode != 0
    unharmed(locked, before)


def test_an_orphan_of_a_killed_mender_is_waited_for(locked: Locked) -> None:
    fresh = locked.bytes()
    edit(locked.site / "small.py")
    before = snapshot(locked.prefix)
    ended = locked.prefix.parent / "ended"
    killed = run_mender(locked, wrapped(locked, f"kill -9 $PPID; sleep 1; UV; touch {ended}"))
    assert killed.returncode == -signal.SIGKILL
    assert not ended.exists()
    assert environment(locked) == before
    locked.mend()
    assert ended.exists()
    assert locked.bytes() == fresh


def test_a_mender_killed_while_files_are_exchanged_leaves_a_mark_and_the_next_plan_rolls_back(locked: Locked) -> None:
    shutil.rmtree(locked.site / "tool/deep")
    edit(locked.site / "small.py")
    before = snapshot(locked.prefix)
    whole = locked.prefix.parent / "whole"
    shutil.copytree(locked.prefix.parent, whole, symlinks=True)
    said = run_mender(Locked(whole / "venv", whole / "index", locked.lock, locked.uv, locked.where))
    assert said.returncode == 0
    steps, first = map(int, said.stdout.split())
    for number in (first + 4, first + 12, (first + steps) // 2):
        assert run_mender(locked, die_at=number).returncode == -signal.SIGKILL
        assert "mend.interrupted" in {finding.kind for finding in locked.findings()}
        plan = locked.mend()
        assert [step.action for step in plan.steps] == ["roll back"]
        unharmed(locked, before)
    locked.mend()
    assert locked.findings() == []


@pytest.mark.parametrize("script", ["kill -9 $PPID; UV", "UV; kill -9 $PPID"])
def test_a_mender_killed_while_it_fetches_leaves_a_folder_that_is_nobodys_trouble(locked: Locked, script: str) -> None:
    fresh = locked.bytes()
    edit(locked.site / "small.py")
    before = locked.findings()
    assert run_mender(locked, wrapped(locked, script)).returncode == -signal.SIGKILL
    assert (locked.prefix / mend.FOLDER).exists()
    assert locked.findings() == before
    locked.mend()
    assert locked.findings() == []
    assert locked.bytes() == fresh


def interrupted_at(env: Locked, number: int) -> tuple[list[str], bool]:
    """What is said when Ctrl-C comes at the step of that number, and whether it came."""
    found, said = env.examine(), list[str]()
    plan = mend.plan(found.case, found.diagnosis.findings)
    with at_step(number, interrupt):
        try:
            mend.carry_out(plan, found.case, env.uv, said.append)
        except KeyboardInterrupt:
            return said, True
    return said, False


def test_ctrl_c_says_what_state_the_environment_is_in(locked: Locked) -> None:
    edit(locked.site / "small.py")
    before, mended = environment(locked), False
    told = set()
    for number in range(1, 400):
        said, came = interrupted_at(locked, number)
        assert came
        told.add(said[-1].replace(str(locked.prefix), "PREFIX"))
        if said[-1].endswith("; it is as it was before"):
            assert environment(locked) == before
            assert not journal.interrupted(locked.prefix)
        else:
            mended = (locked.site / "small.py").read_bytes() == b"small = 3\n"
        if mended:
            break
    assert mended
    assert told == {
        "mending PREFIX was interrupted; it is as it was before",
        "mending PREFIX was interrupted; it was all but done: harness doctor x says how it is",
    }


def test_a_second_ctrl_c_while_files_are_put_back_says_what_to_do(
    locked: Locked, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit(locked.site / "small.py")
    found, said = locked.examine(), list[str]()

    def fails(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(mend, "faults", fails)
    monkeypatch.setattr(journal, "roll_back", fails)
    with pytest.raises(KeyboardInterrupt):
        mend.carry_out(mend.plan(found.case, found.diagnosis.findings), found.case, locked.uv, said.append)
    assert said[-1] == f"mending {locked.prefix} was interrupted; it has to be rolled back: {FIX}"
