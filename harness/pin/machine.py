"""What this machine is and how it is doing: processors, memory, kernel, container, GPUs."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Mapping
from pathlib import Path

import psutil

from harness.pin.gpus import Gpus
from harness.records import Value

_CGROUP = Path("/sys/fs/cgroup")
_CPU = Path("/sys/devices/system/cpu")
_IMAGE = "HARNESS_IMAGE_"


def machine_facts() -> dict[str, Value]:
    """The environment, state and context facts of the machine, without its GPUs. What cannot be read is absent."""
    load = os.getloadavg()
    memory = psutil.virtual_memory()
    facts: dict[str, Value | None] = {
        "environment.cpu.model": cpu_model(),
        "environment.cpu.architecture": platform.machine(),
        "environment.cpu.count": os.cpu_count(),
        "environment.cpu.cores": psutil.cpu_count(logical=False),
        "environment.cpu.usable": len(os.sched_getaffinity(0)),
        "environment.cpu.limit": _cpu_limit(),
        "environment.cpu.governor": _line(_CPU / "cpu0/cpufreq/scaling_governor"),
        "environment.cpu.boost": _line(_CPU / "cpufreq/boost"),
        "environment.memory.bytes": memory.total,
        "environment.memory.limit_bytes": _number(_line(_CGROUP / "memory.max")),
        "environment.shm.bytes": _shared_memory(),
        "environment.kernel": platform.release(),
        "environment.os": _os_name(),
        "environment.libc": " ".join(platform.libc_ver()).strip() or None,
        "environment.container": _container(),
        "environment.virtual": _virtual(),
        "state.load.1m": load[0],
        "state.load.5m": load[1],
        "state.load.15m": load[2],
        "state.memory.available_bytes": memory.available,
        "state.swap.used_bytes": psutil.swap_memory().used,
        "context.host": socket.gethostname(),
    }
    return {name: value for name, value in facts.items() if value is not None}


def image_facts(variables: Mapping[str, str]) -> dict[str, Value]:
    """What is known of the image that this runs in, from ``HARNESS_IMAGE_*``: its build says, and whoever starts it."""
    given = {name: value for name, value in variables.items() if name.startswith(_IMAGE) and value}
    return {f"environment.image.{name.removeprefix(_IMAGE).lower()}": value for name, value in given.items()}


def gpu_facts(gpus: Gpus) -> dict[str, Value]:
    """The facts of the GPUs as the driver has them. Empty where there is no driver."""
    if gpus.driver is None:
        return {}
    facts: dict[str, Value] = {"environment.gpu.count": len(gpus.cards), "environment.gpu.driver": gpus.driver}
    if gpus.cuda is not None:
        facts["environment.gpu.driver_cuda"] = gpus.cuda
    for card in gpus.cards:
        groups = {"environment": card.constants(), "state": {**card.state(), **card.link()}, "context": card.names()}
        for kind, values in groups.items():
            facts |= {f"{kind}.gpu.{card.index}.{name}": value for name, value in values.items()}
        busy = card.processes()
        if busy is not None:
            facts[f"state.gpu.{card.index}.processes"] = busy
        for other in gpus.cards[card.index + 1 :]:
            link = card.link_to(other)
            if link is not None:
                facts[f"environment.gpu.{card.index}.link.{other.index}"] = link
    return facts


def cpu_model() -> str | None:
    """The processor's name, as the kernel has it."""
    for line in _lines(Path("/proc/cpuinfo")):
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model", "cpu model"):
            return value.strip()
    return None


def _cpu_limit() -> float | None:
    """Processors' worth of time that the container may use, or None where it has no limit."""
    quota, _, period = (_line(_CGROUP / "cpu.max") or "").partition(" ")
    if quota and quota != "max":
        return int(quota) / int(period)
    old_quota = _number(_line(_CGROUP / "cpu/cpu.cfs_quota_us"))
    old_period = _number(_line(_CGROUP / "cpu/cpu.cfs_period_us"))
    return old_quota / old_period if old_quota and old_period and old_quota > 0 else None


def _shared_memory() -> int | None:
    """Bytes of /dev/shm, which a container often has too little of for loader processes and NCCL."""
    try:
        return psutil.disk_usage("/dev/shm").total
    except OSError:
        return None


def _os_name() -> str | None:
    for line in _lines(Path("/etc/os-release")):
        if line.startswith("PRETTY_NAME="):
            return line.partition("=")[2].strip('"')
    return None


def _container() -> str:
    """The kind of container that this process is in, or "none"."""
    if Path("/.dockerenv").exists():
        return "docker"
    if Path("/run/.containerenv").exists():
        return "podman"
    kind = _line(Path("/run/systemd/container"))  # lxc, systemd-nspawn, ...
    if kind:
        return kind
    groups = " ".join(_lines(Path("/proc/1/cgroup")))
    return next((name for name in ("kubepods", "docker", "lxc", "libpod") if name in groups), "none")


def _virtual() -> str:
    """The virtual machine's maker, "yes" where it does not say, or "none"."""
    flags = next((line for line in _lines(Path("/proc/cpuinfo")) if line.startswith("flags")), "")
    if "hypervisor" not in flags.split():
        return "none"
    return _line(Path("/sys/class/dmi/id/sys_vendor")) or "yes"


def _line(path: Path) -> str | None:
    return next(iter(_lines(path)), None)


def _lines(path: Path) -> list[str]:
    """The file's lines; none where it is not there or not ours to read, as many of these are in a container."""
    try:
        return path.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.lstrip("-").isdecimal() else None
