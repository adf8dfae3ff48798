"""The events of a run, drawn from its plan: lucky runs, correlated steps, heavy tails, queues and barriers."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.pairs.plan import Plan, Pulse, factors
from harness.records import Checkpoint, Compile, Eval, Event, Finished, Note, Started, Step

Floats = NDArray[np.float64]

QUEUE = 12
"""Items that may wait for the role that counts: then those who make them wait."""


@dataclass(frozen=True)
class Timeline:
    """What was drawn."""

    events: tuple[Event, ...]  # in order of t
    steps_from: float  # t at which the first step began
    steps_to: float


def draw(plan: Plan, dice: np.random.Generator) -> Timeline:
    """One run of ``plan``; another one of the same plan is differently lucky."""
    start = plan.start_s * float(np.exp(dice.normal(0, 0.03)))
    events: list[Event] = [Started(start, int(dice.integers(2_000, 60_000)), plan.steps, plan.told)]
    events += [Note(start + 1e-3, text, "warning") for text in plan.notes]
    now = start
    for name, seconds in plan.evals_before:
        took = seconds * float(np.exp(dice.normal(0, 0.04)))
        now += took
        events.append(Eval(now, name, {"accept_length": 1.0}, True, 0, took))
    luck = _Luck(plan, dice)
    steps = list((_fed if len(plan.roles) > 1 else _alone)(plan, luck, dice, now))
    events += steps
    end = max(step.t for step in steps)
    events.append(Checkpoint(end + 0.002, "artifacts/drafter.safetensors", plan.steps))
    events.append(Finished(end + 0.003))
    events.sort(key=lambda event: event.t)
    return Timeline(tuple(events), now, end)


class _Luck:
    """Multipliers of one run."""

    def __init__(self, plan: Plan, dice: np.random.Generator) -> None:
        self._noise, self._dice = plan.noise, dice
        self._run = float(np.exp(dice.normal(0, plan.noise.between)))

    def columns(self, names: Sequence[str], count: int) -> dict[str, Floats]:
        """``{phase: (count,)}``: the run's luck, a correlated one of the steps, and each phase's own."""
        noise, dice = self._noise, self._dice
        common = self._run * np.exp(_correlated(dice, count, noise.memory) * noise.step)
        common *= 1 + noise.drift * float(dice.normal()) * np.linspace(-0.5, 0.5, count)
        found = {name: common * np.exp(dice.normal(0, noise.step / 2, count)) for name in names}
        for name in names:
            found[name] *= np.exp(dice.normal(0, noise.between / 2))
        hit = np.flatnonzero(dice.random(count) < noise.spikes)
        for index, which, size in zip(
            hit, dice.integers(0, len(names), len(hit)), dice.pareto(2.5, len(hit)), strict=True
        ):
            found[names[which]][index] *= 1.2 + min(size, 4.0)
        return found


def _correlated(dice: np.random.Generator, count: int, memory: float) -> Floats:
    """An autoregressive process of variance 1."""
    from scipy.signal import lfilter

    shocks = dice.standard_t(6, count) * np.sqrt(4 / 6)
    shocks[1:] *= np.sqrt(1 - memory**2)
    return np.asarray(lfilter([1.0], [1.0, -memory], shocks), dtype=np.float64)


def _tokens(plan: Plan, dice: np.random.Generator, count: int) -> tuple[Floats, Floats]:
    """Useful tokens and padding: batches of one size, in which more or less is padding."""
    grid = plan.tokens + plan.padding
    useful = np.full(count, plan.tokens)
    if plan.padding:
        useful = plan.tokens + plan.padding * np.clip(dice.normal(0, 0.15, count), -0.6, 0.6)
    useful = np.round(np.minimum(useful, grid))
    return useful, np.round(grid) - useful


def _stretched(plan: Plan, role: str, device: str, count: int) -> dict[str, Floats]:
    """``{phase: (count,)}``: seconds of each phase without luck."""
    early, late = (factors(plan, role, device, late) for late in (False, True))
    since = max((s.since for s in plan.stretches), default=0.0)
    is_late = np.arange(count) >= round(since * count)
    return {n: s * np.where(is_late, late[n], early[n]) for n, s in plan.roles[role].phases.items()}


def _extra(plan: Plan, dice: np.random.Generator) -> tuple[Floats, Floats, Floats]:
    """Seconds inside each step of compiling and of what is done every so often, and seconds after it."""
    compiling, inside, after = (np.zeros(plan.steps) for _ in range(3))
    for compiled in plan.compiles:
        compiling[compiled.step - 1] += compiled.seconds * float(np.exp(dice.normal(0, 0.03)))
    for pulse in plan.pulses:
        at = np.arange(pulse.every, plan.steps + 1, pulse.every) - 1
        (inside if pulse.inside else after)[at] += pulse.seconds * np.exp(dice.normal(0, 0.03, len(at)))
    return compiling, inside, after


def _beside(plan: Plan, step: int, start: float, end: float, after: float) -> Iterator[Event]:
    """What else happened in a step, or right after it."""
    done = start
    for compiled in (c for c in plan.compiles if c.step == step):
        done = min(done + compiled.seconds, end)
        yield Compile(done, compiled.name, compiled.seconds, step, compiled.hits, compiled.misses, 0, compiled.reason)
    for pulse in plan.pulses:
        if step % pulse.every == 0:
            yield from _pulsed(pulse, step, end if pulse.inside else end + after)


def _pulsed(pulse: Pulse, step: int, t: float) -> Iterator[Event]:
    if pulse.what == "eval":
        yield Eval(t - 1e-6, "step", {"accept_length": 2.0}, None, step, pulse.seconds)
    elif pulse.what == "checkpoint":
        yield Checkpoint(t - 1e-6, f"artifacts/step_{step}.safetensors", step)
    elif pulse.text:
        yield Note(t - 1e-6, pulse.text, "warning")


def _metrics(plan: Plan, dice: np.random.Generator) -> list[dict[str, float]]:
    """What each step reports of itself: its loss, and counters that only grow."""
    count = plan.steps
    loss = 2 + 5 * np.exp(-np.arange(count) / (count / 5)) + dice.normal(0, 0.1, count)
    columns = {"loss": np.round(loss, 4)}
    for name, gauge in plan.metrics.items():
        rate = np.where(np.arange(count) >= gauge.since * count, gauge.late, gauge.value)
        columns[name] = np.cumsum(dice.poisson(rate)).astype(np.float64)
    rows = np.column_stack(list(columns.values())).tolist()
    return [dict(zip(columns, row, strict=True)) for row in rows]


def _alone(plan: Plan, luck: _Luck, dice: np.random.Generator, now: float) -> Iterator[Event]:
    """A role that nobody feeds: one step after the other."""
    role, device = plan.counting_name, plan.counting.devices[0]
    names = list(plan.counting.phases)
    lucky = luck.columns(names, plan.steps)
    seconds = {n: column * lucky[n] for n, column in _stretched(plan, role, device, plan.steps).items()}
    compiling, inside, after = _extra(plan, dice)
    seconds["other"] = seconds["other"] + inside
    tokens, padding = _tokens(plan, dice, plan.steps)
    metrics = _metrics(plan, dice)
    rows = np.column_stack(list(seconds.values())).tolist()
    for k, row in enumerate(rows):
        phases = dict(zip(names, row, strict=True))
        if compiling[k]:
            phases["compile"] = float(compiling[k])
        took = sum(phases.values())
        start, now = now, now + took
        yield from _beside(plan, k + 1, start, now, float(after[k]))
        yield Step(now, k + 1, role, device, took, int(tokens[k]), int(padding[k]), phases, metrics[k])
        now += float(after[k])


# --- one role feeds another ------------------------------------------------------------------------------


def _fed(plan: Plan, luck: _Luck, dice: np.random.Generator, now: float) -> Iterator[Event]:
    """The box: data-parallel consumers, each with an item a step, and free-running makers of items.

    A maker waits for room in the queue, a consumer for its item; the consumers of a step leave their all-reduce
    together, so that the slowest of them is what the others' communication waits for.
    """
    role = plan.counting_name
    consumers = plan.counting.devices
    items = _Items(plan, luck, now)
    lucky = luck.columns(list(plan.counting.phases), plan.steps)
    work = {d: _rows(_stretched(plan, role, d, plan.steps), lucky, dice) for d in consumers}
    compiling, inside, after = _extra(plan, dice)
    counts = {device: _tokens(plan, dice, plan.steps) for device in consumers}
    metrics = _metrics(plan, dice)
    for k in range(plan.steps):
        start = now
        taken, arrived = {}, {}
        for n, device in enumerate(consumers):
            ready, made = items.make(k * len(consumers) + n)
            yield made
            taken[device] = max(start, ready)
            items.consumed.append(taken[device])
            row = work[device][k]
            arrived[device] = taken[device] + float(compiling[k]) + row["data"] + row["forward"] + row["backward"]
        together = max(arrived.values()) + max(work[d][k]["communication"] for d in consumers)
        now = together + max(work[d][k]["optimizer"] + work[d][k]["other"] for d in consumers) + float(inside[k])
        yield from _beside(plan, k + 1, start, now, float(after[k]))
        for device in consumers:
            row = work[device][k]
            phases = {
                "data": row["data"],
                "wait": taken[device] - start,
                "forward": row["forward"],
                "backward": row["backward"],
                "communication": together - arrived[device],
                "optimizer": row["optimizer"],
            }
            if compiling[k]:
                phases["compile"] = float(compiling[k])
            took = now - start
            phases["other"] = took - sum(phases.values())
            useful, padding = counts[device]
            yield Step(now, k + 1, role, device, took, int(useful[k]), int(padding[k]), phases, metrics[k])
        now += float(after[k])


def _rows(columns: dict[str, Floats], lucky: dict[str, Floats], dice: np.random.Generator) -> list[dict[str, float]]:
    """The phases of each step on one device; a little of the luck is the device's own."""
    own = np.exp(dice.normal(0, 0.004, len(next(iter(columns.values())))))
    rows = np.column_stack([column * lucky[n] * own for n, column in columns.items()]).tolist()
    return [dict(zip(columns, row, strict=True)) for row in rows]


