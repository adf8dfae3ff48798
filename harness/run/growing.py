"""Steps as columns that grow: some 100 bytes a step, where an object a step takes a thousand, and is slow to make."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.evidence import Floats, Steps, Whole

CHUNK = 1024
"""Steps that are kept as objects, until they are turned into columns together."""

WHOLE = {"step": 1, "tokens": 0, "padding": 0}
"""Columns of whole numbers, with the least that each can be."""

Fields = Mapping[str, Any]


class GrowingSteps:
    """The steps of all roles, from the fields of ``Step`` or from the JSON of its line."""

    def __init__(self) -> None:
        self.skipped = 0  # what was added and is no step: a field is missing, or is no number that it can be
        self._pending: list[Fields] = []
        self._roles: dict[str, list[_Chunk]] = {}
        self._devices: defaultdict[str, dict[str, int]] = defaultdict(dict)

    def add(self, step: Fields) -> None:
        """Take one step's fields; they may not change after."""
        self._pending.append(step)
        if len(self._pending) == CHUNK:
            self._flush()

    def finish(self) -> dict[str, Steps]:
        """The columns by role, the first to be seen first. Nothing can be added after."""
        self._flush()
        return {role: _joined(self._roles.pop(role), self._devices[role]) for role in tuple(self._roles)}

    def _flush(self) -> None:
        pending, self._pending = self._pending, []
        try:
            chunks = self._chunks(pending)
        except _UNFIT:  # one of them is no step, which is found out one by one
            fitting = [step for step in pending if _fits(step)]
            self.skipped += len(pending) - len(fitting)
            chunks = self._chunks(fitting)
        for role, chunk in chunks.items():
            self._roles.setdefault(role, []).append(chunk)

    def _chunks(self, steps: Sequence[Fields]) -> dict[str, _Chunk]:
        roles: defaultdict[str, list[Fields]] = defaultdict(list)
        for step in steps:
            roles[step["role"]].append(step)
        if not all(isinstance(role, str) for role in roles):
            raise TypeError("not a role")
        return {role: _chunk(found, self._devices[role]) for role, found in roles.items()}


class _Chunk(NamedTuple):
    floats: dict[str, Floats]
    whole: dict[str, Whole]
    phases: dict[str, Floats]


_UNFIT = (KeyError, TypeError, ValueError, OverflowError, AttributeError)


def _fits(step: Fields) -> bool:
    try:
        _chunk([step], {})
    except _UNFIT:
        return False
    return isinstance(step["role"], str)


def _chunk(steps: Sequence[Fields], devices: dict[str, int]) -> _Chunk:
    """The columns of steps of one role. Raises one of ``_UNFIT`` where one is no step."""
    floats = {name: np.array([step[name] for step in steps], dtype=np.float64) for name in ("t", "seconds")}
    whole = {name: np.array([step.get(name, 0) for step in steps], dtype=np.int64) for name in WHOLE}
    phases = [step.get("phases", {}) for step in steps]
    spent = {
        name: np.array([found.get(name) or 0.0 for found in phases], dtype=np.float64)
        for name in dict.fromkeys(chain.from_iterable(phases))
    }
    for column in (*floats.values(), *spent.values()):
        _refuse(~np.isfinite(column))
    for column in (floats["seconds"], *spent.values()):
        _refuse(column < 0)
    for name, least in WHOLE.items():
        _refuse(whole[name] < least)
    floats["loss"] = np.array([_loss(step.get("metrics", {})) for step in steps], dtype=np.float64)
    whole["device"] = np.array([devices.setdefault(str(step["device"]), len(devices)) for step in steps], np.int64)
    return _Chunk(floats, whole, spent)


def _refuse(wrong: NDArray[np.bool_]) -> None:
    if wrong.ndim != 1 or wrong.any():
        raise ValueError("not a step")


def _loss(metrics: Mapping[str, float | None]) -> float:
    """Infinity stands for a loss that was not finite, which the lines spell null: NaN stands for none."""
    if "loss" not in metrics:
        return math.nan
    value = metrics["loss"]
    return value if value is not None and math.isfinite(value) else math.inf


def _joined(chunks: list[_Chunk], devices: Mapping[str, int]) -> Steps:
    sizes = [len(chunk.floats["t"]) for chunk in chunks]
    floats = {name: np.concatenate([c.floats.pop(name) for c in chunks]) for name in ("t", "seconds", "loss")}
    whole = {name: np.concatenate([c.whole.pop(name) for c in chunks]) for name in (*WHOLE, "device")}
    phases: dict[str, Floats] = {}
    for name in dict.fromkeys(chain.from_iterable(c.phases for c in chunks)):
        parts = zip(chunks, sizes, strict=True)
        phases[name] = np.concatenate([c.phases.pop(name) if name in c.phases else np.zeros(n) for c, n in parts])
    spent = {name: column for name, column in phases.items() if column.any()}
    return in_time(Steps(**floats, **whole, phases=spent, devices=tuple(devices)))


def in_time(steps: Steps) -> Steps:
    """The steps in the order of their ends: threads write their lines a little out of it."""
    if bool(np.all(np.diff(steps.t) >= 0)):
        return steps
    return steps.take(np.argsort(steps.t, kind="stable"))
