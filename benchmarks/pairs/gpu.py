"""Changes of the cards: clocks, other processes, links, the attention kernel, memory. The box only, so synthetic."""

from __future__ import annotations

import dataclasses
import random

from benchmarks.pairs.bases import CARDS, DRAFTERS, TARGETS
from benchmarks.pairs.patches import diff
from benchmarks.pairs.plan import Gauge, Plan, Pulse, cost, stretch
from benchmarks.pairs.ways import ALL_COMPUTE, COMPUTE, MODEL, Patterns, Way, grows

CLOCK = ("observed.gpu.*clock*", "observed.gpu.*throttle*")


def _slower_clocks(plan: Plan, size: float, cards: tuple[int, ...], since: float) -> float:
    """Whatever a card computes takes longer by one factor, and its clock shows by which."""
    devices = tuple(f"cuda:{card}" for card in cards)
    factor = stretch(plan, size, COMPUTE, devices, since)
    for card in cards:
        plan.turn(f"gpu.{card}.clock", plan.gauges[f"gpu.{card}.clock"].value / factor, since)
    plan.throttled_cards = cards
    return factor


def _all_or_few(dice: random.Random) -> tuple[int, ...]:
    """Every card, or those of one role: one fan, one power feed."""
    return dice.choice((tuple(range(CARDS)), tuple(range(5, CARDS)), tuple(range(CARDS))))


def power_limit(plan: Plan, size: float, dice: random.Random) -> Patterns:
    cards = _all_or_few(dice) if size < 1.6 else tuple(range(CARDS))
    _slower_clocks(plan, size, cards, 0.0)
    limit = float(round(600 / size**1.5 / 25) * 25)  # power goes with more than the first power of the clock
    for card in cards:
        plan.facts[f"environment.gpu.{card}.power.limit_w"] = limit
        plan.turn(f"gpu.{card}.power", min(limit - 2, plan.gauges[f"gpu.{card}.power"].value))
    plan.throttled["power_cap"] = Gauge(0.95, 0.95)
    return ("environment.gpu.*.power.limit_w", "observed.gpu.*power*", *CLOCK)


def heat(plan: Plan, size: float, dice: random.Random) -> Patterns:
    since = dice.choice((0.0, 0.0, 0.35))
    cards = _all_or_few(dice)
    _slower_clocks(plan, size, cards, since)
    for card in cards:
        plan.turn(f"gpu.{card}.temperature", dice.uniform(87, 91), since)
        plan.turn(f"gpu.{card}.power", 0.75 * plan.gauges[f"gpu.{card}.power"].value, since)
    reason = dice.choice(("software_thermal", "hardware_slowdown,hardware_thermal"))
    plan.throttled[reason] = Gauge(0.0 if since else 0.9, 0.9, since)
    return ("observed.gpu.*temperature*", *CLOCK)


def hot_card(plan: Plan, size: float, dice: random.Random) -> Patterns:
    """One drafter's card alone: its twins wait for it at the all-reduce."""
    card = dice.choice((5, 6, 7))
    _slower_clocks(plan, size, (card,), 0.0)
    plan.turn(f"gpu.{card}.temperature", 90.0)
    plan.throttled["software_thermal"] = Gauge(0.9, 0.9)
    return ("observed.gpu.*temperature*", *CLOCK)


def power_brake(plan: Plan, size: float, dice: random.Random) -> Patterns:
    since = dice.choice((0.0, 0.3))
    _slower_clocks(plan, size, tuple(range(CARDS)), since)
    for card in range(CARDS):
        plan.turn(f"gpu.{card}.power", 280.0, since)
    plan.throttled["hardware_slowdown,power_brake"] = Gauge(0.0 if since else 1.0, 1.0, since)
    return ("observed.gpu.*power*", *CLOCK)


def locked_clocks(plan: Plan, size: float, _: random.Random) -> Patterns:
    """Somebody set the application clocks: no heat, no power limit, only the clock and its reason."""
    _slower_clocks(plan, size, tuple(range(CARDS)), 0.0)
    for card in range(CARDS):
        plan.turn(f"gpu.{card}.power", 300.0)
    plan.throttled["application_clocks"] = Gauge(1.0, 1.0)
    return CLOCK


def gpu_neighbour(plan: Plan, size: float, dice: random.Random) -> Patterns:
    """Another process takes turns on a card; it was there before the run, or came later."""
    since = dice.choice((0.0, 0.0, 0.4))
    card = dice.choice((5, 6, 7))
    stretch(plan, size, MODEL, (f"cuda:{card}",), since)
    plan.turn(f"gpu.{card}.other_memory", dice.uniform(4e9, 1.2e10), since)
    plan.turn(f"gpu.{card}.other_processes", 1.0, since)
    plan.turn(f"gpu.{card}.use", 100.0, since)
    found = ("observed.gpu.*other*", "observed.gpu.*memory*", "observed.gpu.*process*")
    return (
        *found,
        "state.gpu.*.processes",
        "state.gpu.*.memory_used_bytes",
        "state.gpu.*.use_pct",
        "state.gpu.*.memory_use_pct",
    )


def dense_attention(plan: Plan, size: float, _: random.Random) -> Patterns:
    """FlexAttention is called uncompiled: the whole score matrix is made, in the drafter's forward and backward."""
    stretch(plan, size, MODEL)
    plan.told["execution.attention.used"] = "dense"
    _dense_traces(plan)
    return ("execution.attention.used", "execution.attention", "observed.dense*", "observed.attention*")


