"""Changes of the machine around the run: its processors, who else uses them, its disk and its memory."""

from __future__ import annotations

import random

from benchmarks.pairs.plan import Plan, stretch
from benchmarks.pairs.ways import ALL_COMPUTE, COMPUTE, HOST, Patterns, Way, all_of, grows

ON_CPU = grows("data", "target", "forward", "backward", "optimizer", "other")
ON_HOST = grows("data", "other")


def _cpu_phases(plan: Plan) -> tuple[str, ...]:
    """What the processor does: everything, where there is no GPU."""
    return all_of(plan, *HOST) if plan.base == "box" else all_of(plan, *COMPUTE, "drafter.data", "drafter.other")


# --- processors ------------------------------------------------------------------------------------------


def threads(plan: Plan, size: float, _: random.Random) -> Patterns:
    """torch is given one thread where it had two: the parts that run in parallel take longer."""
    stretch(plan, size, all_of(plan, *COMPUTE))
    plan.set("threads", 1)
    plan.turn("run_cores", 0.99)
    plan.turn("threads", 3)
    return ("execution.threads", "observed.*threads*")


def omp_threads(plan: Plan, size: float, _: random.Random) -> Patterns:
    stretch(plan, size, _cpu_phases(plan))
    plan.facts["environment.variable.OMP_NUM_THREADS"] = "1"
    plan.turn("run_cores", 0.6 * plan.gauges["run_cores"].value)
    plan.turn("threads", max(2, plan.gauges["threads"].value / 4))
    return ("environment.variable.OMP_NUM_THREADS", "observed.*threads*")


def quota(plan: Plan, size: float, _: random.Random) -> Patterns:
    """The container may use fewer processors' worth of time."""
    stretch(plan, size, _cpu_phases(plan))
    allowed = round(plan.gauges["run_cores"].value / size, 2)
    plan.facts["environment.cpu.limit"] = allowed
    plan.turn("run_cores", allowed)
    return ("environment.cpu.limit", "observed.cpu.throttled*", "observed.cpu.run*")


def affinity(plan: Plan, size: float, _: random.Random) -> Patterns:
    """The run was tied to a few processors."""
    stretch(plan, size, _cpu_phases(plan))
    few = max(1, int(plan.gauges["run_cores"].value / size))
    plan.facts["environment.cpu.usable"] = few
    plan.turn("run_cores", float(few))
    return ("environment.cpu.usable", "observed.cpu.throttled*", "observed.cpu.run*")


def governor(plan: Plan, size: float, dice: random.Random) -> Patterns:
    """The processor's own clock is kept low."""
    stretch(plan, size, _cpu_phases(plan))
    if dice.random() < 0.5:
        plan.facts["environment.cpu.governor"] = "powersave"
        return ("environment.cpu.governor",)
    plan.facts["environment.cpu.boost"] = "0"
    return ("environment.cpu.boost",)


def cpu_neighbour(plan: Plan, size: float, dice: random.Random) -> Patterns:
    """Other processes want the same processors; they were there before the run, or came later."""
    since = dice.choice((0.0, 0.0, 0.4))
    stretch(plan, size, _cpu_phases(plan), since=since)
    cores = plan.gauges["cores"].value
    plan.turn("other_cores", cores * dice.uniform(0.75, 0.98), since)
    if plan.base != "box":
        plan.turn("run_cores", plan.gauges["run_cores"].value / size**0.8, since)
    found = ("observed.cpu.other*", "observed.cpu.use*", "observed.cpu.load*", "observed.load*", "observed.cpu.run*")
    return found if since else (*found, "state.load.*")


# --- data ------------------------------------------------------------------------------------------------


def _data_phases(plan: Plan, dice: random.Random) -> tuple[str, ...]:
    """Where the data is read: by the targets or by the drafters of the box."""
    if plan.base == "box":
        return all_of(plan, dice.choice(("target.data", "drafter.data")))
    return all_of(plan, "drafter.data")


def workers(plan: Plan, size: float, dice: random.Random) -> Patterns:
    stretch(plan, size, _data_phases(plan, dice))
    key, value = dice.choice((("data.workers", 1), ("data.prefetch", 0), ("data.workers", 0)))
    plan.set(key, value)
    plan.turn("threads", plan.gauges["threads"].value - 7)
    return (f"execution.{key}", "observed.*threads*")


