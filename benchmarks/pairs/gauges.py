"""The telemetry of a run, a line every two seconds, as ``harness/run/telemetry.py`` writes it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.pairs.plan import Gauge, Plan
from benchmarks.pairs.series import Timeline
from harness.records import SCHEMA
from harness.run.telemetry import INTERVAL_S

IDLE_CLOCK, IDLE_POWER, IDLE_TEMPERATURE = 180.0, 32.0, 34.0


def lines(plan: Plan, timeline: Timeline, dice: np.random.Generator) -> Iterator[str]:
    """One JSON object a sample. Before the first step the cards idle and the run reads its libraries."""
    end = timeline.events[-1].t
    for number in range(int(end / INTERVAL_S) + 1):
        t = number * INTERVAL_S + 0.02
        trains = timeline.steps_from <= t <= timeline.steps_to
        share = (t - timeline.steps_from) / max(timeline.steps_to - timeline.steps_from, 1e-9)
        sample = _Sample(plan, dice, number, trains, share)
        yield json.dumps(
            {"schema": SCHEMA, "t": round(t, 3), **sample.machine(), **sample.cards()}, separators=(",", ":")
        )


class _Sample:
    def __init__(self, plan: Plan, dice: np.random.Generator, number: int, trains: bool, share: float) -> None:
        self._plan, self._dice, self._number = plan, dice, number
        self._trains, self._share = trains, share

    def _level(self, gauge: Gauge) -> float:
        return gauge.late if self._share >= gauge.since else gauge.value

    def _of(self, name: str, spread: float = 0.0) -> float:
        level = self._level(self._plan.gauges[name])
        return level * float(np.exp(self._dice.normal(0, spread))) if spread else level

    def machine(self) -> dict[str, Any]:
        """The processors, the memory, the disk, and what the run takes of them."""
        cores, total = self._of("cores"), self._of("memory_total")
        others = self._of("other_cores", 0.15)
        mine = self._of("run_cores", 0.03) if self._trains else min(1.0, 0.9 * cores)
        mine = 0.0 if self._number == 0 else mine
        used = self._of("memory_other", 0.01) + (self._of("memory_run", 0.002) if self._trains else 2e8)
        read = self._of("disk_read", 0.2) if self._trains else 3e7
        write = self._of("disk_write", 0.5)
        return {
            "cpu": {
                "use_pct": round(min(100.0, 100 * (mine + others) / cores), 1),
                "load_1m": round(mine + others + abs(float(self._dice.normal(0, 0.1))), 3),
            },
            "memory": {
                "used_bytes": int(min(used, 0.995 * total)),
                "available_bytes": int(max(total - used, 0.005 * total)),
                "swap_used_bytes": int(self._of("swap", 0.01)),
            },
            "disk": {"read_bytes_s": round(read), "write_bytes_s": round(write)},
            "run": {
                "processes": 1,
                "threads": int(self._of("threads")) if self._trains else 2,
                "memory_bytes": int(self._of("memory_run", 0.002)) if self._trains else 200_000_000,
                "cpu_pct": round(100 * mine, 1),
                "disk_read_bytes_s": round(0.9 * read),
                "disk_write_bytes_s": round(0.1 * write),
            },
        }

    def cards(self) -> dict[str, Any]:
        """``{"gpus": [...]}``, or nothing where there are none."""
        count = self._plan.facts.get("environment.gpu.count", 0)
        return {"gpus": [self._card(card) for card in range(int(count or 0))]} if count else {}

    def _card(self, card: int) -> dict[str, Any]:
        others = self._of(f"gpu.{card}.other_memory")
        if not self._trains:
            return {
                "index": card,
                "use_pct": 0 if not others else 97,
                "memory_use_pct": 0,
                "memory_used_bytes": int(5.2e8 + others),
                "clock_sm_mhz": int(IDLE_CLOCK),
                "clock_memory_mhz": 405,
                "power_w": round(IDLE_POWER + float(self._dice.normal(0, 0.6)), 3),
                "temperature_c": round(IDLE_TEMPERATURE + float(self._dice.normal(0, 0.6))),
                "throttle": "idle",
            }
        reasons = self._reasons(card)
        return {
            "index": card,
            "use_pct": int(min(100.0, self._of(f"gpu.{card}.use", 0.03))),
            "memory_use_pct": int(min(100.0, self._of(f"gpu.{card}.use", 0.05) * 0.6)),
            "memory_used_bytes": int(self._of(f"gpu.{card}.memory") + others),
            "clock_sm_mhz": round(self._of(f"gpu.{card}.clock", 0.006)),
            "clock_memory_mhz": 14001,
            "power_w": round(self._of(f"gpu.{card}.power", 0.02), 3),
            "temperature_c": round(self._of(f"gpu.{card}.temperature", 0.008)),
            "throttle": ",".join(reasons),
        }

    def _reasons(self, card: int) -> list[str]:
        cards = self._plan.throttled_cards
        if cards is not None and card not in cards:
            return []
        return [r for r, share in self._plan.throttled.items() if self._dice.random() < self._level(share)]
