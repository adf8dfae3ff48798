"""What the pairs stand on: runs of ``toy`` and ``tiny`` as they were recorded, and a synthetic one on the 8-GPU box.

Facts, phases and cache sizes of toy and tiny are those of recorded runs (``recorded.json``). Nobody here has the box:
its facts are named as ``harness/pin`` names them, its packages are those of the lock cu130, and its times are made up
around the published 21.5 Ktok/s.
"""

from __future__ import annotations

import dataclasses
import json
import math
import random
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.pairs.plan import Compiling, Gauge, Noise, Plan, RolePlan
from experiments.recipes import RECIPES
from experiments.toy import SHARES
from harness.pin.locks import read_lock
from harness.records import CacheState, Value, digest

ROOT = Path(__file__).resolve().parents[2]
TARGETS = tuple(f"cuda:{i}" for i in range(5))
DRAFTERS = tuple(f"cuda:{i}" for i in range(5, 8))
CARDS = 8
NOTHING = CacheState(0, 0)
SPREAD_MOST = 0.012


@cache
def recorded() -> dict[str, Any]:
    """``{"toy": {"facts", "told", "cache"}, "tiny": ...}``"""
    data: dict[str, Any] = json.loads(Path(__file__).with_name("recorded.json").read_text("utf-8"))
    return data


def base(name: str, dice: random.Random) -> Plan:
    """A good run of ``toy``, ``tiny`` or the ``box``, of a size that ``dice`` choose."""
    return {"toy": toy, "tiny": tiny, "box": box}[name](dice)


def toy(dice: random.Random) -> Plan:
    steps, tokens = _steps(dice, 200, 2000), dice.choice((500, 1000, 2000))
    seconds = dice.choice((0.005, 0.01, 0.02))
    plan = _recorded("toy", dice, {"steps": steps, "tokens": tokens, "seconds": seconds})
    plan.roles = {
        "trainer": RolePlan(("cpu",), {n: seconds * share for n, share in SHARES.items()} | {"other": 1.5e-4})
    }
    plan.steps, plan.tokens = steps, float(tokens)
    plan.noise = Noise(dice.uniform(0.002, 0.008), 0.02, dice.uniform(0.1, 0.5), 0.004)
    plan.start_s = 0.3
    return plan


def tiny(dice: random.Random) -> Plan:
    steps, batch = _steps(dice, 200, 2000), dice.choice((2, 4, 8))
    settings = {"train.steps": steps, "train.batch": batch, "threads": 2, **TRAINER_SETTINGS}
    plan = _recorded("tiny", dice, settings)
    plan.kinds |= dict.fromkeys(TRAINER_SETTINGS, "execution")
    scale = 0.3 + 0.7 * batch / 4
    phases = {"data": 0.00085, "target": 0.0278, "forward": 0.0182, "backward": 0.0286}
    plan.roles = {
        "drafter": RolePlan(
            ("cpu",), {n: s * scale for n, s in phases.items()} | {"optimizer": 0.0016, "other": 0.00033}
        )
    }
    plan.steps, plan.tokens = steps, 128.0 * batch
    plan.noise = Noise(dice.uniform(0.004, SPREAD_MOST), dice.uniform(0.03, 0.06), dice.uniform(0.3, 0.7), 0.02)
    plan.start_s = dice.uniform(18, 30)
    plan.evals_before = (("repeat_anchor", 2.1), ("ngram", 0.6), ("before", 2.5))
    plan.compiles = [Compiling(1, "graph 0/0 forward", 6.24, hits=2)]
    plan.told |= {"workload.data.sequences": 768}
    return plan


def _recorded(name: str, dice: random.Random, changes: dict[str, Value]) -> Plan:
    found, spec = recorded()[name], RECIPES[name]()
    cores = found["facts"]["environment.cpu.count"]
    total = found["facts"]["environment.memory.bytes"]
    run = 4.4e8 if name == "tiny" else 9e6
    plan = Plan(
        base=name,
        spec=spec,
        config={**spec.config, **changes},
        kinds=dict(spec.kinds),
        facts={**found["facts"], **_commit(dice)},
        told=dict(found["told"]),
        roles={},
        steps=0,
        tokens=0.0,
        padding=0.0,
        noise=Noise(0, 0, 0, 0),
        start_s=0.0,
        gauges=_machine(cores, float(total), 1.08 if name == "tiny" else 0.12, 0.1, run),
        cache_before=CacheState(**found["cache"]),
        cache_after=CacheState(**found["cache"]),
    )
    plan.gauges["threads"] = Gauge(4, 4) if name == "tiny" else Gauge(1, 1)
    return plan


# --- the box ---------------------------------------------------------------------------------------------


