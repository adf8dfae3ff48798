"""For all tests: a busy machine fails no property. Where a change is judged, the same examples are tried each time."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import settings

settings.register_profile("no deadline", deadline=None)
settings.register_profile("the same each time", deadline=None, derandomize=True)
settings.load_profile("no deadline")

# How the tests were started decides none of them: neither how wide the window is, which some shells export, nor that a
# shell's background job ignores Ctrl-C, and what nohup starts the end of its terminal.
for _name in ("COLUMNS", "LINES"):
    os.environ.pop(_name, None)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """All cores; but one process for the slow tests, which share the machine: its cores, the one storage of images."""
    return 0 if "slow" in config.option.markexpr.replace("not slow", "") else None