class _Items:
    """The makers: each takes the next item as soon as it is free and the queue has room."""

    def __init__(self, plan: Plan, luck: _Luck, now: float) -> None:
        self._plan = plan
        (self._role,) = list(plan.roles)[1:]
        makers = plan.roles[self._role].devices
        self._a_step = len(plan.counting.devices)
        count = plan.steps * self._a_step
        names = list(plan.roles[self._role].phases)
        lucky = luck.columns(names, count)
        self._names = names
        self._rows = {
            device: np.column_stack(
                [column * lucky[n] for n, column in _stretched(plan, self._role, device, count).items()]
            ).tolist()
            for device in makers
        }
        self._free = [(now, n, device) for n, device in enumerate(makers)]
        heapq.heapify(self._free)
        self._start = now
        self.consumed: list[float] = []

    def make(self, item: int) -> tuple[float, Step]:
        """When ``item`` is ready, and the step that made it. Items are asked for in order."""
        free, n, device = heapq.heappop(self._free)
        room = self.consumed[item - QUEUE] if item >= QUEUE else self._start
        row = self._rows[device][item]
        begin = max(free, room)
        ready = begin + sum(row)
        heapq.heappush(self._free, (ready, n, device))
        phases = {"wait": begin - free, **dict(zip(self._names, row, strict=True))}
        return ready, Step(ready, item // self._a_step + 1, self._role, device, ready - free, 0, 0, phases)
