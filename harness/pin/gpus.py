"""What NVIDIA's management library says of the GPUs: what they are, and how they are doing now.

Without a driver there are no GPU facts and no error. A question that a card does not answer is a fact that is absent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pynvml

from harness.records import Value

_THROTTLE_REASONS: Mapping[str, str] = {
    "idle": "nvmlClocksEventReasonGpuIdle",
    "application_clocks": "nvmlClocksEventReasonApplicationsClocksSetting",
    "power_cap": "nvmlClocksEventReasonSwPowerCap",
    "hardware_slowdown": "nvmlClocksThrottleReasonHwSlowdown",
    "sync_boost": "nvmlClocksEventReasonSyncBoost",
    "software_thermal": "nvmlClocksEventReasonSwThermalSlowdown",
    "hardware_thermal": "nvmlClocksThrottleReasonHwThermalSlowdown",
    "power_brake": "nvmlClocksThrottleReasonHwPowerBrakeSlowdown",
    "display_clocks": "nvmlClocksEventReasonDisplayClockSetting",
}

_LINKS: Mapping[int, str] = {
    pynvml.NVML_TOPOLOGY_INTERNAL: "same board",
    pynvml.NVML_TOPOLOGY_SINGLE: "one PCIe switch",
    pynvml.NVML_TOPOLOGY_MULTIPLE: "several PCIe switches",
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: "host bridge",
    pynvml.NVML_TOPOLOGY_NODE: "NUMA node",
    pynvml.NVML_TOPOLOGY_SYSTEM: "between sockets",
}


@dataclass(frozen=True)
class Gpu:
    """One card, by its index in the driver's order."""

    index: int
    handle: Any

    def constants(self) -> dict[str, Value]:
        """What the card is and how it is set: ``{"name": ..., "memory.bytes": ..., "power.limit_w": ...}``."""
        h = self.handle
        power = _ask(pynvml.nvmlDeviceGetEnforcedPowerLimit, h)
        capability = _ask(pynvml.nvmlDeviceGetCudaComputeCapability, h)
        ecc = _ask(pynvml.nvmlDeviceGetEccMode, h)
        mig = _ask(pynvml.nvmlDeviceGetMigMode, h)
        facts: dict[str, Value] = {
            "name": _ask(pynvml.nvmlDeviceGetName, h),
            "memory.bytes": _part(_ask(pynvml.nvmlDeviceGetMemoryInfo, h), "total"),
            "capability": None if capability is None else "{}.{}".format(*capability),
            "power.limit_w": None if power is None else power / 1000,
            "ecc": None if ecc is None else bool(ecc[0]),
            "mig": None if mig is None else bool(mig[0]),
            "clock.sm.max_mhz": _ask(pynvml.nvmlDeviceGetMaxClockInfo, h, pynvml.NVML_CLOCK_SM),
            "clock.memory.max_mhz": _ask(pynvml.nvmlDeviceGetMaxClockInfo, h, pynvml.NVML_CLOCK_MEM),
            "pcie.generation.max": _ask(pynvml.nvmlDeviceGetMaxPcieLinkGeneration, h),
            "pcie.width.max": _ask(pynvml.nvmlDeviceGetMaxPcieLinkWidth, h),
            "vbios": _ask(pynvml.nvmlDeviceGetVbiosVersion, h),
            "persistence": _flag(_ask(pynvml.nvmlDeviceGetPersistenceMode, h)),
        }
        return _known(facts)

    def state(self) -> dict[str, Value]:
        """How the card is doing now, in MHz, watts, degrees Celsius, bytes and per cent."""
        h = self.handle
        use = _ask(pynvml.nvmlDeviceGetUtilizationRates, h)
        power = _ask(pynvml.nvmlDeviceGetPowerUsage, h)
        reasons = _ask(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, h)
        return _known(
            {
                "use_pct": _part(use, "gpu"),
                "memory_use_pct": _part(use, "memory"),
                "memory_used_bytes": _part(_ask(pynvml.nvmlDeviceGetMemoryInfo, h), "used"),
                "clock_sm_mhz": _ask(pynvml.nvmlDeviceGetClockInfo, h, pynvml.NVML_CLOCK_SM),
                "clock_memory_mhz": _ask(pynvml.nvmlDeviceGetClockInfo, h, pynvml.NVML_CLOCK_MEM),
                "power_w": None if power is None else power / 1000,
                "temperature_c": _ask(pynvml.nvmlDeviceGetTemperature, h, pynvml.NVML_TEMPERATURE_GPU),
                "throttle": None if reasons is None else throttle_names(reasons),
            }
        )

    def link(self) -> dict[str, Value]:
        """The PCIe link as it is now; it widens and narrows with load on some cards."""
        return _known(
            {
                "pcie.generation": _ask(pynvml.nvmlDeviceGetCurrPcieLinkGeneration, self.handle),
                "pcie.width": _ask(pynvml.nvmlDeviceGetCurrPcieLinkWidth, self.handle),
            }
        )

    def names(self) -> dict[str, Value]:
        """What tells this very card from its twins."""
        return _known(
            {
                "uuid": _ask(pynvml.nvmlDeviceGetUUID, self.handle),
                "bus": _part(_ask(pynvml.nvmlDeviceGetPciInfo, self.handle), "busId"),
            }
        )

    def processes(self) -> int | None:
        """How many processes compute on the card now; None where the driver does not say."""
        running = _ask(pynvml.nvmlDeviceGetComputeRunningProcesses, self.handle)
        return None if running is None else len(running)

    def link_to(self, other: Gpu) -> str | None:
        """How data goes from this card to ``other``: "NVLink", or the nearest thing that both hang on."""
        status = _ask(pynvml.nvmlDeviceGetP2PStatus, self.handle, other.handle, pynvml.NVML_P2P_CAPS_INDEX_NVLINK)
        if status == pynvml.NVML_P2P_STATUS_OK:
            return "NVLink"
        level = _ask(pynvml.nvmlDeviceGetTopologyCommonAncestor, self.handle, other.handle)
        return None if level is None else _LINKS.get(level, f"level {level}")


