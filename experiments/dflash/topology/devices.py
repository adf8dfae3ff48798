"""The devices that a config names, as torch knows them; refused by name where they are not there."""

from __future__ import annotations

import os

import torch

from experiments.dflash.layout import TopologyConfig
from harness.errors import UsageError
from harness.run.events import Recorder


def inline_device(wanted: str) -> torch.device:
    """The device that ``wanted``, a config's ``device``, names. Raises UsageError where it is not there."""
    if wanted == "auto":
        return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    device = torch.device(wanted)
    _check(device, f"device={wanted}", "use device=cpu")
    return device


def check_named(topology: TopologyConfig) -> None:
    """Raises UsageError where a device that ``topology`` names is not on this machine."""
    for name, devices in (("targets", topology.target_devices), ("drafters", topology.drafter_devices)):
        for device in devices:
            _check(torch.device(device), f"topology.{name}: {device}", f"name others, or simulate them as {_SIMULATED}")


def worker_device(name: str) -> torch.device:
    """The device of a worker's seat. Those that are simulated, as cpu:3 is, are all torch's one CPU."""
    device = torch.device(name)
    return torch.device("cpu") if device.type == "cpu" else device


def note_simulated(topology: TopologyConfig, recorder: Recorder) -> None:
    """Say where more devices are simulated than this machine has cores: they take turns, and times mislead."""
    names = topology.target_devices + topology.drafter_devices
    cores = len(os.sched_getaffinity(0))
    if names[0].startswith("cpu") and len(names) > cores:
        recorder.note(
            f"{len(names)} devices are simulated on {cores} cores and take turns on them: "
            "what each computes is right, how long it takes or waits says nothing of real devices"
        )


_SIMULATED = "cpu:0,cpu:1"


def _check(device: torch.device, named: str, instead: str) -> None:
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UsageError(f"{named} is not here: torch sees {torch.cuda.device_count()} GPUs; {instead}")