def slow_disk(plan: Plan, size: float, dice: random.Random) -> Patterns:
    """The data comes from a disk, where it lay in memory before: nothing was configured otherwise."""
    stretch(plan, size, _data_phases(plan, dice))
    plan.turn("disk_read", dice.uniform(4e7, 4e8))
    return ("observed.disk*", "observed.run.disk*", "observed.data*", "observed.read*", "observed.io*")


def tokenise(plan: Plan, size: float, dice: random.Random) -> Patterns:
    """The tokenizers' threads were switched off, as their warning about forks advises."""
    stretch(plan, size, _data_phases(plan, dice))
    plan.facts["environment.variable.TOKENIZERS_PARALLELISM"] = "false"
    return ("environment.variable.TOKENIZERS_PARALLELISM",)


def told_to_wait(plan: Plan, size: float, dice: random.Random) -> Patterns:
    """toy's own switch, of the phase data or wait."""
    phase = dice.choice(("data", "wait"))
    return _toy_switch(plan, size, phase)


def _toy_switch(plan: Plan, size: float, phase: str) -> Patterns:
    before = plan.roles["trainer"].phases.get(phase, 0.0)
    if not before:
        plan.roles["trainer"].phases[phase] = 1e-9
    factor = stretch(plan, size, (f"trainer.{phase}",))
    plan.set(f"slow.{phase}", round((factor - 1) * max(before, 1e-9), 6))
    return (f"execution.slow.{phase}",)


# --- memory ----------------------------------------------------------------------------------------------


def swap(plan: Plan, size: float, dice: random.Random) -> Patterns:
    """Memory is short, and the kernel moves pages to disk and back."""
    since = dice.choice((0.0, 0.0, 0.3))
    stretch(plan, size, _cpu_phases(plan), since=since)
    total = plan.gauges["memory_total"].value
    plan.turn("memory_other", 0.97 * total - plan.gauges["memory_run"].value, since)
    plan.turn("swap", dice.uniform(0.05, 0.3) * total, since)
    plan.turn("disk_read", dice.uniform(3e7, 3e8), since)
    plan.turn("disk_write", dice.uniform(3e7, 3e8), since)
    found = ("observed.memory*", "observed.swap*", "observed.disk*")
    return found if since else (*found, "state.swap.used_bytes", "state.memory.available_bytes")


def memory_limit(plan: Plan, size: float, dice: random.Random) -> Patterns:
    """The container's memory was limited to less than the run wants: the page cache goes first, then pages."""
    stretch(plan, size, _cpu_phases(plan))
    plan.facts["environment.memory.limit_bytes"] = int(0.9 * plan.gauges["memory_run"].value)
    plan.turn("swap", 0.2 * plan.gauges["memory_run"].value)
    plan.turn("disk_read", dice.uniform(5e7, 3e8))
    found = ("observed.memory*", "observed.swap*", "observed.disk*")
    return (*found, "environment.memory.limit_bytes", "state.swap.used_bytes")


CPU = (
    Way("torch threads", ("tiny",), threads, ALL_COMPUTE, 1.1, 1.9),
    Way("OMP_NUM_THREADS", ("tiny", "box"), omp_threads, ON_CPU, 1.05, 2.0),
    Way("CPU quota", ("tiny", "toy", "box"), quota, ON_CPU, 1.05, 4.0),
    Way("CPU affinity", ("tiny", "box"), affinity, ON_CPU, 1.05, 1.9),
    Way("CPU clock", ("box",), governor, ON_CPU, 1.05, 2.0),
)

NEIGHBOUR = Way("a process on the CPU", ("tiny", "toy", "box"), cpu_neighbour, ON_CPU, 1.05, 2.5, True)

DATA = (
    Way("fewer workers", ("box",), workers, grows("data"), 1.05, 4.0),
    Way("a slow disk", ("tiny", "box"), slow_disk, grows("data"), 1.05, 5.0, True),
    Way("slow tokenizing", ("tiny", "box"), tokenise, grows("data"), 1.05, 3.0),
    Way("toy told to wait", ("toy",), told_to_wait, grows("data", "wait"), 1.03, 5.0),
)

SWAP = Way("swapping", ("tiny", "box"), swap, ON_CPU, 1.05, 3.0, True)
LIMIT = Way("a memory limit", ("tiny", "box"), memory_limit, ON_CPU, 1.05, 2.5, True)
