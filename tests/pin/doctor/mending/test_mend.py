"""What is broken is mended from the lock with real uv, wholly or not at all; and nothing else is touched."""

from __future__ import annotations

import functools
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.errors import EnvironmentFault, UsageError
from harness.findings import Finding
from harness.pin.doctor.case import Case
from harness.pin.doctor.mending import journal, mend
from harness.pin.doctor.mending.in_use import what_runs
from tests.pin.doctor.exchanges import at_step, interrupt
from tests.pin.doctor.locked import Locked, build, only_from, write_lock
from tests.pin.doctor.trees import snapshot
from tests.pin.doctor.wheels import make_wheel

ROOT = Path(__file__).resolve().parents[4]
NCCL = "nvidia/nccl/lib/libnccl.so.2"
HEADER = "nvidia/nccl/include/nccl.h"


class Wheels:
    """The wheels of every story here."""

    def __init__(self, folder: Path) -> None:
        make = functools.partial(make_wheel, folder)
        package = {
            "tool/__init__.py": b"answer = 42\n",
            "tool/deep/down.py": b"down = True\n",
            "tool/data.bin": bytes(80_000),
        }
        commands = {"tool-run": b"#!python\nprint('tool')\n"}
        points = {"tool-1.0+cpu.dist-info/entry_points.txt": b"[console_scripts]\ntool-go = tool:main\n"}
        data = {"tool-1.0+cpu.data/data/share/tool/note.txt": b"note"}
        self.tool = make("tool", "1.0+cpu", package | points | data, scripts=commands)
        self.nccl13 = make("nvidia-nccl-cu13", "2.28.9", {NCCL: b"\x7f13", HEADER: b"same"})
        self.nccl12 = make("nvidia-nccl-cu12", "2.27.5", {NCCL: b"\x7f12, longer", HEADER: b"same"})
        self.small = make("small", "3.0", {"small.py": b"small = 3\n"})
        self.extra = make(
            "sglang", "0.5", {"sglang/__init__.py": b"", "sglang/srt/main.py": b"", "small.py": b"mine\n"}
        )
        other = folder / "other"
        other.mkdir()
        self.tool_2 = make_wheel(other, "tool", "2.0", {"tool/__init__.py": b"answer = 43\n", "tool/new.py": b""})
        self.tool_cu = make_wheel(other, "tool", "1.0+cu128", package)

    @property
    def locked(self) -> tuple[Path, ...]:
        return self.tool, self.nccl13, self.small


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Wheels:
    return Wheels(tmp_path_factory.mktemp("wheels"))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def locked(tmp_path: Path, tools: Path, wheels: Wheels, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Locked:
    for name, value in only_from(tmp_path / "index", cache).items():
        monkeypatch.setenv(name, value)
    # No test here cuts the power, and a busy disk takes its time.
    monkeypatch.setattr(journal, "_sync_file_system", lambda _: None)
    return build(tmp_path, tools / "bin" / "uv", wheels.locked, relocatable=True)


def edit(path: Path, content: bytes = b"edited") -> None:
    """As an editor does: a new file in place of the old."""
    path.unlink()
    path.write_bytes(content)


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


def test_what_cannot_be_removed_is_refused(locked: Locked) -> None:
    with pytest.raises(UsageError, match=r"smal is not installed .*did you mean small"):
        locked.plan("smal")
    with pytest.raises(UsageError, match=r"small is in the lock"):
        locked.plan("small")


def test_without_a_lock_nothing_is_mended_and_each_finding_says_how(locked: Locked) -> None:
    edit(locked.site / "tool/__init__.py")
    found = locked.examine()
    case = Case(found.case.installation, digests=found.case.digests)
    findings = [finding for finding in found.diagnosis.findings if finding.kind == "file.changed"]
    plan = mend.plan(case, findings)
    assert plan.nothing
    assert [(left.subject, left.command) for left in plan.untouched] == [("tool", findings[0].fix)]


FIX = "harness doctor x --fix"


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


def unharmed(env: Locked, before: object) -> None:
    assert snapshot(env.prefix) == before
    assert not journal.interrupted(env.prefix)


def test_a_wheel_that_the_index_lacks_changes_nothing(
    locked: Locked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "empty-cache"))
    edit(locked.site / "small.py")
    edit(locked.site / "tool/__init__.py")
    next(locked.index.glob("small-*")).unlink()
    before = snapshot(locked.prefix)
    with pytest.raises(EnvironmentFault, match=r"uv could not fetch small, tool.*nothing was changed"):
        locked.mend()
    unharmed(locked, before)


def test_a_wheel_with_another_hash_changes_nothing(
    locked: Locked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "empty-cache"))
    make_wheel(locked.index, "small", "3.0", {"small.py": b"small = 'evil'\n"})
    edit(locked.site / "small.py")
    before = snapshot(locked.prefix)
    with pytest.raises(EnvironmentFault, match="nothing was changed"):
        locked.mend()
    unharmed(locked, before)


