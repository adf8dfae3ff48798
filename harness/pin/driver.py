"""The NVIDIA driver's version, without loading its library where there is no driver."""

from __future__ import annotations

from functools import cache
from pathlib import Path

_KERNEL_MODULE = Path("/proc/driver/nvidia/version")
_WINDOWS_SUBSYSTEM = Path("/dev/dxg")  # a driver that has no kernel module of its own


@cache
def driver_versions() -> tuple[str | None, str | None]:
    """("580.65.06", "13.0"): the driver, and the newest CUDA that it runs; None for what is not there."""
    if not _KERNEL_MODULE.exists() and not _WINDOWS_SUBSYSTEM.exists():
        return None, None
    from harness.pin import gpus  # a tenth of a second

    with gpus.opened() as found:
        return found.driver, found.cuda