@dataclass(frozen=True)
class Gpus:
    """The cards of this machine, and the driver's versions."""

    cards: tuple[Gpu, ...] = ()
    driver: str | None = None
    cuda: str | None = None  # the newest CUDA that the driver runs


@contextmanager
def opened() -> Iterator[Gpus]:
    """The GPUs, for as long as the context lasts; none where there is no driver."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield Gpus()
        return
    try:
        count = _ask(pynvml.nvmlDeviceGetCount) or 0
        handles = [(index, _ask(pynvml.nvmlDeviceGetHandleByIndex, index)) for index in range(count)]
        version = _ask(pynvml.nvmlSystemGetCudaDriverVersion_v2)
        yield Gpus(
            cards=tuple(Gpu(index, handle) for index, handle in handles if handle is not None),
            driver=_ask(pynvml.nvmlSystemGetDriverVersion),
            cuda=None if version is None else f"{version // 1000}.{version % 1000 // 10}",
        )
    finally:
        pynvml.nvmlShutdown()


def throttle_names(reasons: int) -> str:
    """The names of the bits set in ``reasons``, joined by commas; "" where the clocks are free."""
    return ",".join(name for name, bit in _THROTTLE_REASONS.items() if reasons & getattr(pynvml, bit))


def _ask(question: Callable[..., Any], *arguments: Any) -> Any:
    """The answer, or None where this card or this driver has none."""
    try:
        return question(*arguments)
    except pynvml.NVMLError:
        return None


def _part(answer: Any, name: str) -> Any:
    value = getattr(answer, name, None)
    return value.decode() if isinstance(value, bytes) else value


def _flag(answer: Any) -> bool | None:
    return None if answer is None else bool(answer)


def _known(facts: Mapping[str, Value]) -> dict[str, Value]:
    return {name: value for name, value in facts.items() if value is not None}
