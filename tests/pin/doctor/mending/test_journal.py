"""Files are exchanged wholly or not at all: with a fault, or a kill -9, at every single step of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import EnvironmentFault
from harness.pin.doctor.mending import journal
from tests.pin.doctor.exchanges import NEW, OLD, SITE, STAYS, at_step, exchange, full, interrupt, lay
from tests.pin.doctor.trees import File, contents, snapshot

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    made = tmp_path / "venv"
    lay(made, OLD | STAYS)
    (made / SITE / "gone").chmod(0o2750)
    return made


def environment(prefix: Path) -> dict[str, File | int]:
    """The environment itself, without what a mender has left beside it."""
    return {path: what for path, what in snapshot(prefix).items() if journal.FOLDER not in path}


def steps_of_an_exchange(folder: Path) -> range:
    """The numbers of the steps from the first that is part of the exchange to the first after its mark is gone."""
    lay(folder, OLD | STAYS)
    done = list[int]()
    with at_step(0, full) as seen:
        exchange(folder, lambda: done.append(len(seen)))
    return range(seen.index("_sync_file_system") + 1, done[0] + 3)


def test_the_new_files_are_in_and_the_old_ones_and_their_empty_folders_are_gone(prefix: Path) -> None:
    exchange(prefix)
    assert contents(prefix) == STAYS | NEW
    assert not (prefix / SITE / "gone").exists()
    assert not (prefix / journal.FOLDER).exists()
    assert not journal.interrupted(prefix)


def test_a_library_that_is_in_use_is_never_written_into(prefix: Path) -> None:
    library = prefix / SITE / "nvidia/nccl/lib/libnccl.so.2"
    with library.open("rb") as mapped:
        exchange(prefix)
        assert mapped.read() == b"cu13's"
    assert library.read_bytes() == b"cu12's, and longer"


@pytest.mark.parametrize("error", [RuntimeError("it does not verify"), KeyboardInterrupt(), SystemExit(3)])
def test_after_an_error_every_file_is_as_it_was(prefix: Path, error: BaseException) -> None:
    before = snapshot(prefix)

    def fail() -> None:
        assert contents(prefix).items() >= (STAYS | NEW).items()
        assert journal.interrupted(prefix)
        raise error

    with pytest.raises(type(error)):
        exchange(prefix, fail)
    assert snapshot(prefix) == before


@pytest.mark.parametrize("fault", [full, interrupt])
def test_a_fault_at_any_step_leaves_the_old_files_or_the_new_ones(tmp_path: Path, fault: Callable[[], None]) -> None:
    def fresh(name: str) -> Path:
        lay(tmp_path / name, OLD | STAYS)
        return tmp_path / name

    steps = steps_of_an_exchange(tmp_path / "whole")
    restored = 0
    for number in steps:
        prefix = fresh(f"{fault.__name__}-{number}")
        before = snapshot(prefix)
        with at_step(number, fault), suppress(OSError, KeyboardInterrupt):
            exchange(prefix)
        assert not journal.interrupted(prefix)
        if environment(prefix) == before:
            restored += 1
        else:  # the mark was gone already
            assert {k: v for k, v in contents(prefix).items() if journal.FOLDER not in k} == STAYS | NEW, number
        with at_step(0, fault):
            exchange(prefix)  # and nothing of it is in the way the next time
        assert contents(prefix) == STAYS | NEW
    assert len(steps) > restored > 20


def run(what: str, *arguments: object) -> int:
    """Exchange or roll back in processes that are killed, one at each step; how many were."""
    command = [sys.executable, "-m", "tests.pin.doctor.exchanges", what, *map(str, arguments)]
    return int(subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout)


def test_a_mender_killed_at_any_step_leaves_a_mark_from_which_the_old_files_come_back(tmp_path: Path) -> None:
    steps = steps_of_an_exchange(tmp_path / "whole")
    for number in steps:
        lay(tmp_path / str(number), OLD | STAYS)
    before = {number: snapshot(tmp_path / str(number)) for number in steps}
    assert run("exchange", tmp_path, steps[0], steps[-1]) == len(steps)
    rolled_back = 0
    for number in steps:
        prefix = tmp_path / str(number)
        if journal.interrupted(prefix):
            assert journal.roll_back(prefix)
            assert snapshot(prefix) == before[number], number
            rolled_back += 1
        else:
            untouched = environment(prefix) == before[number]
            assert untouched or contents(prefix).items() >= (STAYS | NEW).items(), number
    assert rolled_back > 15


def test_a_roll_back_killed_at_every_step_of_its_way_ends_at_the_old_files(prefix: Path) -> None:
    before = snapshot(prefix)
    steps = steps_of_an_exchange(prefix.with_name("whole"))
    middle = steps[len(steps) * 3 // 4]
    prefix.rename(prefix.with_name(str(middle)))
    assert run("exchange", prefix.parent, middle, middle) == 1
    prefix.with_name(str(middle)).rename(prefix)
    assert journal.interrupted(prefix)
    assert run("roll_back", prefix) > 10
    assert environment(prefix) == before


NAMES = st.sampled_from(["a", "b", "c.py", "d.so"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
FILES = st.dictionaries(PATHS, st.binary(max_size=4), max_size=6)


def is_a_tree(files: dict[str, bytes]) -> bool:
    return not any(str(parent) in files for path in files for parent in Path(path).parents)


@settings(max_examples=60)
@given(FILES.filter(is_a_tree), FILES.filter(is_a_tree), st.sets(PATHS, max_size=6), st.integers(1, 30))
def test_whatever_is_exchanged_a_fault_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory,
    there: dict[str, bytes],
    new: dict[str, bytes],
    wanted: set[str],
    fault_at: int,
) -> None:
    prefix = tmp_path_factory.mktemp("prefix")
    lay(prefix, there)
    before = snapshot(prefix)
    old = wanted & there.keys()
    with journal.workspace(prefix) as workspace:
        lay(workspace, new)
        try:
            with at_step(fault_at, full), journal.exchanged(prefix, old, new):
                pass
        except (OSError, EnvironmentFault):  # the fault, or a folder where a file should go, or one after the other
            journal.roll_back(prefix)
            assert environment(prefix) == before
            return
    assert contents(prefix) == {k: v for k, v in there.items() if k not in old} | new


@pytest.mark.parametrize("path", ["../outside", "/etc/passwd", "lib/../../outside", ".", "", "away/secret"])
@pytest.mark.parametrize("key", ["old", "new"])
def test_a_manifest_that_leads_out_of_the_environment_is_refused(prefix: Path, path: str, key: str) -> None:
    outside = prefix.parent / "elsewhere"
    outside.mkdir()
    (outside / "secret").write_text("keep")
    (prefix.parent / "outside").write_text("keep")
    (prefix / "away").symlink_to(outside)
    (prefix / journal.FOLDER / "old").mkdir(parents=True)
    manifest = {"old": [], "new": [], "made": [], key: [path]}
    (prefix / journal.FOLDER / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(EnvironmentFault, match=r"environment|inside"):
        journal.roll_back(prefix)
    assert (outside / "secret").read_text() == (prefix.parent / "outside").read_text() == "keep"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"old": 3}', "\xff"])
def test_a_manifest_that_cannot_be_read_is_an_error_of_one_line(prefix: Path, text: str) -> None:
    (prefix / journal.FOLDER).mkdir()
    (prefix / journal.FOLDER / "manifest.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(EnvironmentFault, match="unusable"):
        journal.roll_back(prefix)


def test_a_workspace_that_is_a_link_is_not_written_through(prefix: Path, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (prefix / journal.FOLDER).symlink_to(tmp_path / "theirs")
    with pytest.raises(FileExistsError):
        exchange(prefix)
    assert not list((tmp_path / "theirs").iterdir())


def test_a_second_mender_waits_for_the_first(prefix: Path) -> None:
    said = list[str]()
    code = """
import sys
from pathlib import Path
from harness.pin.doctor.mending import journal
with journal.alone(Path(sys.argv[1]), print):
    print("in", flush=True)
    sys.stdin.read(1)
"""
    before = snapshot(prefix)
    first = subprocess.Popen(
        [sys.executable, "-c", code, str(prefix)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with first:
        assert first.stdout is not None
        assert first.stdin is not None
        assert first.stdout.readline() == "in\n"

        def say(text: str) -> None:
            said.append(text)
            assert first.poll() is None
            assert first.stdin is not None
            first.stdin.write("x")
            first.stdin.flush()

        with journal.alone(prefix, say):
            pass
    assert [text for text in said if "waiting" in text]
    assert snapshot(prefix) == before  # a venv of somebody else gets no lock file
