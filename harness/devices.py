"""How each device of a run spent the steady time: busy, waiting for another role, communicating.

The role that counts tokens is measured by its own steady steps. Another role is measured over the same stretches of
time, in which it does what its steps say, and waits whenever they say nothing: a target that has run dry takes no step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from harness.evidence import Floats, Steps
from harness.records import DeviceShare
from harness.steady import Mask, SteadyState

WAIT, COMMUNICATION = "wait", "communication"


def device_shares(roles: Mapping[str, Steps], counting: str, state: SteadyState) -> tuple[DeviceShare, ...]:
    """How each device spent the steady time ``state`` of the role ``counting``; none where no step is steady."""
    ends = state.rows.t[state.steady]
    starts = ends - state.rows.seconds[state.steady]
    steady = state.steady[state.rows.row_of]
    found: list[DeviceShare] = []
    for role, steps in roles.items():
        named = sorted(enumerate(steps.devices), key=lambda each: (len(each[1]), each[1]))  # cuda:9 before cuda:10
        for number, device in named:
            mine = steps.device == number
            spent = _own(steps, mine & steady) if role == counting else _beside(steps, number, starts, ends)
            if spent is not None:
                waiting, moving = spent
                busy = max(0.0, 1.0 - waiting - moving)
                found.append(DeviceShare(role, device, int(np.count_nonzero(mine)), busy, waiting, moving))
    return tuple(found)


def waits_of(devices: Sequence[DeviceShare]) -> dict[str, float]:
    """The share of the steady time that each role waited: the mean over its devices."""
    shares: dict[str, list[float]] = {}
    for each in devices:
        shares.setdefault(each.role, []).append(each.waiting)
    return {role: sum(found) / len(found) for role, found in shares.items()}


def _own(steps: Steps, chosen: Mask) -> tuple[float, float] | None:
    """(waiting, communication) as shares of the chosen steps; None where they took no time."""
    seconds = float(steps.seconds[chosen].sum())
    if seconds <= 0:
        return None
    waiting, moving = (
        float(steps.phases[name][chosen].sum()) / seconds if name in steps.phases else 0.0
        for name in (WAIT, COMMUNICATION)
    )
    return min(1.0, waiting), min(1.0, moving)


def _beside(steps: Steps, device: int, starts: Floats, ends: Floats) -> tuple[float, float] | None:
    """(waiting, communication) as shares of the stretches, in which one device of another role works; or None."""
    seconds = float((ends - starts).sum())
    if seconds <= 0:
        return None
    none = np.zeros(len(steps))
    work = sum((column for name, column in steps.phases.items() if name != WAIT), start=none)
    columns = {"work": work, COMMUNICATION: steps.phases.get(COMMUNICATION, none)}
    done = {name: float(column.sum()) for name, column in of_device(steps, columns, device, starts, ends).items()}
    return max(0.0, 1.0 - done["work"] / seconds), min(1.0, done[COMMUNICATION] / seconds)


# --- what a role did meanwhile ---------------------------------------------------------------------------


def meanwhile(roles: Mapping[str, Steps], role: str, starts: Floats, ends: Floats) -> dict[str, dict[str, Floats]]:
    """What each role but ``role`` did in each stretch from start to end, as ``during`` says it."""
    return {name: during(steps, starts, ends) for name, steps in roles.items() if name != role}


def during(steps: Steps, starts: Floats, ends: Floats) -> dict[str, Floats]:
    """Seconds of each phase that the devices of a role spent, in the mean, in each stretch from start to end."""
    found = {name: np.zeros(len(starts)) for name in steps.phases}
    for device in range(len(steps.devices)):
        for name, column in of_device(steps, steps.phases, device, starts, ends).items():
            found[name] += column
    return {name: column / len(steps.devices) for name, column in found.items()}


def of_device(
    steps: Steps, columns: Mapping[str, Floats], device: int, starts: Floats, ends: Floats
) -> dict[str, Floats]:
    """The part of each column, seconds of the steps, that one device spent in each stretch from start to end.

    What is in a column is taken to be spread evenly over its step.
    """
    mine = np.flatnonzero(steps.device == device)
    edges = np.empty(2 * len(mine))
    edges[0::2], edges[1::2] = steps.t[mine] - steps.seconds[mine], steps.t[mine]
    np.maximum.accumulate(edges, out=edges)  # clocks that are read one after the other overlap by a little
    done = np.zeros(2 * len(mine))
    found = {}
    for name, column in columns.items():
        sums = np.cumsum(column[mine])
        done[1::2], done[2::2] = sums, sums[:-1]
        found[name] = np.interp(ends, edges, done) - np.interp(starts, edges, done)
    return found
