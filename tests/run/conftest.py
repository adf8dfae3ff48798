"""A place of its own for each test's runs, and this interpreter as the environment that they run in."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.pin.caches import VARIABLES
from harness.places import Places
from harness.records import BuiltEnvironment
from tests.run.gate_crew import Crew
from tests.watcher import Watcher

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def no_cache_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch, where another test imported it, has named a compile cache for this process."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def watcher() -> Watcher:
    return Watcher()


@pytest.fixture
def where(tmp_path: Path) -> Places:
    return Places(root=ROOT, state=tmp_path / "state", runs=tmp_path / "runs")


@pytest.fixture(scope="session")
def here() -> BuiltEnvironment:
    return BuiltEnvironment("", Path(sys.executable), Path(sysconfig.get_path("purelib")))


@pytest.fixture
def crew() -> Iterator[Crew]:
    crew = Crew()
    yield crew
    crew.join()
