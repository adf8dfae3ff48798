"""What a run would take of each device's memory: ``python -m experiments.dflash.plan [SPEC.json]`` prints it as JSON.

Parameters are counted on the meta device. The rest is arithmetic over shapes, written out below, for the moment of a
step when each part is largest; an allocator's fragmentation and CUDA's own context (about 1 GB) come on top.

Shapes: B rows a step, S tokens a row, N block slots, K block positions, Q = N * K, T = S + Q, H hidden, I FFN,
V vocabulary, F features.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from experiments.dflash.architectures import on_meta
from experiments.dflash.config import DFlashConfig
from experiments.dflash.model import DFlashDrafter, DrafterShape, drafter_shape
from harness.config import unflatten
from harness.errors import HarnessError
from harness.records import RunSpec
from harness.run.events import Recorder

CAPACITY = {"RTX PRO 6000": 96 * 2**30}
"""Bytes of the GPUs that recipes ask for; about 1 % less is free on a card with ECC."""

BATCHES_AT_ONCE = 2
"""Batches of features on a drafter's device: the one in use, and the one that arrives."""


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


@dataclass(frozen=True)
class Shapes:
    """The sizes that decide everything."""

    config: DFlashConfig
    drafter: DrafterShape
    drafter_parameters: int
    target_parameters: int
    target_layers: int
    target_ffn: int
    vocab: int

    @property
    def width(self) -> int:
        """Bytes of an activation, and of a frozen weight."""
        return 2 if self.config.precision == "bf16" else 4

    @property
    def tokens(self) -> int:
        """B * S."""
        return self.config.train.batch * self.config.data.length

    @property
    def queries(self) -> int:
        """Q: block positions a row."""
        return self.config.train.anchors * self.config.model.block_size


def shapes(config: DFlashConfig) -> Shapes:
    """Counted on the meta device: nothing is allocated."""
    target: PreTrainedModel = on_meta(config.target)
    shape = drafter_shape(config, target.config)
    with torch.device("meta"):
        drafter = DFlashDrafter(shape)
    return Shapes(
        config=config,
        drafter=shape,
        drafter_parameters=sum(p.numel() for p in drafter.parameters()),
        target_parameters=sum(p.numel() for p in target.parameters()),
        target_layers=target.config.num_hidden_layers,
        target_ffn=target.config.intermediate_size,
        vocab=target.config.vocab_size,
    )


# --- the parts -------------------------------------------------------------------------------------------


def target_memory(s: Shapes) -> dict[str, int]:
    """A frozen target and one pass of B rows: every layer's hidden states, as transformers hands them out, then the FFN
    (gate, up, product) of the layer at work, and logits for every token."""
    hidden = s.drafter.hidden
    return {
        "parameters": s.target_parameters,
        "weights_bytes": s.target_parameters * s.width,
        "activations_bytes": s.tokens * s.width * ((s.target_layers + 1) * hidden + 3 * s.target_ffn),
        "features_bytes": s.tokens * s.drafter.features * s.width,
        "logits_bytes": s.tokens * s.vocab * s.width,
    }


def drafter_memory(s: Shapes) -> dict[str, int]:
    """A drafter in training: fp32 weights and autocast copies, gradients, two moments, what a step keeps."""
    return {
        "parameters": s.drafter_parameters,
        "weights_bytes": (4 if s.config.precision == "fp32" else 6) * s.drafter_parameters,
        "gradients_bytes": 4 * s.drafter_parameters,
        "optimizer_bytes": 8 * s.drafter_parameters,
        "activations_bytes": drafter_activations(s),
        "features_bytes": BATCHES_AT_ONCE * s.tokens * s.drafter.features * s.width,
        "logits_bytes": logits_chunk(s),
    }


def borrowed_bytes(s: Shapes) -> int:
    """The target's embedding and head, which a drafter on a device of its own needs beside it."""
    return 2 * s.vocab * s.drafter.hidden * s.width