def test_a_wheel_whose_bytes_its_own_record_denies_changes_nothing(locked: Locked, tmp_path: Path) -> None:
    source = tmp_path / "odd"
    source.mkdir()
    good = make_wheel(source, "small", "3.0", {"small.py": b"small = 3\n"})
    unpacked = tmp_path / "unpacked"
    shutil.unpack_archive(good, unpacked, "zip")
    (unpacked / "small.py").write_bytes(b"small = 4\n")
    next(locked.index.glob("small-*")).unlink()
    wheel = Path(shutil.make_archive(str(locked.index / "small"), "zip", unpacked))
    wheel = wheel.rename(locked.index / "small-3.0-py3-none-any.whl")
    edit(locked.site / "small.py")
    lock = write_lock(Path(locked.lock.path), [wheel])
    before = snapshot(locked.prefix)
    odd = Locked(locked.prefix, locked.index, lock, locked.uv, locked.where)
    with pytest.raises(EnvironmentFault, match=r"small 3\.0 are not what its RECORD says, .*nothing was changed"):
        odd.mend()
    unharmed(locked, before)


def environment(env: Locked) -> dict[str, object]:
    """The environment itself, without what a mender has left beside it."""
    return {path: what for path, what in snapshot(env.prefix).items() if mend.FOLDER not in path}


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


def test_bytes_that_do_not_verify_after_the_exchange_are_rolled_back(
    locked: Locked, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit(locked.site / "small.py")
    before = snapshot(locked.prefix)
    real = journal._move

    def damaging(path: str, source: Path, target: Path) -> None:
        real(path, source, target)
        if path.endswith("small.py") and target == locked.prefix and not (target / "seen").exists():
            (target / path).write_bytes(b"a disk that lies")
            monkeypatch.setattr(journal, "_move", real)

    monkeypatch.setattr(journal, "_move", damaging)
    with pytest.raises(EnvironmentFault, match=r"small\.py for one, though .* as they were"):
        locked.mend()
    unharmed(locked, before)


def test_a_file_that_changed_since_the_examination_is_not_replaced(locked: Locked) -> None:
    edit(locked.site / "small.py")
    found = locked.examine()
    plan = mend.plan(found.case, found.diagnosis.findings)
    edit(locked.site / "small.py", b"a person is at work here")
    before = snapshot(locked.prefix)
    with pytest.raises(EnvironmentFault, match=r"small\.py was changed meanwhile"):
        mend.carry_out(plan, found.case, locked.uv, lambda _: None)
    unharmed(locked, before)


@pytest.mark.parametrize("called", ["{bin}/python", "python"])
def test_a_run_in_the_environment_is_not_pulled_from_under(locked: Locked, called: str) -> None:
    edit(locked.site / "small.py")
    before = snapshot(locked.prefix)
    folder = locked.prefix / "bin"
    code = "print('up', flush=True); import time; time.sleep(60)"
    environ = {"PATH": f"{folder}:/usr/bin:/bin"}
    arguments = [called.format(bin=folder), "-c", code]
    with subprocess.Popen(arguments, executable=folder / "python", stdout=subprocess.PIPE, env=environ) as run:
        assert run.stdout is not None
        run.stdout.readline()
        with pytest.raises(EnvironmentFault, match=rf"in use by process {run.pid} \(python -c print"):
            locked.mend()
        run.kill()
    unharmed(locked, before)
    locked.mend()


LONG = "/work/models/experiments/2026/a-very-long-name-of-a-folder/train_the_draft.py"


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["/tmp/a/cpu-1/bin/python3.11", "train.py", "--lr", "1"], "python3.11 train.py"),
        (["/tmp/a/bin/python", "-m", "vllm.serve", "--port", "1"], "python -m vllm.serve"),
        (["python", "-I", "-X", "dev", "-W", "error", "-u", "-m", "jupyter"], "python -m jupyter"),
        (["python", "-c", "import a\nprint(1)"], "python -c import a print(1)"),
        (["python", LONG], "python /work/models/exp…-of-a-folder/train_the_draft.py"),
        (["/tmp/a/bin/python"], "python"),
        (["python", "-"], "python -"),
        (["vllm: worker 1 of 4"], "vllm: worker 1 of 4"),
        ([], "a process of the system"),
    ],
)
def test_a_process_is_named_by_what_it_runs(words: list[str], shown: str) -> None:
    assert what_runs(words) == shown


def test_a_library_that_any_process_has_mapped_is_use(locked: Locked) -> None:
    edit(locked.site / "small.py")
    code = f"""
import mmap
file = open({str(locked.site / NCCL)!r}, "rb")
mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
print("up", flush=True)
__import__("time").sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        run.stdout.readline()
        with pytest.raises(EnvironmentFault, match=f"{run.pid}"):
            locked.mend()
        run.kill()


def test_nothing_is_written_through_a_link_that_leads_out(locked: Locked, tmp_path: Path) -> None:
    sources = tmp_path / "sources"
    shutil.move(locked.site / "tool", sources)
    (locked.site / "tool").symlink_to(sources)
    before = snapshot(tmp_path / "sources"), snapshot(locked.prefix)
    with pytest.raises(EnvironmentFault, match="leads out of the environment"):
        locked.mend()
    assert (snapshot(tmp_path / "sources"), snapshot(locked.prefix)) == before


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
