"""Recipes in a real image, by a real engine: the one that `nox -s image -- cpu` built, or HARNESS_TEST_IMAGE."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UsageError
from harness.pin.code import git
from harness.pin.environments import environment, lock_for
from harness.pin.image.names import DIRTY, REVISION, tag
from harness.places import places
from harness.run.engine import Image, find_image
from harness.run.folder import RunFolder, run_folders
from tests.test_train import SMALL, losses

ROOT = Path(__file__).resolve().parents[1]
BUILD = "build it: nox -s image -- cpu"
ENDLESS = ("toy", "steps=100000", "seconds=0.01")

pytestmark = pytest.mark.slow

# The whole command line as another user would start it: the user's numbers are all that it asks for.
AS_SOMEBODY = """
import os, sys
os.getuid, os.getgid = (lambda: 12345), (lambda: 12346)
from harness.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state of their own for these tests: making MLflow's store takes half a minute, so it is made once."""
    return tmp_path_factory.mktemp("place")


@pytest.fixture(autouse=True)
def elsewhere(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("HARNESS_STATE", str(place / "state"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.fixture(scope="module")
def image() -> Image:
    """The image of this very commit; CI, which builds one, may not be without it."""
    if named := os.environ.get("HARNESS_TEST_IMAGE"):
        return find_image(named, otherwise="HARNESS_TEST_IMAGE names it")
    where = places()
    absent = pytest.fail if "HARNESS_TEST_BASE" in os.environ else pytest.skip
    try:
        found = find_image(tag(lock_for(environment("cpu", where), "3.11", where)), otherwise=BUILD)
    except UsageError as missing:
        absent(str(missing))
    commit = git(ROOT, "rev-parse", "HEAD")
    if commit is not None and found.labels[REVISION].removesuffix(DIRTY) != commit.decode().strip():
        absent(f"{found.name} is of another commit; {BUILD}")
    return found


def harness(*arguments: str) -> Any:
    """What a command says in JSON."""
    command = [sys.executable, "-m", "harness.cli", *arguments, "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def until(what: str, happened: Callable[[], Any], seconds: float = 60.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (answer := happened()):
        assert time.monotonic() < deadline, f"{what} did not happen in {seconds} s"
        time.sleep(0.1)
    return answer


def stepping(runs: Path) -> RunFolder | None:
    """The run, once it has made a step."""
    folders = [f for f in run_folders(runs) if (f.path / "events.jsonl").exists()]
    return next((f for f in folders if b'"step"' in (f.path / "events.jsonl").read_bytes()), None)


def containers(image: Image) -> list[str]:
    """The containers of this image that there are."""
    return image.engine.ask("ps", "--all", "--quiet", f"--filter=ancestor={image.digest}").stdout.split()


@pytest.fixture
def endless(image: Image) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "harness.cli", "run", *ENDLESS, "--image", image.name],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    yield process
    process.kill()
    process.communicate()
    until("the end of the container", lambda: not containers(image))


def test_tiny_is_recorded_mirrored_and_warm_the_second_time(image: Image, tmp_path: Path) -> None:
    first = harness("run", "tiny", *SMALL, "--image", image.name)
    assert first["status"] == "finished"
    assert first["lossless"] is True
    assert first["mlflow_run_id"]
    assert containers(image) == []

    folder = RunFolder(Path(first["folder"]))
    assert folder.path.parent == tmp_path / "runs"
    assert harness("show", folder.id) == first  # outside, from the files alone
    assert {path.stat().st_uid for path in folder.path.rglob("*")} == {os.getuid()}
    facts = folder.load().fingerprint
    assert facts is not None
    assert facts.facts["environment.image.digest"] == image.digest
    assert facts.facts["environment.image.tag"] == image.name
    assert facts.facts["environment.image.engine"] == image.engine.version
    assert facts.facts["environment.image.revision"] == image.labels[REVISION]
    assert facts.facts["environment.container"] == image.engine.kind

    again = harness("rerun", folder.id)
    assert losses(again) == losses(first)
    assert again["fingerprint_digest"] == first["fingerprint_digest"]
    assert again["mlflow_run_id"] != first["mlflow_run_id"]
    assert (first["compile"]["start"], first["compile"]["hits"]) == ("cold", 0)
    assert (again["compile"]["start"], again["compile"]["misses"]) == ("warm", 0)
    assert again["compile_s"] < first["compile_s"]


def test_mirroring_outside_finds_the_mirror_that_was_made_inside(image: Image) -> None:
    record = harness("run", "toy", "steps=5", "seconds=0.001", "--image", image.name)
    mirrored = harness("mirror", record["id"])
    assert (mirrored["status"], mirrored["mlflow_run_id"]) == ("unchanged", record["mlflow_run_id"])


@pytest.mark.skipif(os.getuid() != 0, reason="only root can ask for another user's files")
def test_what_a_run_writes_belongs_to_the_user_and_not_to_root(image: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Path("/tmp") / f"harness-somebody-{os.getpid()}"  # pytest's own folders are closed to others
    monkeypatch.setenv("HARNESS_RUNS", str(home / "runs"))
    monkeypatch.setenv("HARNESS_STATE", str(home / "state"))
    try:
        for name in ("runs", "state/caches", "state/models", "state/doctor", "state/mlflow"):
            (home / name).mkdir(parents=True)
            os.chown(home / name, 12345, 12346)
        command = [sys.executable, "-c", AS_SOMEBODY, "run", "toy", "steps=5", "seconds=0.001", "--image", image.name]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        (folder,) = run_folders(home / "runs")
        assert {(p.stat().st_uid, p.stat().st_gid) for p in (home / "runs").rglob("*")} == {(12345, 12346)}
        assert folder.load().result.status == "finished"
    finally:
        subprocess.run(["rm", "-r", str(home)], check=True)


def test_sigterm_ends_the_run_inside_and_its_record_says_so(
    endless: subprocess.Popen[str], image: Image, tmp_path: Path
) -> None:
    folder = until("a step", lambda: stepping(tmp_path / "runs"))
    endless.send_signal(signal.SIGTERM)
    assert endless.wait(60) == 1
    result = folder.load().result
    assert (result.status, result.reason) == ("killed", "stopped by a SIGTERM to the harness")
    assert containers(image) == []


def test_sigterm_before_the_child_runs_is_answered_too(endless: subprocess.Popen[str], image: Image) -> None:
    until("the container", lambda: containers(image))
    endless.send_signal(signal.SIGTERM)
    assert endless.wait(20) in (1, 130)
    assert containers(image) == []


def test_a_harness_killed_by_sigkill_takes_its_container_along(
    endless: subprocess.Popen[str], image: Image, tmp_path: Path
) -> None:
    folder = until("a step", lambda: stepping(tmp_path / "runs"))
    endless.kill()
    until("the end of the container", lambda: not containers(image), 30)
    result = folder.load().result
    assert (result.status, result.reason) == ("killed", "stopped by a SIGTERM to the harness")


def test_ctrl_c_in_a_terminal_ends_both_once(image: Image, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "harness.cli", "run", *ENDLESS, "--image", image.name],
        cwd=ROOT,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    shown, pressed = b"", False
    deadline = time.monotonic() + 120
    while process.poll() is None:
        assert time.monotonic() < deadline, shown.decode()
        if select.select([ours], [], [], 0.1)[0]:
            with contextlib.suppress(OSError):  # the other side has ended
                shown += os.read(ours, 65536)
        if not pressed and "╭─".encode() in shown and stepping(tmp_path / "runs"):  # the panel is drawn
            os.write(ours, b"\x03")
            pressed = True
    os.close(ours)
    assert process.returncode == 130
    (folder,) = run_folders(tmp_path / "runs")
    result = folder.load().result
    assert (result.status, result.signal, result.reason) == ("killed", 2, "stopped by Ctrl-C")
    assert containers(image) == []