def drafter_activations(s: Shapes) -> int:
    """What autograd keeps of a drafter's forward pass: what its linear, norm, product and attention operations read.

    A layer, a row: block side 2 norm inputs, 2 norm outputs and the residual (5 Q H); keys and values from T H; queries
    before and after their norm and rotation, and the output (4 Q q, q = heads x size); keys and values likewise
    (4 T k); gate, its activation, up, their product (4 Q I).
    """
    d = s.drafter
    q, k = d.heads * d.head_dim, d.kv_heads * d.head_dim
    keys = s.config.data.length + s.queries
    layer = s.queries * (5 * d.hidden + 4 * q + 4 * d.ffn) + keys * (d.hidden + 4 * k)
    outside = 2 * s.config.data.length * d.hidden + 2 * s.queries * d.hidden
    return s.config.train.batch * (d.layers * layer + outside) * s.width


def logits_chunk(s: Shapes) -> int:
    """One chunk of blocks in its backward pass: logits as they come, in fp32, their softmax, and the gradients."""
    copies = 4 + 4 + 4 if s.config.precision == "fp32" else 2 + 4 + 4 + 4 + 2
    return s.config.train.chunk_blocks * (s.config.model.block_size - 1) * s.vocab * copies


def dense_scores(s: Shapes) -> int:
    """What one layer's attention scores would take as a dense fp32 matrix: B x heads x Q x T."""
    keys = s.config.data.length + s.queries
    return 4 * s.config.train.batch * s.drafter.heads * s.queries * keys


# --- the devices -----------------------------------------------------------------------------------------


def devices(s: Shapes, spec: RunSpec) -> list[DeviceMemory]:
    """One entry for each of the spec's devices, ``role:device``; a device with both roles holds both parts."""
    found = []
    for entry in spec.devices or ("target+drafter:cpu",):
        role, _, device = entry.partition(":")
        parts: dict[str, int] = {}
        for name in role.split("+"):
            for key, value in (target_memory(s) if name == "target" else drafter_memory(s)).items():
                parts[key] = parts.get(key, 0) + value
        if role == "drafter":
            parts["weights_bytes"] += borrowed_bytes(s)
        found.append(
            DeviceMemory(device, role, capacity_bytes=capacity(device, spec.needs_gpu_name), note=_NOTES[role], **parts)
        )
    return found


_NOTES = {
    "target": "a whole replica, in the type it runs in",
    "drafter": "with the target's embedding and head",
    "target+drafter": "takes turns on one device",
}


def capacity(device: str, gpu_name: str) -> int | None:
    """Bytes of the CPU's machine, of the GPU that is here, or of the kind of GPU that the recipe asks for."""
    if device == "cpu":
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if torch.cuda.is_available() and torch.device(device).index < torch.cuda.device_count():
        return int(torch.cuda.get_device_properties(device).total_memory)
    return CAPACITY.get(gpu_name)


def notes(s: Shapes, planned: list[DeviceMemory]) -> list[str]:
    """What a person should know beside the table."""
    on_gpu = any(d.device != "cpu" for d in planned)
    dense = dense_scores(s)
    attention = s.config.attention if s.config.attention != "auto" else ("flex" if on_gpu else "sdpa")
    said = [
        f"target {s.config.target.kind}: {s.target_parameters / 1e9:.3f} B parameters, "
        f"{s.target_parameters * s.width / 1e9:.2f} GB as {s.config.precision}; "
        f"drafter: {s.drafter_parameters / 1e6:.1f} M, trained in fp32",
        f"a step is {s.config.train.batch} x {s.config.data.length} tokens and {s.queries} block positions a row, "
        "on each drafter's device",
    ]
    if attention == "flex":
        said.append(f"flex_attention makes no dense scores; dense math would take {dense / 1e9:.1f} GB a layer")
    elif on_gpu or dense > 2**30:
        said.append(f"WARNING: dense attention takes up to {dense / 1e9:.1f} GB a layer; use attention=flex")
    for d in planned:
        if d.capacity_bytes is not None and d.total_bytes > d.capacity_bytes:
            said.append(
                f"WARNING: {d.device} needs {d.total_bytes / 1e9:.1f} GB of its {d.capacity_bytes / 1e9:.1f}: "
                "lower train.batch, data.length or train.anchors"
            )
    return said


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
