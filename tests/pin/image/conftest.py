"""For real builds: HARNESS_TEST_BASE is the base that they stand on, for example $(tests/image_base.sh)."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(scope="session")
def base() -> str:
    if "HARNESS_TEST_BASE" not in os.environ:
        pytest.skip("no base to build on: HARNESS_TEST_BASE=$(tests/image_base.sh)")
    return os.environ["HARNESS_TEST_BASE"]
