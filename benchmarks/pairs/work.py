"""Changes of the work itself: padding, the model's shape, the batch, the data. These need not stay comparable."""

from __future__ import annotations

import random

from benchmarks.pairs.plan import Plan, RolePlan, cost, stretch
from benchmarks.pairs.ways import ALL_COMPUTE, MODEL, Patterns, Way, all_of, grows
from harness.records import digest

PADDING = ("observed.padding*", "observed.tokens_per_step*", "observed.tokens.*", "observed.length*")

# --- padding ---------------------------------------------------------------------------------------------


def _pad(plan: Plan, size: float) -> None:
    """The same batch of slots, and fewer of them useful: a step takes as long, a useful token longer."""
    grid = plan.tokens + plan.padding
    plan.tokens = plan.tokens / size
    plan.padding = grid - plan.tokens


def unpacked(plan: Plan, size: float, _: random.Random) -> Patterns:
    _pad(plan, size)
    plan.set("data.packing", False)
    return (*PADDING, "execution.data.packing")


def bucket(plan: Plan, size: float, dice: random.Random) -> Patterns:
    """Sequences are padded to a multiple of more tokens."""
    _pad(plan, size)
    plan.set("data.bucket", dice.choice((256, 512, 1024)), "execution")
    return (*PADDING, "execution.data.bucket")


def unsorted(plan: Plan, size: float, _: random.Random) -> Patterns:
    """Long and short ones in one batch; which no recorded fact says."""
    _pad(plan, size)
    return PADDING


def toy_padding(plan: Plan, size: float, _: random.Random) -> Patterns:
    total = round(plan.tokens)
    plan.tokens = float(max(1, round(total / size)))
    plan.padding = total - plan.tokens
    plan.set("tokens", round(plan.tokens))
    plan.set("padding", round(plan.padding))
    return (*PADDING, "workload.tokens", "workload.padding")


# --- the model -------------------------------------------------------------------------------------------


def shape(plan: Plan, size: float, dice: random.Random) -> Patterns:
    """A larger drafter: its forward, backward and optimizer."""
    stretch(plan, size, all_of(plan, *MODEL, "drafter.optimizer"))
    tiny = plan.base == "tiny"
    name, value = dice.choice(
        (
            ("layers", 2 if tiny else 8),
            ("heads", 8 if tiny else 64),
            ("ffn", 1024 if tiny else 34816),
            ("head_dim", 64 if tiny else 256),
        )
    )
    plan.set(f"model.{name}", value)
    if name == "heads":
        plan.set("model.kv_heads", 4 if tiny else 16)
    parameters = plan.told["workload.model.parameters"]
    assert isinstance(parameters, int)
    plan.told["workload.model.parameters"] = round(parameters * (1 + (size - 1) * 0.8))
    return ("workload.model.*",)


def target_shape(plan: Plan, size: float, _: random.Random) -> Patterns:
    """tiny's target with more layers."""
    stretch(plan, size, ("drafter.target",))
    plan.set("target.layers", 8)
    plan.told["workload.target.parameters"] = 1_550_000
    plan.told["workload.target.digest"] = digest("eight layers")
    return ("workload.target.*",)


# --- the batch -------------------------------------------------------------------------------------------


