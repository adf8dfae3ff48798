"""Only what somebody asked to remove goes, wholly, and what the lock has an owner for comes back."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.findings import Finding
from harness.pin.doctor.case import Case
from harness.pin.doctor.mending import mend
from tests.pin.doctor.breakages import FIX, NCCL, Wheels, edit
from tests.pin.doctor.locked import Locked
from tests.pin.doctor.wheels import make_wheel


def test_an_extra_stays_until_somebody_asks_and_loses_what_the_lock_has_an_owner_for(
    locked: Locked, wheels: Wheels
) -> None:
    fresh = locked.bytes()
    locked.install(wheels.nccl12, wheels.extra)
    plan = locked.mend()
    assert {step.name for step in plan.steps} == {"nvidia-nccl-cu13", "small"}
    commands = {left.subject: left.command for left in plan.untouched}
    assert commands["sglang"] == "harness doctor x --fix --remove sglang"
    assert commands["nvidia-nccl-cu12"] == "harness doctor x --fix --remove nvidia-nccl-cu12"
    assert (locked.site / NCCL).read_bytes() == b"\x7f13"
    assert (locked.site / "small.py").read_bytes() == b"small = 3\n"
    assert (locked.site / "sglang/srt/main.py").exists()
    assert (locked.site / "nvidia_nccl_cu12-2.27.5.dist-info").exists()

    plan = locked.mend("nvidia_nccl.CU12", "sglang")
    assert [(step.action, step.name) for step in plan.steps[:2]] == [
        ("remove", "nvidia-nccl-cu12"),
        ("remove", "sglang"),
    ]
    assert locked.findings() == []
    assert locked.bytes() == fresh


def test_removal_and_reinstallation_at_once_end_with_the_locked_owner(locked: Locked, wheels: Wheels) -> None:
    fresh = locked.bytes()
    locked.install(wheels.nccl12, wheels.extra)
    locked.mend("nvidia-nccl-cu12", "sglang")
    assert locked.findings() == []
    assert locked.bytes() == fresh
    assert not (locked.site / "sglang").exists()


def test_compiled_code_of_a_removed_package_goes_so_that_it_cannot_be_imported(locked: Locked, wheels: Wheels) -> None:
    locked.install(wheels.extra)
    subprocess.run([locked.python, "-m", "compileall", "-q", locked.site], check=True)
    assert list((locked.site / "sglang").rglob("*.pyc"))
    locked.mend("sglang")
    done = subprocess.run([locked.python, "-c", "import sglang"], capture_output=True, text=True, check=False)
    assert "No module named 'sglang'" in done.stderr


def test_what_cannot_be_removed_is_refused(locked: Locked) -> None:
    with pytest.raises(UsageError, match=r"smal is not installed .*did you mean small"):
        locked.plan("smal")
    with pytest.raises(UsageError, match=r"small is in the lock"):
        locked.plan("small")


def test_what_the_steps_mend_is_not_called_left_and_no_way_out_is_the_command_that_runs(
    locked: Locked, wheels: Wheels
) -> None:
    """A library that is gone is told of by the bytes, by the loader and by the table of known states."""
    locked.install(wheels.extra)
    (locked.site / NCCL).unlink()
    found = locked.examine()
    lost = Finding("link.unresolved", "broken", "tool", "tool cannot be loaded", fix=FIX)
    taken = Finding("cuda.two-majors", "dangerous", "python", "two of one kind", fix=f"{FIX} --remove sglang")
    other = Finding("python.pth", "drift", "python", "a stale path", fix="mv a b")

    def left(case: Case, *remove: str) -> list[tuple[str, str]]:
        findings = (*found.diagnosis.findings, lost, taken, other)
        return [(each.why, each.command) for each in mend.plan(case, findings, remove).untouched]

    sglang = ("sglang is not in the lock, and nobody has asked to remove it", f"{FIX} --remove sglang")
    kept = [("two of one kind", f"{FIX} --remove sglang"), ("a stale path", "mv a b")]
    assert sorted(left(found.case)) == sorted([sglang, *kept])
    assert left(found.case, "sglang") == [("a stale path", "mv a b")]
    alone = mend.plan(found.case, [lost])
    assert alone.nothing
    assert [(each.why, each.command) for each in alone.untouched] == [("tool cannot be loaded", "")]


def test_an_empty_dist_info_hinders_no_mend_and_is_nothing_to_remove(locked: Locked) -> None:
    for name in ("small-2.0.dist-info", "empty-1.0.dist-info"):
        (locked.site / name).mkdir()
    edit(locked.site / "small.py")
    assert {(step.action, step.name) for step in locked.mend().steps} == {("reinstall", "small")}
    assert (locked.site / "small.py").read_bytes() == b"small = 3\n"
    assert all(finding.fix.startswith("rm -r -- ") for finding in locked.findings() if finding.subject == "empty")
    with pytest.raises(UsageError, match=r"only an empty folder: rm -r -- .*/empty-1\.0\.dist-info$"):
        locked.plan("empty")


def test_what_makes_it_an_environment_stays_whatever_a_record_claims(locked: Locked, tmp_path: Path) -> None:
    locked.install(make_wheel(tmp_path, "greedy", "1.0", {"greedy.py": b""}))
    record = locked.site / "greedy-1.0.dist-info" / "RECORD"
    claimed = ["../../../bin/python", "../../../pyvenv.cfg", "../../../../outside.txt", "../../../.gitignore"]
    record.write_text(record.read_text() + "".join(f"{path},,\n" for path in claimed))
    (tmp_path / "outside.txt").write_text("keep")
    locked.mend("greedy")
    assert not (locked.site / "greedy.py").exists()
    assert locked.python.exists()
    assert (locked.prefix / "pyvenv.cfg").exists()
    assert (tmp_path / "outside.txt").exists()
    assert locked.findings() == []
