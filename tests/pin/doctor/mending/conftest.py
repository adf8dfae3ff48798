"""An environment from a lock for each test to break, and the wheels that it is of."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.pin.doctor.mending import journal
from tests.pin.doctor.breakages import Wheels
from tests.pin.doctor.locked import Locked, build, only_from


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Wheels:
    return Wheels(tmp_path_factory.mktemp("wheels"))


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def locked(tmp_path: Path, tools: Path, wheels: Wheels, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Locked:
    for name, value in only_from(tmp_path / "index", cache).items():
        monkeypatch.setenv(name, value)
    # No test here cuts the power, and a busy disk takes its time.
    monkeypatch.setattr(journal, "_sync_file_system", lambda _: None)
    return build(tmp_path, tools / "bin" / "uv", wheels.locked, relocatable=True)
