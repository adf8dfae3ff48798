"""What a true change is: a way to be slower, the facts that may honestly be named for it, and what it makes grow."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.pairs.plan import Plan

Patterns = tuple[str, ...]
"""Names of facts, as ``fnmatch`` has them, any of which is a right answer."""

COMPUTE = ("drafter.target", "drafter.forward", "drafter.backward", "drafter.optimizer", "target.forward")
"""What the devices compute: of tiny, whose drafter runs the target too, and of the box."""

MODEL = ("drafter.forward", "drafter.backward")

HOST = ("drafter.data", "drafter.other", "target.data", "target.other")
"""What the processor does where GPUs compute."""


@dataclass(frozen=True)
class Way:
    """One way to be slower.

    apply     alters the plan so that a useful token costs ``size`` times as much (``first``: the first step), and
              returns the facts of which any is a right answer: decided from what was changed, not from any rule
    grows     the phases, or groups of them, that it makes grow
    decisive  what it leaves in the series (a clock, a counter) belongs to it alone
    """

    name: str
    bases: tuple[str, ...]
    apply: Callable[[Plan, float, random.Random], Patterns]
    grows: frozenset[str]
    least: float = 1.03
    most: float = 3.0
    decisive: bool = False
    first: bool = False


def grows(*names: str) -> frozenset[str]:
    return frozenset(names)


ALL_COMPUTE = grows("target", "forward", "backward", "optimizer")


def all_of(plan: Plan, *wanted: str) -> tuple[str, ...]:
    """Those of the phases "role.phase" that this plan has; toy's trainer stands for a drafter."""
    found = []
    for name in wanted:
        role, _, phase = name.partition(".")
        role = plan.counting_name if role == "drafter" else role
        if role in plan.roles and phase in plan.roles[role].phases:
            found.append(f"{role}.{phase}")
    return tuple(found)
