"""Does the NVIDIA driver here run the CUDA that torch was built for?"""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import Version

from harness.findings import Finding, Severity
from harness.pin.doctor.cuda.families import DRIVERS
from harness.pin.doctor.cuda.torch_needs import parse


def judge(driver: str | None, driver_cuda: str | None, torch: str, cuda: str) -> Iterator[Finding]:
    """One finding of the kind ``cuda.driver``, or none where the driver is as new as torch's CUDA.

    ``driver``       its version, as "580.65.06"; None without one
    ``driver_cuda``  the newest CUDA that it says it runs; a compatibility package in front of it raises this
    ``torch``, ``cuda``   torch's version and the CUDA that it was built for
    """
    evidence = {"driver": driver, "driver_cuda": driver_cuda, "torch": torch, "cuda": cuda}

    def finding(severity: Severity, summary: str, fix: str = "") -> Finding:
        return Finding("cuda.driver", severity, "torch", summary, evidence, fix)

    wanted = parse(cuda)
    if wanted is None:
        return
    if driver is None and driver_cuda is None:
        yield finding("note", f"torch {torch} is built for CUDA {cuda}, and there is no NVIDIA driver here to run it.")
        return
    runs, has = parse(driver_cuda or ""), parse(driver or "")
    minimum = DRIVERS.minimum.get(wanted.major, "")
    too_old = has is not None and minimum and has < Version(minimum)
    says_less = runs is not None and runs.major < wanted.major
    # A driver with a compatibility package is old and yet says that it runs the newer CUDA: its own word decides.
    if says_less or (too_old and runs is None):
        needs = f"a driver from {minimum} on" if minimum else f"a driver for CUDA {wanted.major}"
        is_ = f"NVIDIA's driver {driver}" if driver else f"the NVIDIA driver (for CUDA {driver_cuda})"
        summary = f"{is_} is too old for torch {torch}: CUDA {cuda} needs {needs}."
        yield finding("broken", summary, f"install {needs}, or a torch for an older CUDA")
    elif _older_minor(has, runs, wanted, cuda):
        made = f"for CUDA {driver_cuda}" if driver_cuda else f"{driver}"
        yield finding(
            "note",
            f"The NVIDIA driver is {made}, older than torch {torch}'s CUDA {cuda}: compiled kernels run, PTX that"
            " the driver has to compile may not.",
        )


def _older_minor(has: Version | None, runs: Version | None, wanted: Version, cuda: str) -> bool:
    """The driver was made for an earlier minor of the same CUDA major."""
    if runs is not None:
        return runs < wanted
    toolkit = DRIVERS.toolkit.get(cuda)
    return has is not None and toolkit is not None and has < Version(toolkit)
