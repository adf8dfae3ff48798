"""A build that is stopped: the command as its own process, with a stand-in for buildah that ends when it is told to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

BUILDAH = """\
#!/bin/sh
echo "$@" >> {folder}/asked
case $1 in
images) echo forgotten; exit 0;;
build) ;;
*) exit 1;;
esac
trap 'echo tidied > {folder}/tidied; exit 1' INT TERM
echo started > {folder}/started
for turn in $(seq 2000); do sleep 0.05; done
"""

# The index is not asked: what is looked at here comes after.
COMMAND = """
import sys
from harness.cli import main
from harness.commands import image
image.check_files = lambda *_: None
sys.exit(main(["image", "cpu", "--allow-dirty"]))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_build_that_is_stopped_leaves_nothing(number: signal.Signals, tmp_path: Path) -> None:
    """The signal goes to the command alone, as from systemd or a job's time limit."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/buildah").write_text(BUILDAH.format(folder=tmp_path))
    (tmp_path / "bin/buildah").chmod(0o755)
    places = {"HARNESS_STATE": f"{tmp_path}/state", "HARNESS_RUNS": f"{tmp_path}/runs", "PYTHONPATH": str(ROOT)}
    found = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "DOCKER_HOST": "unix:///nonexistent/engine.sock"}
    environ = {**os.environ, **places, **found}
    command = [sys.executable, "-c", COMMAND]
    with subprocess.Popen(command, cwd=ROOT, env=environ, stderr=subprocess.PIPE, text=True) as process:
        try:
            until = time.monotonic() + 60
            while not (tmp_path / "started").exists():
                assert time.monotonic() < until
                assert process.poll() is None
                time.sleep(0.02)
            process.send_signal(number)
            said = process.communicate(timeout=60)[1]
        finally:
            process.kill()
    assert process.returncode == 130
    assert said.splitlines()[-1] == "interrupted"
    assert (tmp_path / "tidied").exists()  # buildah was waited for
    assert "rmi --force forgotten" in (tmp_path / "asked").read_text().splitlines()
    assert {path.name for path in (tmp_path / "state").iterdir()} == {"logs", ".lock-image"}
