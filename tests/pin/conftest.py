"""A checkout of its own for each test: its environments, its state, and the real uv."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.pin.environments import RUNNING, environment, lock_for
from harness.pin.venvs import ensure
from harness.places import Places, places
from tests.pin.checkouts import MakeCheckout


@pytest.fixture(scope="session")
def tools() -> Path:
    """The real tools environment of this checkout, built once."""
    return ensure("tools", python=RUNNING).folder


@pytest.fixture
def make_checkout(tmp_path: Path, tools: Path) -> MakeCheckout:
    """Lays a checkout whose environments hold, each, the named packages at the versions and hashes of the dev lock."""
    real = places()
    dev = {pin.name: pin for pin in lock_for(environment("dev", real), RUNNING, real).pins}

    def make(packages: dict[str, list[str]]) -> Places:
        where = Places(tmp_path / "checkout", tmp_path / "checkout" / ".harness", tmp_path / "checkout" / "runs")
        envs = where.root / "envs"
        envs.mkdir(parents=True)
        where.envs.mkdir(parents=True)
        (where.envs / tools.name).symlink_to(tools)
        (envs / "tools.txt").write_text((real.root / "envs" / "tools.txt").read_text())
        (envs / "tools.in").write_text((real.root / "envs" / "tools.in").read_text())
        tables = [f'[{name}]\npurpose = "a test"\npython = ["{RUNNING}"]\n' for name in ("tools", *packages)]
        (envs / "envs.toml").write_text("\n".join(tables))
        for name, wanted in packages.items():
            pins = [dev[package] for package in wanted]
            lines = [f"{pin.name}=={pin.version} " + " ".join(f"--hash={h}" for h in pin.hashes) for pin in pins]
            (envs / f"{name}.in").write_text("\n".join(wanted) + "\n")
            (envs / f"{name}.txt").write_text("\n".join(lines) + "\n")
        return where

    return make
