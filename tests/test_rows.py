"""Rows as they come are the rows of the whole run, however the devices' lines interleave."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from harness.records import Step
from harness.rows import MOST_OPEN, GrowingRows, Row
from harness.run.growing import GrowingSteps
from harness.steady import rows_of


def step(number: int, device: str = "cuda:5", seconds: float = 0.5, t: float | None = None, tokens: int = 100) -> Step:
    return Step(float(number) if t is None else t, number, "drafter", device, seconds, tokens)


def rows(steps: Sequence[Step]) -> list[Row]:
    work = GrowingRows()
    return [row for each in steps for row in work.add(each)] + work.close()


def at_once(steps: Sequence[Step]) -> list[tuple[int, float, int]]:
    """(number, seconds, tokens) of each row, by the arrays that a summary is made of."""
    growing = GrowingSteps()
    for each in steps:
        growing.add(vars(each))
    found = rows_of(growing.finish()["drafter"])
    return list(zip(found.step.tolist(), found.seconds.tolist(), found.tokens.tolist(), strict=True))


def as_they_came(steps: Sequence[Step]) -> list[tuple[int, float, int]]:
    return [(row.place[1], row.seconds, row.tokens) for row in rows(steps)]


def in_step(count: int, devices: int, dice: random.Random, start: float = 0.0, first: int = 1) -> list[Step]:
    """Devices that take each step together, and write its lines in any order."""
    found = []
    for number in range(first, first + count):
        start += 1.0
        each = [
            step(number, f"cuda:{n}", dice.uniform(0.1, 0.9), start + dice.uniform(0, 0.05), dice.randrange(1, 99))
            for n in range(devices)
        ]
        dice.shuffle(each)
        found += each
    return found


@given(st.integers(1, 80), st.integers(1, 4), st.randoms(use_true_random=False))
def test_devices_that_step_together(count: int, devices: int, dice: random.Random) -> None:
    steps = in_step(count, devices, dice)
    assert as_they_came(steps) == at_once(steps)


@given(st.integers(1, 30), st.integers(1, 30), st.integers(1, 4), st.randoms(use_true_random=False))
def test_numbers_that_begin_again(count: int, first: int, devices: int, dice: random.Random) -> None:
    """The next epoch, or a resume from where a checkpoint was."""
    steps = in_step(count, devices, dice) + in_step(count, devices, dice, 1000.0, min(first, count))
    assert as_they_came(steps) == at_once(steps)


@given(st.integers(2, 40), st.integers(2, 5), st.randoms(use_true_random=False))
def test_devices_that_drift_apart(count: int, devices: int, dice: random.Random) -> None:
    """Once each has been seen, one may be as far ahead as it likes up to ``MOST_OPEN`` rows."""
    steps = in_step(1, devices, dice)
    left = {f"cuda:{n}": 2 for n in range(devices)}
    t = 2.0
    while left:
        device = dice.choice(sorted(left))
        t += 1.0
        steps.append(step(left[device], device, dice.uniform(0.1, 0.9), t, dice.randrange(1, 99)))
        left[device] += 1
        if left[device] > count:
            del left[device]
    assert Counter(as_they_came(steps)) == Counter(at_once(steps))


@given(st.integers(1, 30), st.integers(2, 4))
def test_workers_that_share_a_device_take_a_step_together(count: int, workers: int) -> None:
    steps = [step(n, "cpu", 0.9, n + 0.01 * w, 100) for n in range(1, count + 1) for w in range(workers)]
    assert as_they_came(steps) == at_once(steps) == [(n, 0.9, 100 * workers) for n in range(1, count + 1)]


@given(st.data())
def test_no_step_is_lost_or_told_twice(data: st.DataObject) -> None:
    """Whatever the numbers and devices are: late, missing, repeated."""
    one = st.tuples(st.integers(1, 200), st.sampled_from("abc"))
    steps = [
        dataclasses.replace(step(number, device, 0.5, float(at)), metrics={"id": at})
        for at, (number, device) in enumerate(data.draw(st.lists(one, max_size=200)))
    ]
    told = [each.metrics["id"] for row in rows(steps) for each in row.steps]
    assert sorted(told) == list(range(len(steps)))


def test_a_device_that_stopped_does_not_hold_up_the_others() -> None:
    work = GrowingRows()
    done: list[Row] = []
    for number in range(1, 201):
        devices = ("cuda:5", "cuda:6", "cuda:7") if number <= 10 else ("cuda:5", "cuda:6")
        for device in devices:
            done += work.add(step(number, device))
        if number == 9 + MOST_OPEN:
            assert [row.place[1] for row in done] == list(range(1, 10))  # it is waited for
    assert [row.place[1] for row in done] == list(range(1, 200))
    assert {len(row.steps) for row in done[:10]} == {3}
    assert {len(row.steps) for row in done[10:]} == {2}