def dense_by_patch(plan: Plan, size: float, dice: random.Random) -> Patterns:
    """The seeds' 4.3 Ktok/s: the tracing check was patched away, and what the patch let through was not compiled."""
    stretch(plan, size, MODEL)
    plan.patch += DENSE_PATCH
    if dice.random() < 0.5:
        plan.told["execution.attention.used"] = "dense"
    _dense_traces(plan)
    return ("code.patch*", "execution.attention.used", "observed.dense*", "observed.attention*")


def _dense_traces(plan: Plan) -> None:
    plan.stderr.append(DENSE_WARNING)
    plan.compiles = plan.compiles[:1]
    for card in range(5, CARDS):
        plan.turn(f"gpu.{card}.memory", 9.9e10)


# The warning of torch/nn/attention/flex_attention.py.
DENSE_WARNING = (
    "UserWarning: flex_attention called without torch.compile() - this will use an unfused implementation that "
    "materializes the full scores matrix instead of generating a fused kernel."
)

DENSE_PATCH = diff(
    "experiments/dflash/compiling.py",
    "import torch",
    ["import torch.fx._symbolic_trace as _fxst", "", "_fxst.is_fx_symbolic_tracing = lambda: False"],
)


def fewer_drafters(plan: Plan, _: float, __: random.Random) -> Patterns:
    """Two drafters instead of three: each as fast as before, so a third of the tokens is missing."""
    return _devices(plan, TARGETS, DRAFTERS[:2])


def fewer_targets(plan: Plan, size: float, _: random.Random) -> Patterns:
    """Targets were given away: the drafters wait for their items."""
    goal = cost(plan) * size
    for count in (4, 3, 2, 1):
        found = _devices(plan, TARGETS[:count], DRAFTERS)
        if cost(plan) >= goal:
            break
    return found


def _devices(plan: Plan, targets: tuple[str, ...], drafters: tuple[str, ...]) -> Patterns:
    plan.roles["target"].devices, plan.roles["drafter"].devices = targets, drafters
    devices = (*(f"target:{d}" for d in targets), *(f"drafter:{d}" for d in drafters))
    plan.spec = dataclasses.replace(plan.spec, devices=devices)
    return ("execution.devices", "observed.devices*", "observed.*.devices")


def topology(plan: Plan, size: float, _: random.Random) -> Patterns:
    """Processes and a collective library instead of threads that share memory."""
    stretch(plan, size, ("drafter.communication", "target.communication"))
    plan.set("topology", "processes", "execution")
    return ("execution.topology",)


def no_peer_to_peer(plan: Plan, size: float, dice: random.Random) -> Patterns:
    stretch(plan, size, ("drafter.communication",))
    name = dice.choice(("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"))
    plan.facts[f"environment.variable.{name}"] = "1"
    return (f"environment.variable.{name}",)


def narrow_link(plan: Plan, size: float, dice: random.Random) -> Patterns:
    """A card sits in another slot, or its link was trained down."""
    stretch(plan, size, ("drafter.communication",))
    card = dice.choice((5, 6, 7))
    plan.turn(f"gpu.{card}.width", float(dice.choice((4, 8))))
    return ("state.gpu.*.pcie.width", "state.gpu.*.pcie.generation", "observed.gpu.*pcie*")


def allocator_retries(plan: Plan, size: float, dice: random.Random) -> Patterns:
    """The caching allocator runs out, frees what it holds, and asks the driver again: each time the device stands."""
    stretch(plan, size, MODEL)
    for card in range(5, CARDS):
        plan.turn(f"gpu.{card}.memory", 1.015e11)
    plan.metrics["alloc_retries"] = Gauge(0.6, 0.6)
    plan.pulses.append(Pulse("retries", 25, 0.0, text="the CUDA caching allocator freed its cache and tried again"))
    found: Patterns = ("observed.alloc*", "observed.memory*", "observed.gpu.*memory*")
    if dice.random() < 0.5:
        del plan.facts["environment.variable.PYTORCH_CUDA_ALLOC_CONF"]
        return (*found, "environment.variable.PYTORCH_CUDA_ALLOC_CONF")
    return found


THROTTLE = (
    Way("power limit", ("box",), power_limit, ALL_COMPUTE, 1.03, 2.2, True),
    Way("heat", ("box",), heat, ALL_COMPUTE, 1.03, 2.0, True),
    Way("one hot card", ("box",), hot_card, ALL_COMPUTE, 1.03, 2.0, True),
    Way("power brake", ("box",), power_brake, ALL_COMPUTE, 1.2, 3.0, True),
    Way("locked clocks", ("box",), locked_clocks, ALL_COMPUTE, 1.03, 2.5, True),
)

DENSE = (
    Way("dense attention", ("box",), dense_attention, grows("forward", "backward", "compile"), 1.5, 5.0, True),
    Way("dense by a patch", ("box",), dense_by_patch, grows("forward", "backward", "compile"), 1.5, 5.0, True),
)

TOPOLOGY = (
    Way(
        "fewer drafters",
        ("box",),
        fewer_drafters,
        ALL_COMPUTE | grows("tokens", "communication", "data", "other"),
        1.4,
        1.6,
        True,
    ),
    Way("fewer targets", ("box",), fewer_targets, grows("target", "wait"), 1.2, 5.0, True),
    Way("processes for threads", ("box",), topology, grows("communication"), 1.03, 1.8),
    Way("no peer to peer", ("box",), no_peer_to_peer, grows("communication"), 1.03, 2.5),
    Way("a narrow link", ("box",), narrow_link, grows("communication"), 1.03, 2.0),
)

NEIGHBOUR = Way("a process on a GPU", ("box",), gpu_neighbour, grows("forward", "backward"), 1.05, 2.5, True)
RETRIES = Way("allocator retries", ("box",), allocator_retries, grows("forward", "backward"), 1.05, 2.0, True)
