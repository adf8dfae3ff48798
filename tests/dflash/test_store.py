"""A folder that is made once: by one maker of several, and never seen half-made."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.dflash.store import made_once

ROOT = Path(__file__).resolve().parents[2]

MAKE_SLOWLY = """
def make(empty):
    (empty / "half").write_text("1")
    time.sleep(0.3)
    with (empty.parent / "makers").open("a") as log:
        log.write("made\\n")
    (empty / "whole").write_text("2")
"""

MAKE_AND_DIE = """
def make(empty):
    (empty / "half").write_text("1")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def another_process(thing: Path, make: str) -> subprocess.Popen[bytes]:
    imports = "import os, signal, time\nfrom pathlib import Path\nfrom experiments.dflash.store import made_once\n"
    script = f"{imports}{make}\nmade_once(Path({str(thing)!r}), make)"
    return subprocess.Popen([sys.executable, "-c", script], cwd=ROOT)


def test_many_ask_at_once_and_one_makes(tmp_path: Path) -> None:
    askers = [another_process(tmp_path / "thing", MAKE_SLOWLY) for _ in range(4)]
    assert [asker.wait(60) for asker in askers] == [0] * 4
    assert (tmp_path / "makers").read_text() == "made\n"
    assert sorted(p.name for p in (tmp_path / "thing").iterdir()) == ["half", "whole"]


def test_a_killed_maker_leaves_nothing_that_is_taken_for_the_real_one(tmp_path: Path) -> None:
    assert another_process(tmp_path / "thing", MAKE_AND_DIE).wait(60) == -signal.SIGKILL
    assert not (tmp_path / "thing").exists()
    found: list[Path] = []
    made_once(tmp_path / "thing", lambda empty: found.extend(empty.iterdir()))
    assert found == []  # started from an empty folder
    assert (tmp_path / "thing").is_dir()
    assert not [p for p in tmp_path.iterdir() if p.name.endswith("partial")]


def test_a_maker_that_raises_leaves_nothing_and_the_next_one_may_try(tmp_path: Path) -> None:
    def fail(empty: Path) -> None:
        raise RuntimeError(f"no {empty.name}")

    with pytest.raises(RuntimeError, match=r"no \.thing\.partial"):
        made_once(tmp_path / "thing", fail)
    assert not (tmp_path / "thing").exists()
    assert made_once(tmp_path / "thing", lambda _: None).is_dir()


def test_what_is_there_is_not_made_again(tmp_path: Path) -> None:
    (tmp_path / "thing").mkdir()
    assert made_once(tmp_path / "thing", lambda _: pytest.fail("made again")) == tmp_path / "thing"
