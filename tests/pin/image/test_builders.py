"""Which builder is taken, how it is asked, and what its failures are called."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.errors import EnvironmentFault
from harness.pin.image.builders import BuildFailed, CommandBuilder, find_builder, reason_of

ROOT = Path(__file__).resolve().parents[3]
NO_ENGINE = {"DOCKER_HOST": "unix:///nonexistent/engine.sock"}


def program(folder: Path, name: str, script: str) -> Path:
    """A stand-in for ``name`` on a PATH of its own."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n" + script)
    path.chmod(0o755)
    return path


def test_no_builder_is_one_line_with_the_command_that_installs_one(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault) as caught:
        find_builder({**NO_ENGINE, "PATH": str(tmp_path)})
    message = str(caught.value)
    assert message.startswith("no container builder is here: no Docker engine is at unix:///nonexistent/engine.sock, ")
    assert message.endswith(
        "neither buildah nor podman is on PATH; install one, for example: apt-get install buildah podman"
    )
    assert "\n" not in message


def test_buildah_is_taken_before_podman_where_no_engine_answers(tmp_path: Path) -> None:
    podman = program(tmp_path / "podman", "podman", "")
    buildah = program(tmp_path / "buildah", "buildah", "")
    assert find_builder({**NO_ENGINE, "PATH": str(podman.parent)}) == CommandBuilder("podman", str(podman))
    both = f"{podman.parent}:{buildah.parent}"
    assert find_builder({**NO_ENGINE, "PATH": both}) == CommandBuilder("buildah", str(buildah))


def test_a_build_is_of_the_commits_time_without_a_name_and_without_a_pull(tmp_path: Path) -> None:
    script = f"""printf '%s\\n' "$@" > {tmp_path}/arguments
for argument; do case $argument in --iidfile=*) echo sha256:abc > "${{argument#--iidfile=}}";; esac; done
echo STEP 1; echo to stderr >&2
"""
    builder, said = CommandBuilder("buildah", str(program(tmp_path, "buildah", script))), list[str]()
    identity = builder.build(tmp_path, {"ENV": "cpu", "SOURCE_DATE_EPOCH": "1700000000", "REVISION": "r"}, said.append)
    arguments = (tmp_path / "arguments").read_text().splitlines()
    assert identity == "sha256:abc"
    assert {"--timestamp=1700000000", "--build-arg=ENV=cpu", "--pull=false", "--target=image"} <= {*arguments}
    assert {"--build-arg=STAGE=r", str(tmp_path)} <= {*arguments}
    assert not [argument for argument in arguments if argument.startswith(("--tag", "-t"))]
    assert said == ["STEP 1", "to stderr"]


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (["STEP 1", "error: the base x has no Python, not Python 3.11", "error building: exit status 1"],
         "the base x has no Python, not Python 3.11"),
        (["STEP 1", "error: uv: No space left on device (os error 28)", "exit status 1"],
         "the disk is full where the builder keeps its images, or where it works (TMPDIR, else /var/tmp); "
         "make room: buildah rmi --prune, or docker system prune"),
        (["STEP 1", 'Error: committing: storing layer "ee0d" to file: io: read/write on closed pipe'],
         "the disk is full where the builder keeps its images, or where it works (TMPDIR, else /var/tmp); "
         "make room: buildah rmi --prune, or docker system prune"),
        (["STEP 1", "Error: creating container: no such image", ""], "creating container: no such image"),
        ([], "it said nothing"),
    ],
)  # fmt: skip
def test_a_failure_is_one_line(tmp_path: Path, output: list[str], reason: str) -> None:
    assert reason_of(output) == reason
    script = "\n".join(f"echo '{line}'" for line in output) + "\nexit 125\n"
    with pytest.raises(BuildFailed) as caught:
        CommandBuilder("buildah", str(program(tmp_path, "buildah", script))).build(
            tmp_path, {"SOURCE_DATE_EPOCH": "0", "REVISION": "r"}, lambda _: None
        )
    assert str(caught.value) == reason


def test_ctrl_c_waits_until_the_builder_has_tidied_up(tmp_path: Path) -> None:
    """Both get the terminal's signal. The builder's end is what frees its containers; nobody kills it before."""
    script = f"""[ "$1" = build ] || exit 0
trap 'sleep 0.5; echo tidied > {tmp_path}/tidied; exit 1' INT TERM
echo started > {tmp_path}/started
while :; do sleep 0.1; done
"""
    path = program(tmp_path, "buildah", script)
    code = (
        "from pathlib import Path; from harness.pin.image.builders import CommandBuilder\n"
        "arguments = {'SOURCE_DATE_EPOCH': '0', 'REVISION': 'r'}\n"
        f"CommandBuilder('buildah', {str(path)!r}).build(Path('.'), arguments, print)"
    )
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    options = {"env": environ, "start_new_session": True, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], **options) as process:  # type: ignore[call-overload]
        until = time.monotonic() + 30
        while not (tmp_path / "started").exists():
            assert time.monotonic() < until
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)
        assert b"KeyboardInterrupt" in process.communicate(timeout=30)[1]
    assert (tmp_path / "tidied").exists()
