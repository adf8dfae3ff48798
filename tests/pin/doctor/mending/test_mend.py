"""What is broken is mended from the lock with real uv, to the bytes of a fresh install; and nothing else is touched."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.pin.doctor.case import Case
from harness.pin.doctor.mending import mend
from tests.pin.doctor.breakages import Wheels, edit
from tests.pin.doctor.locked import Locked, build, only_from
from tests.pin.doctor.trees import snapshot

BREAKS: dict[str, tuple[str, Callable[[Locked, Wheels], object]]] = {
    "edited": ("file.changed", lambda env, _: edit(env.site / "tool/__init__.py")),
    "edited in place": ("file.changed", lambda env, _: (env.site / "tool/data.bin").write_bytes(b"D")),
    "missing": ("file.missing", lambda env, _: (env.site / "tool/deep/down.py").unlink()),
    "a whole folder is missing": ("file.missing", lambda env, _: shutil.rmtree(env.site / "tool")),
    "a script is missing": ("file.missing", lambda env, _: (env.prefix / "bin/tool-go").unlink()),
    "not installed": ("lock.missing", lambda env, _: env.uninstall("tool")),
    "another version": ("lock.version", lambda env, wheels: env.install(wheels.tool_2)),
    "another build": ("lock.build", lambda env, wheels: env.install(wheels.tool_cu)),
    "lost at an uninstall": ("owner.lost", lambda env, wheels: lose(env, wheels)),
    "no RECORD": ("python.dist-info", lambda env, _: (env.site / "tool-1.0+cpu.dist-info/RECORD").unlink()),
    "no METADATA": ("python.dist-info", lambda env, _: (env.site / "tool-1.0+cpu.dist-info/METADATA").unlink()),
    "two dist-infos": ("python.duplicate", lambda env, _: duplicate(env)),
}


def lose(env: Locked, wheels: Wheels) -> None:
    env.install(wheels.nccl12)
    env.uninstall("nvidia-nccl-cu12")


def duplicate(env: Locked) -> None:
    old = env.site / "tool-0.9.dist-info"
    shutil.copytree(env.site / "tool-1.0+cpu.dist-info", old)
    (old / "METADATA").write_text("Metadata-Version: 2.1\nName: tool\nVersion: 0.9\n")
    (old / "RECORD").write_text("tool/__init__.py,,\ntool-0.9.dist-info/METADATA,,\ntool-0.9.dist-info/RECORD,,\n")


@pytest.mark.parametrize("name", BREAKS)
def test_each_break_is_mended_to_the_bytes_of_a_fresh_install(locked: Locked, wheels: Wheels, name: str) -> None:
    fresh = locked.bytes()
    kind, break_it = BREAKS[name]
    break_it(locked, wheels)
    assert kind in {finding.kind for finding in locked.findings()}
    plan = locked.mend()
    assert {step.action for step in plan.steps} == {"reinstall"}
    assert locked.findings() == []
    assert locked.bytes() == fresh


@pytest.mark.parametrize("relocatable", [True, False])
def test_scripts_are_those_of_a_fresh_install(
    tmp_path: Path, tools: Path, wheels: Wheels, cache: Path, monkeypatch: pytest.MonkeyPatch, relocatable: bool
) -> None:
    for key, value in only_from(tmp_path / "index", cache).items():
        monkeypatch.setenv(key, value)
    env = build(tmp_path, tools / "bin" / "uv", wheels.locked, relocatable)
    fresh = env.bytes()
    edit(env.prefix / "bin" / "tool-run")
    shutil.rmtree(env.site / "tool")
    env.mend()
    assert env.bytes() == fresh
    said = subprocess.run([env.prefix / "bin" / "tool-run"], capture_output=True, text=True, check=True).stdout
    assert said == "tool\n"


def test_only_what_is_broken_is_installed_again(locked: Locked) -> None:
    edit(locked.site / "small.py")
    others = {path: file for path, file in snapshot(locked.prefix).items() if "small" not in path}
    plan = locked.mend()
    assert [(step.action, step.name, step.version) for step in plan.steps] == [("reinstall", "small", "3.0")]
    assert {path: file for path, file in snapshot(locked.prefix).items() if "small" not in path} == others


def test_a_healthy_environment_leaves_nothing_to_do(locked: Locked) -> None:
    before = snapshot(locked.prefix)
    plan = locked.mend()
    assert plan.nothing
    assert plan.untouched == ()
    assert snapshot(locked.prefix) == before


def test_files_that_nobody_claims_stay(locked: Locked) -> None:
    (locked.site / "tool/checkpoint.pt").write_bytes(b"a week of training")
    shutil.rmtree(locked.site / "tool/deep")
    locked.mend()
    assert (locked.site / "tool/checkpoint.pt").read_bytes() == b"a week of training"


def test_two_locked_owners_of_one_path_are_left_as_they_are(
    tmp_path: Path, tools: Path, wheels: Wheels, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in only_from(tmp_path / "index", cache).items():
        monkeypatch.setenv(key, value)
    env = build(tmp_path, tools / "bin" / "uv", (*wheels.locked, wheels.extra))
    (loss,) = env.findings()
    assert loss.kind == "owner.overwritten"
    plan = env.plan()
    assert plan.nothing
    assert [left.subject for left in plan.untouched] == [loss.subject]
    fresh = env.bytes()
    for name in ("tool", "sglang"):
        shutil.rmtree(env.site / name)
    assert {step.name for step in env.mend().steps} >= {"tool", "sglang"}
    assert env.findings() == [loss]
    assert env.bytes() == fresh


def test_without_a_lock_nothing_is_mended_and_each_finding_says_how(locked: Locked) -> None:
    edit(locked.site / "tool/__init__.py")
    found = locked.examine()
    case = Case(found.case.installation, digests=found.case.digests)
    findings = [finding for finding in found.diagnosis.findings if finding.kind == "file.changed"]
    plan = mend.plan(case, findings)
    assert plan.nothing
    assert [(left.subject, left.command) for left in plan.untouched] == [("tool", findings[0].fix)]


def test_a_damaged_cache_of_uv_is_not_installed_from(
    locked: Locked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """uv hard-links by default, so that an edit in place is an edit in its cache."""
    own = tmp_path / "own-cache"
    monkeypatch.setenv("UV_CACHE_DIR", str(own))
    fresh = locked.bytes()
    locked.run_uv("sync", "--link-mode=hardlink", "--reinstall", locked.lock.path)
    assert (locked.site / "small.py").stat().st_nlink > 1
    (locked.site / "small.py").write_bytes(b"edited in the cache, too\n")
    locked.mend()
    assert (locked.site / "small.py").read_bytes() == b"small = 3\n"
    assert locked.bytes().keys() == fresh.keys()
