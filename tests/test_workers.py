"""How many processes run the tests: all cores, and one for those that share the machine."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.conftest import pytest_xdist_auto_num_workers


@pytest.mark.parametrize(
    ("marks", "workers"),
    [("slow", 0), ("slow and not gpu", 0), ("not slow and not gpu", None), ("not slow", None), ("gpu", None)],
)
def test_slow_tests_run_one_after_the_other(marks: str, workers: int | None) -> None:
    config = SimpleNamespace(option=SimpleNamespace(markexpr=marks))
    assert pytest_xdist_auto_num_workers(config) is workers  # type: ignore[arg-type]
