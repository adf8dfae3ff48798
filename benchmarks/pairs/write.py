"""A run folder from a plan, file by file as the harness writes them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from benchmarks.pairs import gauges
from benchmarks.pairs.bases import with_spec
from benchmarks.pairs.plan import Plan
from benchmarks.pairs.series import Timeline, draw
from harness.pin.fingerprint import spec_facts
from harness.records import SCHEMA, Fingerprint, Result, Summary, Value, digest, event_to_json
from harness.run.columns import write_columns
from harness.run.summary import summarise


def write_run(plan: Plan, runs: Path, started_at: float, dice: np.random.Generator, columns: bool) -> Path:
    """Draw one run of ``plan`` into a new folder under ``runs``. ``columns``: with its ``steps.parquet``."""
    plan = with_spec(plan)
    timeline = draw(plan, dice)
    moment = time.strftime("%Y%m%d-%H%M%S", time.gmtime(started_at))
    folder = runs / f"{moment}-{plan.spec.recipe}-{int(dice.integers(0x10000)):04x}"
    (folder / "artifacts").mkdir(parents=True)
    (folder / "events.jsonl").write_bytes(b"".join(orjson.dumps(event_to_json(e)) + b"\n" for e in timeline.events))
    _lines(folder / "telemetry.jsonl", list(gauges.lines(plan, timeline, dice)))
    summary = summarise(timeline.events, plan.cache_before)
    facts = {**_facts(plan, started_at, dice), "state.cache.start": summary.cache_start}
    caches = {name: dataclasses.asdict(getattr(plan, f"cache_{name}")) for name in ("before", "after")}
    _json(folder / "spec.json", plan.spec.to_json())
    _json(folder / "fingerprint.json", Fingerprint(facts).to_json())
    _json(folder / "caches.json", {"root": str(plan.facts["context.cache.root"]), **caches})
    _json(folder / "result.json", _result(timeline, started_at, summary).to_json())
    (folder / "code.patch").write_text(plan.patch, "utf-8")
    _lines(folder / "stderr.log", plan.stderr)
    for empty in ("stdout.log", "lock"):
        (folder / empty).touch()
    if columns:
        write_columns(folder)
    return folder


def _facts(plan: Plan, started_at: float, dice: np.random.Generator) -> dict[str, Value]:
    """The fingerprint: the plan's facts, and the state in which the machine was just before the run."""
    total, others = plan.gauges["memory_total"].value, plan.gauges["other_cores"].value
    load = [round(others * float(np.exp(dice.normal(0, 0.3))), 3) for _ in range(3)]
    patch = plan.patch.encode()
    # A lock's digest is that of its pins: where none changed, it is the recorded one.
    packages = {k: v for k, v in plan.facts.items() if k.startswith("environment.package.")}
    return {
        **spec_facts(plan.spec),
        **plan.facts,
        **plan.told,
        **_cards(plan, dice),
        "environment.lock": digest(packages),
        "code.dirty": bool(patch) or bool(plan.facts["code.dirty"]),
        "code.patch.sha256": hashlib.sha256(patch).hexdigest(),
        "context.time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started_at)),
        "state.cache.bytes": plan.cache_before.bytes,
        "state.cache.entries": plan.cache_before.entries,
        "state.cache.shared": False,
        "state.load.1m": load[0],
        "state.load.5m": load[1],
        "state.load.15m": load[2],
        "state.memory.available_bytes": int((total - plan.gauges["memory_other"].value) * (1 - dice.random() / 100)),
        "state.swap.used_bytes": int(plan.gauges["swap"].value),
    }


def _cards(plan: Plan, dice: np.random.Generator) -> dict[str, Value]:
    """The state of each card before the run: idle, but for what others do on it."""
    facts: dict[str, Value] = {}
    for card in range(int(plan.facts.get("environment.gpu.count") or 0)):
        others = plan.gauges[f"gpu.{card}.other_memory"].value
        busy = plan.gauges[f"gpu.{card}.other_processes"].value
        state: dict[str, Value] = {
            "use_pct": 97 if busy else 0,
            "memory_use_pct": 41 if busy else 0,
            "memory_used_bytes": int(5.2e8 + others),
            "clock_sm_mhz": 2617 if busy else int(gauges.IDLE_CLOCK),
            "clock_memory_mhz": 14001 if busy else 405,
            "power_w": round((410.0 if busy else gauges.IDLE_POWER) + float(dice.normal(0, 0.6)), 3),
            "temperature_c": round((64 if busy else gauges.IDLE_TEMPERATURE) + float(dice.normal(0, 1.0))),
            "throttle": "" if busy else "idle",
            "pcie.generation": 5 if busy else 1,
            "pcie.width": int(plan.gauges[f"gpu.{card}.width"].value),
            "processes": int(busy),
        }
        facts |= {f"state.gpu.{card}.{name}": value for name, value in state.items()}
    return facts


def _result(timeline: Timeline, started_at: float, summary: Summary) -> Result:
    return Result("finished", 0, None, "", started_at, started_at + timeline.events[-1].t + 1.5, summary)


def _json(path: Path, data: Mapping[str, Any]) -> None:
    path.write_text(json.dumps({"schema": SCHEMA, **data}, indent=1, ensure_ascii=False) + "\n", "utf-8")


def _lines(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