def smaller_batch(plan: Plan, size: float, dice: random.Random) -> Patterns:
    """Fewer sequences a step: what a step costs whatever its batch is now weighs more on each token."""
    batch = plan.config["train.batch"]
    assert isinstance(batch, int)
    less = 2 if batch == 2 else dice.choice((2, 4))
    goal = cost(plan) * size
    plan.tokens, plan.padding = plan.tokens / less, plan.padding / less
    plan.set("train.batch", batch // less)
    # The share of a step that its batch does not change; 1 where ``less`` times as slow is not slow enough.
    fixed = min(1.0, max(0.0, (size - 1) / (less - 1)))
    for name, role in plan.roles.items():
        seconds = {n: s * (fixed + (1 - fixed) / less) for n, s in role.phases.items()}
        plan.roles[name] = RolePlan(role.devices, seconds)
    if cost(plan) < goal * 0.999:
        stretch(plan, goal / cost(plan), all_of(plan, "drafter.optimizer", "drafter.other", "drafter.communication"))
    return ("workload.train.batch", "observed.tokens_per_step*", "observed.tokens.*")


def anchors(plan: Plan, size: float, dice: random.Random) -> Patterns:
    """More blocks, or longer ones, for the same tokens of training sequences: all in the drafter's model."""
    stretch(plan, size, MODEL)
    key = dice.choice(("train.anchors", "model.block_size"))
    before = plan.config[key]
    assert isinstance(before, int)
    plan.set(key, before * (2 if size < 1.8 else 4))
    return (f"workload.{key}",)


# --- the data --------------------------------------------------------------------------------------------


def _other_data(plan: Plan, dice: random.Random) -> Patterns:
    plan.told["workload.data.digest"] = digest(["data", dice.random()])
    if dice.random() < 0.6:
        count = 1_100_000 if plan.base == "box" else 1024
        plan.told["workload.data.sequences"] = count
        plan.set("data.sequences", count)
    return ("workload.data.digest", "workload.data.sequences", "workload.data.kind", "workload.data.length")


def longer_sequences(plan: Plan, size: float, dice: random.Random) -> Patterns:
    """Longer texts: attention costs more for each token, in the model and in the target."""
    stretch(plan, size, all_of(plan, *MODEL, "drafter.target", "target.forward"))
    found = _other_data(plan, dice)
    if dice.random() < 0.5:
        length = plan.config["data.length"]
        assert isinstance(length, int)
        plan.set("data.length", length * 2)
        plan.tokens, plan.padding = plan.tokens * 2, plan.padding * 2
        _lengthen(plan, 2)
        return (*found, "observed.tokens_per_step*", "observed.length*")
    return found


def _lengthen(plan: Plan, factor: float) -> None:
    """Steps that take ``factor`` times as long."""
    for role in plan.roles.values():
        role.phases = {name: seconds * factor for name, seconds in role.phases.items()}


def shorter_texts(plan: Plan, size: float, dice: random.Random) -> Patterns:
    """Texts of many lengths, padded to the longest."""
    _pad(plan, size)
    return (*_other_data(plan, dice), *PADDING)


PADDED = (
    Way("unpacked", ("box",), unpacked, grows("padding"), 1.05, 3.0, True),
    Way("longer buckets", ("tiny", "box"), bucket, grows("padding"), 1.05, 3.0, True),
    Way("unsorted lengths", ("tiny", "box"), unsorted, grows("padding"), 1.05, 2.0, True),
    Way("toy's padding", ("toy",), toy_padding, grows("padding"), 1.05, 5.0, True),
)

# The drafter twice: two in three of the pairs of this kind.
SHAPES = (
    Way("a larger drafter", ("tiny", "box"), shape, grows("forward", "backward", "optimizer"), 1.05, 3.0),
    Way("a larger drafter", ("tiny", "box"), shape, grows("forward", "backward", "optimizer"), 1.05, 3.0),
    Way("a larger target", ("tiny",), target_shape, grows("target"), 1.05, 2.0),
)

A_STEP = ALL_COMPUTE | grows("tokens", "data", "communication", "other")
"""What a step costs whatever its batch is weighs more on each token of a small one."""

BATCHES = (
    Way("a smaller batch", ("tiny", "box"), smaller_batch, A_STEP, 1.05, 1.9),
    Way("more blocks", ("tiny", "box"), anchors, grows("forward", "backward"), 1.05, 3.0),
)

DATASETS = (
    Way("longer sequences", ("tiny", "box"), longer_sequences, grows("target", "forward", "backward"), 1.05, 2.5),
    Way("shorter texts", ("tiny", "box"), shorter_texts, grows("padding"), 1.05, 3.0),
)
