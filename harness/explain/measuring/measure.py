"""One run measured: its evidence reduced to what a comparison needs. It composes; each part decides alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from harness.comparison import Measured, Steady
from harness.evidence import Evidence
from harness.explain.failing.failures import recognise
from harness.explain.measuring.observe import Span, observe
from harness.explain.measuring.profile import lanes, profile
from harness.explain.measuring.shifts import find_shifts
from harness.explain.measuring.spent import first_step, spent
from harness.records import FIRST_STEP
from harness.steady import FEWEST_STEPS, SteadyState, counting_role, steady_state


def measure(evidence: Evidence) -> Measured:
    """The run in figures. What it cannot say is None or empty, and a line in ``gaps``."""
    found = Measured(evidence.run, evidence.facts, lanes=lanes(evidence), failure=recognise(evidence))
    role = counting_role(evidence.steps)
    if role is None:
        gaps = (*evidence.gaps, "no step was recorded: there is no speed to compare")
        return replace(found, observed=observe(evidence), gaps=gaps)
    state = steady_state(evidence.steps[role], evidence.compiles)
    where = spent(evidence, role, state)
    steady = _steady(role, state, where.phases)
    begun = evidence.facts.get(FIRST_STEP) != "unknown"
    return replace(
        found,
        observed=observe(evidence, role, _span(state)),
        unit="tokens" if state.rows.tokens.any() else "steps",
        steady=steady,
        first_step_s=float(state.rows.t[0]) if begun else None,
        first_step=first_step(evidence, evidence.steps[role], state.rows) if begun else {},
        roles=where.roles if steady else {},
        profile=profile(evidence, role, state),
        shifts=find_shifts(evidence, state) if steady else (),
        gaps=evidence.gaps if steady else (*evidence.gaps, _too_few(state)),
    )


def _steady(role: str, state: SteadyState, phases: dict[str, float]) -> Steady | None:
    """None where the steady steps are too few for a throughput."""
    throughput = state.throughput()
    if throughput is None:
        return None
    rows, steady = state.rows, state.steady
    return Steady(
        role=role,
        steps=int(np.count_nonzero(steady)),
        seconds=float(rows.seconds[steady].sum()),
        tokens=int(rows.tokens[steady].sum()),
        padding=int(rows.padding[steady].sum()),
        phases=phases,
        throughput=throughput,
        left_out=state.left_out,
    )


def _span(state: SteadyState) -> Span | None:
    """The steady time, from its first step's beginning to its last one's end."""
    steady = np.flatnonzero(state.steady)
    if not len(steady):
        return None
    rows = state.rows
    return float(rows.t[steady[0]] - rows.seconds[steady[0]]), float(rows.t[steady[-1]])


def _too_few(state: SteadyState) -> str:
    steady = int(np.count_nonzero(state.steady))
    return f"{steady} steady step{'' if steady == 1 else 's'}: {FEWEST_STEPS} are needed for a speed"
