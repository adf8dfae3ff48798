"""How devices spent their time, and which role the others wait for: literals, and each stretch looked at alone."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.bottleneck import NEARLY, busiest, longest_waiting
from harness.devices import device_shares, waits_of
from harness.evidence import Steps
from harness.records import DeviceShare, Step
from harness.run.growing import GrowingSteps
from harness.steady import steady_state


def roles_of(steps: list[Step]) -> dict[str, Steps]:
    growing = GrowingSteps()
    for step in steps:
        growing.add(vars(step))
    return growing.finish()


def shares(steps: list[Step], role: str = "drafter") -> dict[str, DeviceShare]:
    roles = roles_of(steps)
    return {each.device: each for each in device_shares(roles, role, steady_state(roles[role], ()))}


def box(count: int = 20) -> list[Step]:
    """Three drafters take a second a step, of which they wait 0.5, 0.4 and 0.3 s; of two targets one waits 0.1 s."""
    steps = []
    for n in range(1, count + 1):
        for device, wait in (("cuda:5", 0.5), ("cuda:6", 0.4), ("cuda:7", 0.3)):
            phases = {"wait": wait, "communication": 0.2, "forward": 0.8 - wait}
            steps.append(Step(float(n), n, "drafter", device, 1.0, 100, 0, phases))
        for device, wait in (("cuda:0", 0.0), ("cuda:1", 0.1)):
            phases = {"wait": wait, "communication": 0.1, "target": 0.9 - wait}
            steps.append(Step(float(n), n, "target", device, 1.0, 0, 0, phases))
    return steps


def test_each_device_has_its_shares_and_a_role_their_mean() -> None:
    found = shares(box())
    assert {d: (s.role, s.steps) for d, s in found.items()} == {
        **{f"cuda:{n}": ("drafter", 20) for n in (5, 6, 7)},
        **{f"cuda:{n}": ("target", 20) for n in (0, 1)},
    }
    for device, spent in {
        "cuda:5": (0.3, 0.5, 0.2), "cuda:6": (0.4, 0.4, 0.2), "cuda:7": (0.5, 0.3, 0.2),
        "cuda:0": (0.9, 0.0, 0.1), "cuda:1": (0.8, 0.1, 0.1),
    }.items():  # fmt: skip
        assert (found[device].busy, found[device].waiting, found[device].communication) == pytest.approx(
            spent, abs=1e-9
        )
    waits = waits_of(list(found.values()))
    assert waits == pytest.approx({"drafter": 0.4, "target": 0.05})
    assert busiest(waits) == "target"


def test_a_target_that_takes_no_step_waits() -> None:
    """It works half of each second, and what it does in the other half nobody wrote down."""
    steps = [step for step in box() if step.role == "drafter"]
    steps += [Step(n + 0.25, n, "target", "cuda:0", 0.5, 0, 0, {"target": 0.4, "other": 0.1}) for n in range(1, 21)]
    assert shares(steps)["cuda:0"].waiting == pytest.approx(0.5)


def test_only_the_steady_time_counts() -> None:
    """A first step of 50 s, in which the drafter waits for a target that compiles."""
    steps = [Step(50.0, 1, "drafter", "cuda:5", 50.0, 100, 0, {"wait": 49.0, "forward": 1.0})]
    steps += [Step(50.0, 1, "target", "cuda:0", 50.0, 0, 0, {"compile": 50.0})]
    for n in range(2, 30):
        steps.append(Step(49.0 + n, n, "drafter", "cuda:5", 1.0, 100, 0, {"wait": 0.1, "forward": 0.9}))
        steps.append(Step(49.0 + n, n, "target", "cuda:0", 1.0, 0, 0, {"wait": 0.4, "target": 0.6}))
    assert waits_of(list(shares(steps).values())) == pytest.approx({"drafter": 0.1, "target": 0.4})


@settings(max_examples=40)
@given(st.integers(1, 4), st.integers(0, 4), st.integers(2, 30), st.randoms(use_true_random=False))
def test_shares_are_shares(drafters: int, targets: int, count: int, dice: random.Random) -> None:
    steps = []
    for role, devices, tokens in (("drafter", drafters, 10), ("target", targets, 0)):
        for device in range(devices):
            t = dice.uniform(0, 3)
            for n in range(1, count + 1):
                phases = {name: dice.uniform(0, 1) for name in ("wait", "communication", "forward", "other")}
                t += sum(phases.values()) + dice.uniform(0, 0.3)
                steps.append(Step(t, n, role, f"{role}:{device}", sum(phases.values()), tokens, 0, phases))
    found = shares(sorted(steps, key=lambda step: step.t))
    for each in found.values():
        parts = (each.busy, each.waiting, each.communication)
        assert sum(parts) == pytest.approx(1.0)
        assert all(0 <= part <= 1 for part in parts)


def test_devices_are_in_the_order_of_their_numbers() -> None:
    names = ("cuda:10", "cuda:2", "cuda:9")
    steps = [Step(float(n), n, "drafter", name, 1.0, 10, 0, {"forward": 1.0}) for n in range(1, 20) for name in names]
    assert list(shares(steps)) == ["cuda:2", "cuda:9", "cuda:10"]


def test_without_a_steady_step_nothing_is_known() -> None:
    assert shares(box(1)) == {}
    none = roles_of(box())
    state = steady_state(none["drafter"], ())
    state.steady[:] = False
    assert device_shares(none, "drafter", state) == ()
    assert waits_of(()) == {}


@pytest.mark.parametrize(
    ("waits", "role"),
    [
        ({"drafter": 0.38, "target": 0.02}, "target"),
        ({"drafter": 0.0, "target": 0.6}, "drafter"),
        ({"drafter": 0.3, "target": 0.3 + NEARLY / 2}, ""),
        ({"drafter": 0.4, "target": 0.1, "loader": 0.2}, "target"),
        ({"drafter": 0.4}, ""),
        ({}, ""),
    ],
)
def test_the_role_that_the_others_wait_for(waits: dict[str, float], role: str) -> None:
    assert busiest(waits) == role


def test_the_role_that_waits_longest() -> None:
    assert longest_waiting({"drafter": 0.4, "target": 0.1, "loader": 0.9}, "target") == "loader"
