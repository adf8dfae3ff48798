"""One diagnosis: complete the first time, from memory the second, and made anew as soon as anything has moved."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from harness.errors import EnvironmentFault
from harness.findings import Diagnosis, Finding
from harness.pin.doctor import diagnose
from harness.pin.doctor.case import Question
from harness.pin.doctor.examine import examine
from harness.pin.locks import read_lock
from harness.places import Places
from harness.records import Environment, Lock, Pin
from tests.pin.doctor.settling import settle
from tests.pin.doctor.wheels import install, make_venv, make_wheel, pip, site_packages


@pytest.fixture
def where(tmp_path: Path) -> Places:
    return Places(tmp_path, tmp_path / "state", tmp_path / "runs")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a venv, two distributions in it, and their wheels."""
    folder = tmp_path_factory.mktemp("installed")
    install(
        make_venv(folder / "venv"),
        make_wheel(folder, "alpha", "1.0", {"alpha/__init__.py": b"x = 1\n"}, scripts={"alpha": b"#!python\nx\n"}),
        make_wheel(folder, "beta", "2.0", {"beta/__init__.py": b"y = 1\n", "beta/lib.so": b"z" * 100}),
    )
    return folder


@pytest.fixture
def question(tmp_path: Path, installed: Path) -> Question:
    """The venv, for this test alone, as it was a moment ago."""
    shutil.copytree(installed, tmp_path, symlinks=True, dirs_exist_ok=True)
    settle(tmp_path)
    return Question(tmp_path / "venv" / "bin" / "python", variables={}, cwd=str(tmp_path))


def findings(diagnosis: Diagnosis) -> set[tuple[str, str, str]]:
    return {(f.severity, f.kind, f.subject) for f in diagnosis.findings if f.severity != "note"}


def test_the_second_answer_is_remembered_and_the_same(
    question: Question, where: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = diagnose.diagnose(question, where)
    assert first.ok
    assert findings(first) == set()
    assert first.hashed_bytes == first.bytes > 0
    monkeypatch.setattr("harness.pin.doctor.installed.read.read", lambda *_: pytest.fail("it was read again"))
    second = diagnose.diagnose(question, where)
    assert second.findings == first.findings
    assert (second.files, second.bytes, second.hashed_bytes) == (first.files, first.bytes, 0)


def edited(root: Path) -> None:
    (root / "alpha" / "__init__.py").write_text("x = 2\n")


def edited_and_dated_back(root: Path) -> None:
    path = root / "alpha" / "__init__.py"
    before = path.stat()
    path.write_text("x = 2\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def removed(root: Path) -> None:
    (root / "beta" / "lib.so").unlink()


def script_edited(root: Path) -> None:
    script = root.parents[2] / "bin" / "alpha"
    script.write_text(script.read_text() + "more\n")


def added(root: Path) -> None:
    (root / "beta" / "extra.so").write_bytes(b"\x7fELF")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (edited, ("dangerous", "file.changed", "alpha")),
        (edited_and_dated_back, ("dangerous", "file.changed", "alpha")),
        (removed, ("broken", "file.missing", "beta")),
        (script_edited, ("dangerous", "file.changed", "alpha")),
        (added, ("drift", "file.untracked", "beta")),
    ],
)
def test_what_is_remembered_does_not_hide_a_change(
    question: Question, where: Places, change: Callable[[Path], None], expected: tuple[str, str, str]
) -> None:
    diagnose.diagnose(question, where)
    change(site_packages(question.python))
    again = diagnose.diagnose(question, where)
    assert expected in findings(again)
    assert again.hashed_bytes < again.bytes, "only what changed is read again"


def test_another_answer_where_the_variables_or_the_lock_are_others(
    question: Question, where: Places, tmp_path: Path
) -> None:
    assert diagnose.diagnose(question, where).ok
    (tmp_path / "shadows" / "alpha").mkdir(parents=True)
    (tmp_path / "shadows" / "alpha" / "__init__.py").touch()
    shadowed = Question(question.python, variables={"PYTHONPATH": str(tmp_path / "shadows")}, cwd=question.cwd)
    assert ("dangerous", "python.shadowed", "alpha") in findings(diagnose.diagnose(shadowed, where))

    lock = tmp_path / "lock.txt"
    wheel = hashlib.sha256((tmp_path / "alpha-1.0-py3-none-any.whl").read_bytes()).hexdigest()  # pip has recorded it
    lock.write_text(f"alpha==1.0 --hash=sha256:{wheel}\nbeta==3.0 --hash=sha256:{'0' * 64}\n")
    locked = Question(question.python, read_lock(lock, "", ("3.11",)), variables={}, cwd=question.cwd)
    assert findings(diagnose.diagnose(locked, where)) == {("dangerous", "lock.version", "beta")}
    assert findings(diagnose.diagnose(question, where)) == set(), "without the lock it is as it was"


@pytest.mark.parametrize("damage", [b'{"key": 1', b"\xff\xfe\x00\x9c", b"[]", b""])
def test_a_damaged_memory_is_made_anew(question: Question, where: Places, damage: bytes) -> None:
    first = diagnose.diagnose(question, where)
    for path in (where.state / "doctor").rglob("*.json"):
        path.write_bytes(damage)
    for path in (where.state / "doctor").rglob("index"):
        path.write_bytes(b"\x00\xff garbage")
    again = diagnose.diagnose(question, where)
    assert (again.findings, again.hashed_bytes) == (first.findings, first.bytes)


