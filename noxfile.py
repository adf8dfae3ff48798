"""The tasks of this project. ``python3 noxfile.py -s TASK`` needs only Python, git and a package index.

Run as a script, it sets up its own pinned nox first; ``nox -s TASK`` is the same where nox is installed already.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys

if sys.version_info < (3, 11):
    sys.stderr.write(
        "Python 3.11 or newer is needed, this is %d.%d; try: python3.11 noxfile.py\n" % sys.version_info[:2]
    )
    sys.exit(2)

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 (before pathlib may be trusted)

if __name__ == "__main__":
    from harness.pin import bootstrap

    bootstrap.main(sys.argv[1:])

from pathlib import Path

import nox

from harness.errors import HarnessError
from harness.pin import venvs

nox.options.sessions = ["lint", "tests"]
nox.options.default_venv_backend = "none"


def _python(session: nox.Session, environment: str) -> str:
    """The environment's Python; the environment is built where it is not there."""
    try:
        built = venvs.link_harness() if environment == "harness" else venvs.ensure(environment)
    except HarnessError as error:
        session.error(str(error))
    return str(built.python)


def _run(session: nox.Session, environment: str, *command: str) -> None:
    """Run ``command`` with the environment's Python; a code other than 0 ends nox with that code.

    Ctrl-C is the command's own to answer, however long it takes; nox's own runner knows neither.
    """
    python = _python(session, environment)
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        code = subprocess.call([python, *command])
    finally:
        signal.signal(signal.SIGINT, before)
    if code:
        sys.exit(code)


@nox.session
def train(session: nox.Session) -> None:
    """Train and record: -- [RECIPE [key=value ...]]; without a recipe, the one that fits this machine."""
    _run(session, "harness", "-m", "harness.cli", "run", *session.posargs)


@nox.session
def harness(session: nox.Session) -> None:
    """Run the harness: -- ARGS; the same as .venv/bin/harness ARGS."""
    _run(session, "harness", "-m", "harness.cli", *session.posargs)


@nox.session
def image(session: nox.Session) -> None:
    """Build the pinned image: -- [ENV] [--smoke]; without ENV, of the environment that this machine trains in."""
    _run(session, "harness", "-m", "harness.cli", "image", *session.posargs)


@nox.session
def ui(session: nox.Session) -> None:
    """Open the recorded runs in MLflow's pages: -- [ARGS]."""
    _run(session, "harness", "-m", "harness.cli", "ui", *session.posargs)


@nox.session
def explain(session: nox.Session) -> None:
    """Explain a difference between runs: -- A B, or -- B against its baseline; as harness explain."""
    _run(session, "harness", "-m", "harness.cli", "explain", *session.posargs)


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests on all cores: -- [PYTEST ARGS]; -- -m slow runs those that take longer, one after the other."""
    for environment in ("harness", "cpu", "data"):
        _python(session, environment)  # what the tests start runs in
    os.environ["HARNESS_DATA"] = str(venvs.data_folder())  # the real model and texts, for the tests that read them
    workers = ("-n", "auto", "--maxprocesses", "8", "--dist", "loadfile")  # a file's tests share its fixtures
    _run(session, "dev", "-m", "pytest", *workers, *session.posargs)


@nox.session
def gpu(session: nox.Session) -> None:
    """Test and measure what only a GPU runs: -- [PYTEST ARGS]. Without a GPU it builds nothing and ends with code 2."""
    if not _has_gpu(session):
        sys.stderr.write("no GPU here: nothing was tested\n")
        sys.exit(2)
    with_dev = ("tests/gpu/with_dev.py", str(venvs.ensure("dev").site_packages))
    _run(session, "cu130", *with_dev, "pytest", "-m", "gpu", "-W", "default", "tests/gpu", *session.posargs)
    _run(session, "cu130", *with_dev, "benchmarks.gpu")


def _has_gpu(session: nox.Session) -> bool:
    """Whether the driver knows a card. Only where there is a driver is an environment needed to ask it."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    asked = "import sys; from harness.pin import gpus\nwith gpus.opened() as found: sys.exit(not found.cards)"
    return subprocess.call([_python(session, "harness"), "-c", asked]) == 0


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, formatting and types."""
    _run(session, "dev", "-m", "ruff", "check", ".")
    _run(session, "dev", "-m", "ruff", "format", "--check", ".")
    _run(session, "dev", "-m", "mypy")


@nox.session
def lock(session: nox.Session) -> None:
    """Compile the locks anew: -- [ENV ...] [--upgrade], or --check that they satisfy what they were compiled from."""
    _run(session, "tools", "-m", "harness.pin.lock_command", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Measure what the harness itself costs: -- [NAME ...] of benchmarks/; without a name, most."""
    found = sorted({path.stem for path in Path("benchmarks").glob("[!_]*.py")} - {"gpu", "race_table", "topologies"})
    for name in session.posargs or found:
        _run(session, "dev", "-m", f"benchmarks.{name}")
