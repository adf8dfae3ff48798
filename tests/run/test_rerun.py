"""A recorded run again: from its settings, its code and its lock, and told where any of them is no longer there."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.pin import environments
from harness.places import Places
from harness.records import BuiltEnvironment, Run, RunSpec
from harness.run import orders, rerun
from harness.run.folder import RunFolder
from harness.run.orders import command_order
from harness.run.rerun import _code, changed, plan_rerun, recorded_image
from harness.run.resolve import resolve
from harness.run.runner import Order, execute
from tests.watcher import Watcher

ROOT = Path(__file__).resolve().parents[2]


def git(folder: Path, *arguments: str) -> None:
    identity = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    subprocess.run(["git", *arguments], cwd=folder, env={**os.environ, **identity}, check=True, capture_output=True)


def test_overrides_are_applied_to_the_recorded_settings() -> None:
    recorded = resolve("toy", ["steps=7", "noise=0.5"])
    again = changed(recorded, ["steps=9"])
    assert (again.config["steps"], again.config["noise"]) == (9, 0.5)
    assert changed(recorded, []) == recorded
    with pytest.raises(UsageError, match="did you mean steps"):
        changed(recorded, ["stepps=9"])
    with pytest.raises(UsageError, match="no settings to override"):
        changed(RunSpec("", "", ("true",)), ["steps=9"])
    with pytest.raises(UsageError, match="is gone"):
        changed(dataclasses.replace(recorded, recipe="forgotten"), ["steps=9"])
    older = dataclasses.replace(recorded, config={"steps": 7})
    with pytest.raises(UsageError, match="missing"):
        changed(older, ["steps=9"])


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Somebody's trainer in a repository, with a change that is not committed and a file that git does not know."""
    folder = tmp_path / "project"
    (folder / "sub").mkdir(parents=True)
    git(folder, "init", "-q")
    (folder / "sub" / "train.py").write_text("print('first')\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    (folder / "sub" / "train.py").write_text("import helper\nprint('second', helper.word)\n")
    (folder / "sub" / "helper.py").write_text("word = 'uncommitted'\n")
    return folder


def test_a_scale_is_chosen_when_a_recipe_is_run_and_not_when_a_run_is_repeated() -> None:
    with pytest.raises(UsageError, match=r"for another: harness run qwen3_6_27b_8gpu scale=tiny$"):
        changed(resolve("qwen3_6_27b_8gpu", ["scale=tiny"]), ["train.steps=3", "scale=tiny"])


def test_a_run_is_repeated_inside_its_image_with_the_images_code(
    where: Places, here: BuiltEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = dataclasses.replace(where, root=tmp_path / "image")  # the code without its history
    shutil.copytree(ROOT / "harness", image.root / "harness", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "experiments", image.root / "experiments", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setenv("HARNESS_IMAGE_DIGEST", "sha256:ab")
    monkeypatch.setenv("HARNESS_IMAGE_REVISION", "c0ffee-dirty")
    run = execute(Order(resolve("toy", ["steps=3"]), here, image.root), image, Watcher())
    assert run.fingerprint is not None
    facts = run.fingerprint.facts
    assert (facts["code.commit"], facts["code.dirty"]) == ("c0ffee", True)
    assert facts["environment.image.digest"] == "sha256:ab"
    recorded = recorded_image(run)
    assert recorded is not None
    assert recorded.is_here
    assert _code(run, image) == (image.root, [])
    monkeypatch.delenv("HARNESS_IMAGE_DIGEST")
    assert not recorded.is_here


def test_a_run_outside_has_no_image(where: Places, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert recorded_image(run_command(where, project / "sub", monkeypatch)) is None


def run_command(where: Places, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(folder)
    return execute(command_order([sys.executable, "train.py"], where), where, Watcher())


def said(run: Run) -> str:
    return (Path(run.folder) / "stdout.log").read_text()


def test_the_same_code_runs_in_place(where: Places, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_command(where, project / "sub", monkeypatch)
    assert said(run) == "second uncommitted\n"
    again = plan_rerun(run, [], where)
    assert again.order.code_folder == project / "sub"
    assert not any("has changed" in remark for remark in again.remarks)


def test_changed_code_is_brought_back_with_its_patch(
    where: Places, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_command(where, project / "sub", monkeypatch)
    (project / "sub" / "train.py").write_text("print('third')\n")
    (project / "sub" / "helper.py").unlink()
    git(project, "commit", "-qam", "third")
    monkeypatch.chdir(where.root)

    again = plan_rerun(RunFolder(Path(run.folder)).load(), [], where)
    assert any("the code has changed since" in remark and "uncommitted" in remark for remark in again.remarks)
    repeated = execute(again.order, where, Watcher())
    assert said(repeated) == said(run) == "second uncommitted\n"
    assert (project / "sub" / "train.py").read_text() == "print('third')\n"  # the user's own tree is as it was
    assert run.fingerprint is not None
    assert repeated.fingerprint is not None
    for fact in ("code.commit", "code.patch.sha256"):
        assert repeated.fingerprint.facts[fact] == run.fingerprint.facts[fact]


def test_a_repeated_toy_run_gives_the_same_losses(where: Places, here: BuiltEnvironment) -> None:
    run = execute(Order(resolve("toy", ["steps=5", "seconds=0.001"]), here, ROOT), where, Watcher())
    spec = changed(run.spec, [])
    again = execute(Order(spec, here, ROOT), where, Watcher())
    assert again.spec.id == run.spec.id
    assert again.result.summary.loss_last == run.result.summary.loss_last


@pytest.fixture
def locked(here: BuiltEnvironment, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Environments that are built at once: this interpreter under each lock. The digests of what was asked for."""
    asked: list[str] = []

    def built(name: str, at: Places, python: str | None = None, **_: object) -> BuiltEnvironment:
        version = python or f"{sys.version_info.major}.{sys.version_info.minor}"
        lock = environments.lock_for(environments.environment(name, at), version, at)
        asked.append(lock.digest)
        return dataclasses.replace(here, name=name, lock=lock)

    def built_by_position(name: str, at: Places, python: str, _: object) -> BuiltEnvironment:
        return built(name, at, python)

    monkeypatch.setattr(orders, "built", lambda name, at, *rest, **named: built(name, at, *rest[:1], **named))
    monkeypatch.setattr(rerun, "built", built_by_position)
    return asked


def checkout(tmp_path: Path) -> Path:
    """A checkout with this project's environments and code, and no history."""
    root = tmp_path / "checkout"
    for name in ("envs", "harness", "experiments"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    return root


def test_a_changed_lock_is_rebuilt_from_the_folder(where: Places, tmp_path: Path, locked: list[str]) -> None:
    at = Places(checkout(tmp_path), where.state, where.runs)
    run = execute(orders.recipe_order(resolve("toy", ["steps=2"]), at), at, Watcher())
    (recorded,) = locked
    assert run.fingerprint is not None
    assert run.fingerprint.facts["environment.lock"] == recorded
    assert plan_rerun(run, [], at).order.environment.lock.digest == recorded  # type: ignore[union-attr]
    assert not any("lock" in remark for remark in plan_rerun(run, [], at).remarks)

    lock = at.root / "envs" / f"{run.spec.env}.txt"
    for path in (at.root / "envs").glob(f"{run.spec.env}*.txt"):
        path.unlink()
    lock.write_text("other==1.0 \\\n    --hash=sha256:" + "0" * 64 + "\n")
    again = plan_rerun(run, [], at)
    assert again.order.environment.lock is not None
    assert again.order.environment.lock.digest == recorded
    assert any("lock of" in remark and recorded[:12] in remark for remark in again.remarks)
    assert lock.read_text().startswith("other")  # the checkout's own lock is as it was


def test_what_cannot_be_repeated_says_why(
    where: Places, project: Path, monkeypatch: pytest.MonkeyPatch, here: BuiltEnvironment
) -> None:
    secret = RunSpec("", "", (sys.executable, "-c", "pass", "--token", "abc"))
    run = execute(Order(secret, here, project), where, Watcher())
    with pytest.raises(UsageError, match="a secret among its arguments"):
        plan_rerun(run, [], where)
    run = run_command(where, project / "sub", monkeypatch)
    monkeypatch.chdir(where.root)
    shutil.rmtree(project)
    with pytest.raises(UsageError, match="is gone"):
        plan_rerun(run, [], where)


def test_a_command_is_checked_before_anything_is_built(where: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        pytest.fail("something was built")

    monkeypatch.setattr(orders, "built", never)
    with pytest.raises(UsageError, match="no command"):
        command_order([], where)
    with pytest.raises(UsageError, match="no group for the tokens"):
        command_order(["true"], where, env="cpu", tokens_regex="x")
    with pytest.raises(UsageError, match="no such command"):
        command_order(["no-such-command"], where)
