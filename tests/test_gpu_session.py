"""nox -s gpu: where there is no GPU it is no pass; where there is one, pytest comes in behind the environment's own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.pin import gpus, venvs
from harness.places import places

ROOT = places().root


def test_without_a_gpu_nothing_is_built_and_nothing_passes(tmp_path: Path) -> None:
    with gpus.opened() as found:
        if found.cards:
            pytest.skip("there is a GPU here")
    state = tmp_path / "state"
    argv = [sys.executable, "-m", "nox", "-f", str(ROOT / "noxfile.py"), "-s", "gpu"]
    environment = {**os.environ, "HARNESS_STATE": str(state)}
    done = subprocess.run(argv, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.returncode == 2
    said = [line for line in (done.stdout + done.stderr).splitlines() if not line.startswith("nox > Running session")]
    assert said == ["no GPU here: nothing was tested"]
    assert not state.exists()


def test_pytest_runs_in_an_environment_without_it_and_torch_is_that_environments_own(tmp_path: Path) -> None:
    trained_in = venvs.find("cpu", places())
    if trained_in is None:
        pytest.skip("the environment cpu is not built")
    own = trained_in.site_packages
    assert not (own / "pytest").exists()
    (tmp_path / "test_whose.py").write_text(
        "import numpy, pytest, torch\n"
        f"def test_torch(): assert torch.__file__.startswith({str(own)!r})\n"
        f"def test_numpy(): assert numpy.__file__.startswith({str(own)!r})\n"
        f"def test_pytest(): assert not pytest.__file__.startswith({str(own)!r})\n"
    )
    other = next(path for path in sys.path if (Path(path) / "pytest").is_dir())
    argv = [
        trained_in.python,
        ROOT / "tests/gpu/with_dev.py",
        other,
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        tmp_path,
    ]
    done = subprocess.run([*map(str, argv)], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout
