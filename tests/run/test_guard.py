"""Before a run: a broken environment stops it, a dangerous one is recorded, and an untouched one costs nothing."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from harness.cli import main
from harness.places import places
from harness.run.guard import verified
from harness.run.orders import command_order
from tests.pin.doctor.wheels import install, make_venv, make_wheel, site_packages

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("HARNESS_STATE", str(tmp_path / "state"))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A venv of somebody else's, with a library in it."""
    folder = tmp_path_factory.mktemp("installed")
    wheel = make_wheel(folder, "beta", "2.0", {"beta/__init__.py": b"y = 1\n", "beta/lib.so": b"z" * 100})
    install(make_venv(folder / "venv"), wheel)
    return folder / "venv"


@pytest.fixture
def python(tmp_path: Path, installed: Path) -> Path:
    """Its Python, in a copy for this test alone."""
    shutil.copytree(installed, tmp_path / "venv", symlinks=True)
    return tmp_path / "venv" / "bin" / "python"


def test_a_broken_environment_stops_the_run_and_says_what_mends_it(
    python: Path, tmp_path: Path, capfd: Capture
) -> None:
    (site_packages(python) / "beta" / "lib.so").unlink()
    assert main(["run", "--", str(python), "-c", "print(1)"]) == 1
    said = capfd.readouterr().err
    assert said.startswith("error: beta ")
    assert "nothing was started" in said
    assert f"-m pip --python {python} install --force-reinstall --no-deps beta==2.0" in said  # a venv without pip
    assert "--no-verify" in said
    assert said.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_overruled_it_runs_and_is_recorded(python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/nowhere/mlflow.db")  # the mirror is not the point
    (site_packages(python) / "beta" / "lib.so").unlink()
    order = verified(command_order([str(python), "-c", "pass"], places()), places(), say=lambda _: None, overrule=True)
    assert order.diagnosis is not None
    facts = order.diagnosis.facts()
    assert facts["environment.doctor"] == "broken"
    assert str(facts["environment.doctor.file.missing.beta"]).startswith("broken ")
    assert "beta" in str(facts["context.doctor.file.missing.beta"])


def test_what_is_dangerous_is_said_and_does_not_stop(python: Path) -> None:
    (site_packages(python) / "beta" / "__init__.py").write_text("y = 2\n")
    said: list[str] = []
    order = verified(command_order([str(python), "-c", "pass"], places()), places(), said.append)
    assert order.diagnosis is not None
    assert order.diagnosis.worst == "dangerous"
    assert len(said) == 1
    assert said[0].startswith("dangerous: beta")


def test_the_tests_own_environment_is_sound() -> None:
    """The largest environment at hand: 150 distributions, torch among them."""
    order = verified(command_order([sys.executable, "-c", "pass"], places()), places(), lambda _: None)
    assert order.diagnosis is not None
    above = [f for f in order.diagnosis.findings if f.severity != "note"]
    assert above == [], json.dumps([f.summary for f in above], indent=1)
