"""The devices that a config names, as torch knows them; refused by name where they are not there."""

from __future__ import annotations

import torch

from experiments.dflash.layout import TopologyConfig
from harness.errors import UsageError


def inline_device(wanted: str) -> torch.device:
    """The device that ``wanted`` names. Raises UsageError where it is not there."""
    if wanted == "auto":
        return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    try:
        device = torch.device(wanted)
    except RuntimeError:
        raise UsageError(f"device={wanted} is no device: write auto, cpu or cuda:0") from None
    _check(device, f"device={wanted}", "use device=cpu")
    return device


def check_named(topology: TopologyConfig) -> None:
    """Raises UsageError where a device that ``topology`` names is not on this machine."""
    for name, devices in (("targets", topology.target_devices), ("drafters", topology.drafter_devices)):
        for device in devices:
            _check(torch.device(device), f"topology.{name}: {device}", f"name others, or simulate them as {_SIMULATED}")


_SIMULATED = "cpu:0,cpu:1"


def _check(device: torch.device, named: str, instead: str) -> None:
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UsageError(f"{named} is not here: torch sees {torch.cuda.device_count()} GPUs; {instead}")