def test_a_run_and_a_person_do_not_forget_each_others_answers(
    question: Question, where: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = replace(question, variables={"PYTHONPATH": str(tmp_path)})
    first, second = diagnose.diagnose(question, where), diagnose.diagnose(run, where)
    monkeypatch.setattr("harness.pin.doctor.installed.read.read", lambda *_: pytest.fail("it was read again"))
    assert diagnose.diagnose(question, where).findings == first.findings
    assert diagnose.diagnose(run, where).findings == second.findings


def test_a_limit_leaves_bytes_unread_and_says_so(question: Question, where: Places) -> None:
    diagnosis = diagnose.diagnose(question, where, limit=10)
    assert diagnosis.hashed_bytes <= 10
    (line,) = diagnosis.unchecked
    assert "their bytes were not read" in line
    assert diagnose.diagnose(question, where).unchecked == (), "and what was left out is not remembered as read"


def test_where_nothing_can_be_written_there_is_a_diagnosis_all_the_same(question: Question, where: Places) -> None:
    (site_packages(question.python) / "beta" / "lib.so").unlink()
    where.state.write_text("a file, where a folder should be")
    diagnosis = diagnose.diagnose(question, where)
    assert ("broken", "file.missing", "beta") in findings(diagnosis)
    (line,) = diagnosis.unchecked
    assert "nothing could be remembered" in line


def test_a_plain_venv_with_pip_has_nothing_above_a_note(tmp_path: Path, where: Places) -> None:
    python = make_venv(tmp_path / "plain")
    pip(python, "install", "--quiet", "--no-index", "--no-deps", _pip_wheel())
    diagnosis = diagnose.diagnose(Question(python, variables={}, cwd=str(tmp_path)), where)
    assert findings(diagnosis) == set()


def _pip_wheel() -> Path:
    """The wheel of pip that every Python brings along."""
    import ensurepip

    (wheel,) = (Path(ensurepip.__file__).parent / "_bundled").glob("pip-*.whl")
    return wheel


def test_a_python_that_does_not_start_is_one_line(where: Places, tmp_path: Path) -> None:
    (tmp_path / "python").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "python").chmod(0o755)
    with pytest.raises(EnvironmentFault, match="does not start as a Python"):
        diagnose.diagnose(Question(tmp_path / "python"), where)


def test_a_diagnosis_is_json_and_back(question: Question, where: Places) -> None:
    (site_packages(question.python) / "beta" / "lib.so").write_bytes(b"other")
    diagnosis = diagnose.diagnose(question, where)
    data = json.loads(json.dumps(diagnosis.to_json()))
    assert data["ok"] is False
    assert {"kind", "severity", "subject", "evidence", "fix"} <= data["findings"][0].keys()
    assert Diagnosis.from_json(data) == diagnosis


def test_facts_are_the_same_wherever_the_environment_stands() -> None:
    def facts(prefix: str) -> dict[str, object]:
        evidence = {"paths": (f"{prefix}/lib/a.py",)}
        finding = Finding("file.changed", "dangerous", "a", f"a: {prefix}/lib/a.py changed", evidence, "x")
        note = Finding("file.unhashed", "note", "b", "b")
        return dict(Diagnosis("p", prefix, "e", None, (finding, note)).facts())

    here, there = facts("/here"), facts("/there")
    own = {k: v for k, v in here.items() if k.startswith("environment.")}
    assert own == {k: v for k, v in there.items() if k.startswith("environment.")}
    assert own.keys() == {"environment.doctor", "environment.doctor.file.changed.a"}
    assert here["context.doctor.file.changed.a"] == "a: /here/lib/a.py changed"


def test_what_an_uninstall_takes_from_others_is_put_back_by_the_same_command(tmp_path: Path, where: Places) -> None:
    python = make_venv(tmp_path / "venv")
    shared = {"nvidia/nccl/lib/libnccl.so.2": b"13"}
    install(
        python,
        make_wheel(tmp_path, "nvidia-nccl-cu13", "2.28.9", shared),
        make_wheel(tmp_path, "nvidia-nccl-cu12", "2.27.5", {"nvidia/nccl/lib/libnccl.so.2": b"12"}),
        make_wheel(tmp_path, "alone", "1.0", {"alone.py": b""}),
    )
    case = examine(Question(python, variables={}, cwd=str(tmp_path)), where).case
    first, _, second = case.uninstall("nvidia-nccl-cu12").partition(" && ")
    assert first.endswith(" uninstall -y nvidia-nccl-cu12")
    assert second == case.reinstall("nvidia-nccl-cu13")
    assert case.uninstall("alone").endswith(" uninstall -y alone")

    pins = {"nvidia-nccl-cu13": Pin("nvidia-nccl-cu13", "2.28.9", ())}
    ours = Environment("cuda", "", ("3.11",))
    locked = replace(case, lock=Lock("cuda", ("3.11",), "0", (), "x"), pins=pins, environment=ours, command="doctor")
    assert locked.uninstall("alone", "nvidia-nccl-cu12") == "doctor --fix --remove alone --remove nvidia-nccl-cu12"
    assert locked.uninstall("nvidia-nccl-cu13").startswith("nox -s lock -- cuda"), "what is locked leaves by its lock"
