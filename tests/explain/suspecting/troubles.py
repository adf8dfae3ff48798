"""A literal case for each kind of trouble, and changes that do no harm to put it among."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from harness.records import Value
from tests.explain.suspecting.asked import COSTS, Answer, Told, ask

HARMLESS: Mapping[str, tuple[Value, Value]] = {
    "context.time": ("a", "b"),
    "context.cache.root": ("/a", "/b"),
    "workload.seed": (0, 1),
    "execution.note": ("x", "x"),
    "environment.kernel": ("6.1.0", "6.1.1"),
    "environment.package.certifi": ("2026.1", "2026.2"),
    "environment.package.rich": ("14.0", "14.1"),
    "environment.package.numpy": ("2.3.0", "2.3.1"),
    "environment.variable.HF_HOME": ("/a", "/b"),
    "state.load.1m": (0.1, 3.0),
    "state.memory.available_bytes": (90e9, 80e9),
    "state.doctor.files": (10, 11),
    "observed.gpu.clock_mhz": (2400.0, 2390.0),
    "observed.memory.run_bytes": (9e9, 9.1e9),
}
GPU = ("target", "forward", "backward", "optimizer")


def told(which: int, more: Mapping[str, tuple[Value, Value]]) -> dict[str, Value]:
    return {fact: pair[which] for fact, pair in {**HARMLESS, **more}.items() if pair[which] is not None}


@dataclass(frozen=True)
class Case:
    """What truly changed, what it made longer, and the rule that knows it."""

    rule: str
    changed: Mapping[str, tuple[Value, Value]]
    longer: Mapping[str, float] = field(default_factory=dict)
    first: Mapping[str, float] = field(default_factory=dict)
    new: Mapping[str, float] = field(default_factory=dict)
    padding: float = 0.0
    says: str = ""

    def asked(self, faster: bool = False) -> Answer:
        before, after = (
            Told(told(0, self.changed)),
            Told(told(1, self.changed), self.longer, self.first, self.new, self.padding),
        )
        return ask(after, before) if faster else ask(before, after)


CASES = {
    "cold cache": Case(
        "compile-cache",
        {
            "state.cache.start": ("warm", "cold"),
            "state.cache.entries": (285, 0),
            "state.cache.bytes": (353_000_000, 0),
            "observed.cache_start": ("warm", "cold"),
            "observed.compile_s": (3.0, 63.0),
        },
        first={"compile": 21.0},
        says="the compile cache was cold (0 entries, before: 285): the first step compiled for 1:03 instead of 3.00 s",
    ),
    "partial cache": Case(
        "compile-cache",
        {
            "state.cache.start": ("warm", "partial"),
            "state.cache.entries": (285, 62),
            "state.cache.bytes": (353_000_000, 19_000_000),
        },
        first={"compile": 10.0},
        says="the compile cache held 19.0 MB in 62 entries, before: 353 MB in 285",
    ),
    "recompiles": Case(
        "recompiles",
        {"observed.recompiles": (0, 41)},
        {"unaccounted": 5.0, "forward": 1.3},
        says="code was compiled again 41 times after the first step (before: 0)",
    ),
    "dense attention": Case(
        "dense-attention",
        {"observed.dense_fallback": (False, True), "execution.attention.used": ("flex", "dense")},
        {"forward": 7.0, "backward": 7.0},
        says="attention ran as dense math, not compiled (dense, before: flex)",
    ),
    "another attention": Case(
        "dense-attention",
        {"execution.attention": ("flex", "sdpa")},
        {"forward": 1.5, "backward": 1.5},
        says="attention is computed as sdpa, before: flex",
    ),
    "throttled by heat": Case(
        "gpu-clock",
        {
            "observed.gpu.clock_mhz": (2400.0, 1440.0),
            "observed.gpu.throttled_share": (0.0, 0.8),
            "observed.gpu.throttle_reason": (None, "its temperature"),
        },
        dict.fromkeys(GPU, 1.6),
        says="the GPU's clock fell by 40 % (from 2400 MHz to 1440 MHz) and it was throttled 80 % of the time, "
        "by its temperature",
    ),
    "power limit": Case(
        "gpu-clock",
        {
            "observed.gpu.clock_mhz": (2400.0, 1800.0),
            **{f"environment.gpu.{n}.power.limit_w": (600, 300) for n in (0, 1)},
        },
        dict.fromkeys(GPU, 1.3),
        says="its power limit is 300 W, before: 600 W",
    ),
    "one hot card that the others wait for": Case(
        "slow-card",
        {
            "observed.gpu.clock_min_mhz": (2576.0, 2247.0),
            "observed.gpu.throttled_share": (0.0, 0.9),
            "observed.gpu.throttle_reason": (None, "its temperature"),
        },
        {"communication": 3.0, "backward": 1.02},
        says="one GPU is slower than the others, which wait for it: its clock fell by 13 % (from 2576 MHz to 2247 MHz)",
    ),
    "GPU shared": Case(
        "gpu-shared",
        {"observed.gpu.others_bytes": (5e8, 12e9), "state.gpu.0.processes": (0, 1)},
        dict.fromkeys(GPU, 1.5),
        says="other processes held 12.0 GB of the GPU's memory",
    ),
    "CPU shared": Case(
        "cpu-shared",
        {"observed.cpu.others_pct": (4.0, 390.0)},
        dict.fromkeys(COSTS, 1.4),
        says="other processes took 390 % of a core, before: 4 %",
    ),
    "CPU quota": Case(
        "cpu-quota",
        {"environment.cpu.limit": (16.0, 4.0), "observed.cpu.throttled": (0.0, 0.9)},
        dict.fromkeys(COSTS, 1.5),
        says="the run may use 4 processors' worth of time, before: 16",
    ),
    "a quota where there was none": Case(
        "cpu-quota", {"environment.cpu.limit": (None, 2.0)}, dict.fromkeys(COSTS, 1.5)
    ),
    "threads": Case(
        "cpu-quota", {"environment.variable.OMP_NUM_THREADS": ("8", "1")}, {"forward": 1.8, "backward": 1.9}
    ),
    "data workers": Case(
        "data-pipeline", {"execution.data.workers": (8, 1)}, {"data": 12.0}, says="data.workers went from 8 to 1"
    ),
    "a slow disk that starves the target": Case(
        "data-pipeline",
        {"observed.disk_read_bytes_s": (0.0, 302e6)},
        {"communication": 40.0},
        new={"target.data": 20.0, "target.forward": 6.0},
        says="302 MB/s came from disk, before: 0 bytes, and communication, target.data and target.forward grew",
    ),
    "shorter texts": Case(
        "padding", {"workload.data.digest": ("a" * 64, "b" * 64), "observed.padding_share": (0.0, 0.2)}, padding=0.25
    ),
    "padding": Case(
        "padding",
        {"observed.padding_share": (0.0, 0.2)},
        padding=0.25,
        says="20 % of what was computed is padding, before: 0 %",
    ),
    "heads": Case("model-shape", {"workload.model.heads": (16, 32)}, {"forward": 1.7, "backward": 1.8}),
    "layers": Case(
        "model-shape", {"workload.model.layers": (5, 10)}, {"forward": 1.9, "backward": 1.9, "optimizer": 2.0}
    ),
    "batch": Case("batch-shape", {"workload.train.batch": (8, 2)}, dict.fromkeys([*GPU, "unaccounted"], 1.4)),
    "anchors": Case("batch-shape", {"workload.train.anchors": (256, 512)}, {"forward": 1.9, "backward": 1.9}),
    "torch": Case("torch", {"environment.package.torch": ("2.10.0", "2.11.0")}, {"forward": 1.3, "optimizer": 1.4}),
    "triton": Case("triton", {"environment.package.triton": ("3.5.0", "3.6.0")}, {"forward": 1.3, "backward": 1.4}),
    "cuDNN": Case(
        "cudnn", {"environment.package.nvidia-cudnn-cu12": ("9.10", "9.15")}, {"forward": 1.3, "backward": 1.4}
    ),
    "cuDNN's slow 3D convolutions": Case(
        "cudnn-conv3d",
        {
            "environment.package.torch": ("2.8.0", "2.9.1"),
            "environment.package.nvidia-cudnn-cu12": ("9.10.2", "9.10.2"),
        },
        {"forward": 8.0, "backward": 9.0},
        says="torch 2.9.1 with cuDNN 9.10.2 runs 3D convolutions in bfloat16 10 to 20 times slower",
    ),
    "NCCL": Case("nccl", {"environment.package.nvidia-nccl-cu12": ("2.27.5", "2.28.9")}, {"communication": 6.0}),
    "NCCL's variable": Case(
        "nccl", {"environment.variable.NCCL_P2P_DISABLE": (None, "1")}, {"communication": 6.0, "wait": 2.0}
    ),
    "driver": Case("driver", {"environment.gpu.driver": ("575.51", "580.65")}, dict.fromkeys(GPU, 1.2)),
    "devices": Case(
        "topology", {"execution.devices": ("drafter:cuda:5-7", "drafter:cuda:6-7")}, {"communication": 3.0, "wait": 8.0}
    ),
    "the same devices by threads": Case(
        "topology-kind",
        {
            "execution.topology.kind": ("inline", "threads"),
            "execution.topology.guarded": (None, True),
            "execution.device.used": ("cpu", "cpu:0,cpu:1,cpu:2"),
        },
        dict.fromkeys(COSTS, 1.4),
        says="topology.kind went from inline to threads",
    ),
    "fewer drafters": Case(
        "fewer-devices",
        {"execution.devices": ("drafter:cuda:5-7", "drafter:cuda:6-7"), "observed.devices": (3, 2)},
        dict.fromkeys(COSTS, 1.5),
        says="2 devices share the work, before: 3",
    ),
    "a narrow link": Case(
        "gpu-link", {"state.gpu.6.pcie.width": (16, 4)}, {"communication": 5.0}, says="4 lanes wide, before: 16"
    ),
    "evaluation": Case(
        "evaluation",
        {"observed.evals_per_1000_steps": (1.0, 20.0), "observed.eval_s": (9.0, 9.0)},
        {"unaccounted": 9.0},
    ),
    "checkpoints": Case("checkpoints", {"execution.checkpoint_every": (1000, 20)}, {"unaccounted": 9.0}),
    "logging": Case("logging", {"execution.log_every": (100, 1)}, {"unaccounted": 5.0}),
    "swap": Case(
        "memory",
        {"observed.memory.swap_bytes": (0.0, 9e9)},
        dict.fromkeys(COSTS, 2.0),
        says="9.0 GB of swap were in use, before: 0 bytes",
    ),
    "allocator": Case(
        "memory", {"observed.alloc_retries": (0, 120)}, dict.fromkeys(GPU, 1.4), says="ask again 120 times, before: 0"
    ),
    "code": Case(
        "code",
        {
            "code.patch.sha256": ("e3" * 32, "f4" * 32),
            "observed.patch.files": (None, "train.py"),
            "code.commit": ("a", "a"),
        },
        {"optimizer": 4.0},
        says="the code changed without a commit: its patch touches train.py",
    ),
    "data set": Case("data-set", {"workload.data.digest": ("a" * 64, "b" * 64)}, {"data": 9.0}),
    "precision": Case("precision", {"workload.precision": ("bf16", "fp32")}, dict.fromkeys(GPU, 2.0)),
    "uncompiled": Case(
        "compile-setting", {"execution.compile": ("inductor", "none")}, {"forward": 2.0, "backward": 2.0}
    ),
    "toy's switch": Case(
        "switch",
        {"execution.slow.forward": (0.0, 0.005)},
        {"forward": 1.5},
        says="slow.forward went from 0 to 0.005, which slows forward",
    ),
    "launch blocking": Case(
        "launch-blocking", {"environment.variable.CUDA_LAUNCH_BLOCKING": (None, "1")}, dict.fromkeys(GPU, 1.4)
    ),
}
