"""What a run would take of each device's memory: ``python -m experiments.dflash.plan [SPEC.json]`` prints it as JSON.

``memory`` counts the parts; this adds up which of them each device has.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from experiments.dflash.config import DFlashConfig
from experiments.dflash.memory import (
    Shapes,
    borrowed_bytes,
    dense_scores,
    drafter_memory,
    evaluated_bytes,
    shapes,
    target_memory,
)
from harness.config import unflatten
from harness.errors import HarnessError
from harness.records import RunSpec
from harness.run.events import Recorder

CAPACITY = {"RTX PRO 6000": 96 * 2**30}
"""Bytes of the GPUs that recipes ask for; about 1 % less is free on a card with ECC."""


@dataclass(frozen=True)
class DeviceMemory:
    """One device's part, in bytes. ``capacity_bytes`` None: not known here."""

    device: str
    role: str
    parameters: int = 0  # those that are trained or run there
    weights_bytes: int = 0
    gradients_bytes: int = 0
    optimizer_bytes: int = 0
    activations_bytes: int = 0
    features_bytes: int = 0
    logits_bytes: int = 0
    capacity_bytes: int | None = None
    note: str = ""

    @property
    def total_bytes(self) -> int:
        return sum(value for name, value in vars(self).items() if name.endswith("_bytes") and name != "capacity_bytes")

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "total_bytes": self.total_bytes}


# --- the devices -----------------------------------------------------------------------------------------


def devices(s: Shapes, spec: RunSpec) -> list[DeviceMemory]:
    """One entry for each of the spec's devices, ``role:device``; a device with both roles holds both parts.

    Of several machines, this is the first: the others have no drafter to evaluate.
    """
    found: list[DeviceMemory] = []
    for entry in spec.devices or ("target+drafter:cpu",):
        role, _, device = entry.partition(":")
        targets = sum("target" in before.role for before in found)
        parts, note = _parts(s, role, targets)
        found.append(
            DeviceMemory(device, role, capacity_bytes=capacity(device, spec.needs_gpu_name), note=note, **parts)
        )
    return found


def _parts(s: Shapes, role: str, index: int) -> tuple[dict[str, int], str]:
    """What a device with ``role`` holds, and a word on it; ``index`` is its number among the targets."""
    if role == "drafter":
        parts = drafter_memory(s)
        parts["weights_bytes"] += borrowed_bytes(s)
        return parts, "with the target's embedding and head"
    parts = target_memory(s)
    if role == "target+drafter":
        return {**parts, **{key: parts.get(key, 0) + value for key, value in drafter_memory(s).items()}}, "takes turns"
    if index == 0:
        parts["weights_bytes"] += evaluated_bytes(s)
        return parts, "a whole replica, and the drafter's weights: it evaluates"
    return parts, "a whole replica, in the type it runs in"


def capacity(device: str, gpu_name: str) -> int | None:
    """Bytes of the CPU's machine, of the GPU that is here, or of the kind of GPU that the recipe asks for."""
    kind, _, number = device.partition(":")
    if kind == "cpu":
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if torch.cuda.is_available() and int(number or 0) < torch.cuda.device_count():
        return int(torch.cuda.get_device_properties(int(number or 0)).total_memory)
    return CAPACITY.get(gpu_name)


def notes(s: Shapes, planned: list[DeviceMemory]) -> list[str]:
    """What a person should know beside the table."""
    on_gpu = any(not d.device.startswith("cpu") for d in planned)
    dense, topology = dense_scores(s), s.config.topology
    attention = s.config.attention if s.config.attention != "auto" else ("flex" if on_gpu else "sdpa")
    said = [
        f"target {s.config.target.kind}: {s.target_parameters / 1e9:.3f} B parameters, "
        f"{s.target_parameters * s.width / 1e9:.2f} GB as {s.config.precision}; "
        f"drafter: {s.drafter_parameters / 1e6:.1f} M, trained in fp32",
        f"a drafter's share of a step: {s.rows} rows of {s.config.data.length} tokens and {s.queries} block positions",
    ]
    if topology.kind != "inline":
        said.append(f"at most {_counted(topology.queue, 'share')} wait for each drafter, on its own device")
    if len(planned) > 1 and not on_gpu:
        said.append("simulated devices share the memory of this machine")
    if topology.nodes > 1:
        said.append(f"these are the devices of one machine: each of the {topology.nodes} has them")
    if attention == "flex":
        said.append(f"flex_attention makes no dense scores; dense math would take {dense / 1e9:.1f} GB a layer")
    elif on_gpu or dense > 2**30:
        said.append(f"WARNING: dense attention takes up to {dense / 1e9:.1f} GB a layer; use attention=flex")
    return said + [_too_full(name, [d for d in planned if d.device == name]) for name in crowded(planned)]


def crowded(planned: list[DeviceMemory]) -> list[str]:
    """The devices on which all that they hold, in one role or two, does not fit."""
    needed: Counter[str] = Counter()
    for d in planned:
        needed[d.device] += d.total_bytes
    room = {d.device: d.capacity_bytes for d in planned if d.capacity_bytes is not None}
    return [name for name, needs in needed.items() if name in room and needs > room[name]]


def _too_full(name: str, held: list[DeviceMemory]) -> str:
    needs, has = sum(d.total_bytes for d in held), held[0].capacity_bytes or 0
    return (
        f"WARNING: {name} needs {needs / 1e9:.1f} GB of its {has / 1e9:.1f}: "
        "lower train.batch, data.length or train.anchors"
    )


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def plan(config: DFlashConfig, spec: RunSpec) -> dict[str, Any]:
    """``{"devices": [...], "notes": [...]}``, bytes throughout."""
    s = shapes(config)
    planned = devices(s, spec)
    return {"devices": [d.to_json() for d in planned], "notes": notes(s, planned)}


def main(arguments: list[str]) -> int:
    """The spec is the argument's, the run's that started this process, or the recipe tiny's."""
    folder = Recorder.from_environment().folder
    path = Path(arguments[0]) if arguments else folder / "spec.json" if folder else None
    try:
        data = json.loads(path.read_text("utf-8")) if path else None
        spec = RunSpec.from_json(data) if data else RunSpec("tiny", "cpu", ())
        config = unflatten(DFlashConfig, spec.config) if data else DFlashConfig()
        print(json.dumps(plan(config, spec), indent=1))
    except (HarnessError, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
