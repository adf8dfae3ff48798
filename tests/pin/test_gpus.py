"""GPU facts against a stand-in for the driver: what each answer becomes, and what a silent card leaves out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from harness.pin import gpus
from harness.pin.machine import gpu_facts


class Driver:
    """Answers as a driver with two RTX PRO 6000 cards does; the second one refuses whatever is in ``silent``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, silent: tuple[str, ...] = ()) -> None:
        self.silent, self.open = silent, 0
        answers: dict[str, Any] = {
            "nvmlInit": lambda: self._count(1),
            "nvmlShutdown": lambda: self._count(-1),
            "nvmlDeviceGetCount": lambda: 2,
            "nvmlDeviceGetHandleByIndex": lambda index: f"card {index}",
            "nvmlSystemGetDriverVersion": lambda: "580.95.05",
            "nvmlSystemGetCudaDriverVersion_v2": lambda: 13000,
            "nvmlDeviceGetName": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=96 << 30, used=1 << 30),
            "nvmlDeviceGetCudaComputeCapability": (12, 0),
            "nvmlDeviceGetEnforcedPowerLimit": 600_000,
            "nvmlDeviceGetEccMode": [1, 1],
            "nvmlDeviceGetMigMode": [0, 0],
            "nvmlDeviceGetMaxClockInfo": lambda _, domain: {pynvml.NVML_CLOCK_SM: 2430, pynvml.NVML_CLOCK_MEM: 12481}[
                domain
            ],
            "nvmlDeviceGetClockInfo": lambda _, domain: {pynvml.NVML_CLOCK_SM: 2100, pynvml.NVML_CLOCK_MEM: 12000}[
                domain
            ],
            "nvmlDeviceGetMaxPcieLinkGeneration": 5,
            "nvmlDeviceGetMaxPcieLinkWidth": 16,
            "nvmlDeviceGetCurrPcieLinkGeneration": 4,
            "nvmlDeviceGetCurrPcieLinkWidth": 8,
            "nvmlDeviceGetVbiosVersion": "98.02",
            "nvmlDeviceGetPersistenceMode": 1,
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=97, memory=40),
            "nvmlDeviceGetPowerUsage": 512_300,
            "nvmlDeviceGetTemperature": lambda _, __: 71,
            "nvmlDeviceGetCurrentClocksThrottleReasons": 0x4 | 0x20,
            "nvmlDeviceGetUUID": "GPU-1",
            "nvmlDeviceGetPciInfo": SimpleNamespace(busId=b"00000000:01:00.0"),
            "nvmlDeviceGetComputeRunningProcesses": [object(), object()],
            "nvmlDeviceGetP2PStatus": lambda *_: pynvml.NVML_P2P_STATUS_NOT_SUPPORTED,
            "nvmlDeviceGetTopologyCommonAncestor": lambda *_: pynvml.NVML_TOPOLOGY_NODE,
        }
        for name, answer in answers.items():
            monkeypatch.setattr(pynvml, name, self._speaking(name, answer))

    def _count(self, change: int) -> None:
        self.open += change

    def _speaking(self, name: str, answer: Any) -> Any:
        def speak(*arguments: Any) -> Any:
            if name in self.silent and arguments[:1] == ("card 1",):
                raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
            return answer(*arguments) if callable(answer) else answer

        return speak


def test_what_the_driver_answers_becomes_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(monkeypatch)
    with gpus.opened() as cards:
        facts = gpu_facts(cards)
    assert driver.open == 0
    expected = {
        "environment.gpu.count": 2,
        "environment.gpu.driver": "580.95.05",
        "environment.gpu.driver_cuda": "13.0",
        "environment.gpu.0.name": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        "environment.gpu.0.memory.bytes": 96 << 30,
        "environment.gpu.0.capability": "12.0",
        "environment.gpu.0.power.limit_w": 600.0,
        "environment.gpu.0.ecc": True,
        "environment.gpu.0.mig": False,
        "environment.gpu.0.clock.sm.max_mhz": 2430,
        "environment.gpu.0.link.1": "NUMA node",
        "environment.gpu.0.pcie.generation.max": 5,
        "state.gpu.1.pcie.width": 8,
        "state.gpu.1.clock_sm_mhz": 2100,
        "state.gpu.1.clock_memory_mhz": 12000,
        "state.gpu.1.power_w": 512.3,
        "state.gpu.1.temperature_c": 71,
        "state.gpu.1.throttle": "power_cap,software_thermal",
        "state.gpu.1.memory_used_bytes": 1 << 30,
        "state.gpu.1.processes": 2,
        "context.gpu.0.bus": "00000000:01:00.0",
        "context.gpu.0.uuid": "GPU-1",
    }
    assert {name: facts.get(name) for name in expected} == expected


def test_a_question_that_a_card_does_not_answer_is_absent_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = ("nvmlDeviceGetEccMode", "nvmlDeviceGetPowerUsage", "nvmlDeviceGetComputeRunningProcesses")
    Driver(monkeypatch, silent)
    with gpus.opened() as cards:
        facts = gpu_facts(cards)
    assert "environment.gpu.0.ecc" in facts
    for name in ("environment.gpu.1.ecc", "state.gpu.1.power_w", "state.gpu.1.processes"):
        assert name not in facts
    assert facts["state.gpu.1.temperature_c"] == 71


def test_nvlink_comes_before_the_bus(monkeypatch: pytest.MonkeyPatch) -> None:
    Driver(monkeypatch)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetP2PStatus", lambda *_: pynvml.NVML_P2P_STATUS_OK)
    with gpus.opened() as cards:
        assert cards.cards[0].link_to(cards.cards[1]) == "NVLink"


def test_without_a_driver_there_are_no_facts_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", missing)
    with gpus.opened() as cards:
        assert cards == gpus.Gpus()
        assert gpu_facts(cards) == {}


def test_throttle_reasons_are_names() -> None:
    assert gpus.throttle_names(0) == ""
    assert gpus.throttle_names(0x1) == "idle"
    assert gpus.throttle_names(0x8 | 0x40) == "hardware_slowdown,hardware_thermal"
