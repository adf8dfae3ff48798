"""Files that were changed a while ago, for the clock that the kernel stamps them with."""

from __future__ import annotations

import time
from pathlib import Path

from harness.pin.doctor.installed.stat_cache import moment, settled
from harness.pin.doctor.installed.tree import look


def settle(folder: Path) -> Path:
    """Wait until a change of anything below ``folder`` shows in its times; longer where a stamp is a whole second."""
    while not all(settled(look(str(path)), moment()) for path in folder.rglob("*")):
        time.sleep(0.02)
    return folder