def box(dice: random.Random) -> Plan:
    """Five GPUs run the frozen target and feed three that train the drafter, as in the seeds' 21.5 Ktok/s."""
    spec = RECIPES["qwen3_6_27b_8gpu"]()
    steps, batch = _steps(dice, 200, 450), 2
    grid = batch * 3072
    padding = grid * dice.uniform(0.04, 0.12)
    drafter = {
        "data": 0.006,
        "forward": 0.23,
        "backward": 0.41,
        "optimizer": 0.03,
        "communication": 0.03,
        "other": 0.01,
    }
    target = {"data": 0.05, "forward": 1.9, "communication": 0.11, "other": 0.01}
    slack = dice.choice((0.8, 1.04))  # the drafter holds it up, or the target does
    scale = slack * sum(drafter.values()) * 5 / 3 / sum(target.values())
    plan = Plan(
        base="box",
        spec=spec,
        config={**spec.config, "train.steps": steps, "train.batch": batch, **BOX_SETTINGS},
        kinds={**spec.kinds, **dict.fromkeys(BOX_SETTINGS, "execution")},
        facts={**_box_facts(), **_commit(dice)},
        told=dict(_box()["told"]),
        roles={
            "drafter": RolePlan(DRAFTERS, drafter),
            "target": RolePlan(TARGETS, {n: s * scale for n, s in target.items()}),
        },
        steps=steps,
        tokens=grid - padding,
        padding=padding,
        noise=Noise(dice.uniform(0.003, 0.01), dice.uniform(0.015, 0.03), dice.uniform(0.3, 0.8), 0.004, 0.003),
        start_s=dice.uniform(70, 110),
        gauges=_machine(64, 515e9, 9.5, 1.2, 7.1e10) | _cards(),
        cache_before=CacheState(353_000_000, 285, {"inductor": {"bytes": 353_000_000, "entries": 285}}),
        cache_after=CacheState(353_000_000, 285, {"inductor": {"bytes": 353_000_000, "entries": 285}}),
        compiles=[Compiling(1, "graph 0/0 forward", 7.5, hits=3), Compiling(1, "graph 0/0 backward", 4.1, hits=3)],
    )
    plan.gauges["threads"] = Gauge(96, 96)
    plan.metrics["alloc_retries"] = Gauge(0, 0)
    return plan


# Settings that this version's recipes do not have yet, all of them of how, not of what.
TRAINER_SETTINGS: dict[str, Value] = {
    "data.bucket": 64,
    "train.eval_every": 5000,
    "train.checkpoint_every": 5000,
    "train.log_every": 100,
}

BOX_SETTINGS: dict[str, Value] = {
    **TRAINER_SETTINGS,
    "topology": "threads",
    "data.workers": 8,
    "data.prefetch": 4,
    "data.packing": True,
}


@cache
def _box() -> dict[str, dict[str, Value]]:
    """``{"facts", "card", "told", "loaded"}``: made up, under the names that ``harness/pin`` gives."""
    data: dict[str, dict[str, Value]] = json.loads(Path(__file__).with_name("box.json").read_text("utf-8"))
    return data


@cache
def _box_lock() -> tuple[str, dict[str, Value]]:
    lock = read_lock(ROOT / "envs" / "cu130.txt", "cu130", ("3.11",))
    return lock.digest, {f"environment.package.{pin.name}": pin.version for pin in lock.pins}


def _box_facts() -> dict[str, Value]:
    lock, packages = _box_lock()
    facts: dict[str, Value] = {**packages, "environment.lock": lock, "environment.gpu.count": CARDS}
    for card in range(CARDS):
        facts |= {f"environment.gpu.{card}.{name}": value for name, value in _box()["card"].items()}
        facts[f"context.gpu.{card}.uuid"] = f"GPU-{digest(['card', card])[:8]}-0000-0000-0000-{digest(card)[:12]}"
        facts[f"context.gpu.{card}.bus"] = f"00000000:{card + 1:02X}:00.0"
        for other in range(card + 1, CARDS):
            same = card // 4 == other // 4
            facts[f"environment.gpu.{card}.link.{other}"] = "NUMA node" if same else "between sockets"
    for library, owner in _box()["loaded"].items():
        facts[f"state.loaded.{library}"] = (
            f"{owner} {packages[f'environment.package.{owner}']} sha256:{digest(owner)[:12]}"
        )
    return {**_box()["facts"], **facts}


# --- parts -----------------------------------------------------------------------------------------------


def _steps(dice: random.Random, least: int, most: int) -> int:
    """Small ones as likely as large ones."""
    return round(math.exp(dice.uniform(math.log(least), math.log(most))))


def _commit(dice: random.Random) -> dict[str, Value]:
    return {
        "code.commit": digest(["commit", dice.random()])[:40],
        "code.dirty": False,
        "code.patch.left_out": "",
    }


def _machine(cores: float, total: float, run: float, others: float, memory: float) -> dict[str, Gauge]:
    """Levels of the machine: cores, bytes, bytes a second."""
    levels = {
        "cores": cores,
        "run_cores": run,
        "other_cores": others,
        "memory_total": total,
        "memory_run": memory,
        "memory_other": 0.03 * total,
        "swap": 0.0,
        "disk_read": 0.0,
        "disk_write": 9e4,
    }
    return {name: Gauge(value, value) for name, value in levels.items()}


def _cards() -> dict[str, Gauge]:
    found: dict[str, Gauge] = {}
    for card in range(CARDS):
        drafter = card >= 5
        levels = {
            "clock": 2617.0 if drafter else 2580.0,
            "power": 455.0 if drafter else 520.0,
            "temperature": 66.0 + card % 4,
            "memory": 8.1e10 if drafter else 6.9e10,
            "other_memory": 0.0,
            "other_processes": 0.0,
            "use": 93.0 if drafter else 95.0,
            "width": 16.0,
        }
        found |= {f"gpu.{card}.{name}": Gauge(value, value) for name, value in levels.items()}
    return found


def with_spec(plan: Plan) -> Plan:
    """The plan with its settings in its spec."""
    plan.spec = dataclasses.replace(plan.spec, config=dict(plan.config), kinds=dict(plan.kinds))
    return plan
