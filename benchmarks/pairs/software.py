"""Changes of what runs: compile cache, compiler, packages, code, and what the trainer does beside its steps."""

from __future__ import annotations

import dataclasses
import random

from benchmarks.pairs.bases import NOTHING
from benchmarks.pairs.patches import diff
from benchmarks.pairs.plan import Compiling, Plan, Pulse, cost, solve, step_seconds, stretch
from benchmarks.pairs.ways import ALL_COMPUTE, COMPUTE, HOST, MODEL, Patterns, Way, all_of, grows
from harness.records import CacheState, digest

AGAIN = "an input changed its shape, type or layout"

# --- the compile cache -----------------------------------------------------------------------------------


def _first_step(plan: Plan) -> float:
    compiled = sum(c.seconds for c in plan.compiles if c.step == 1)
    return plan.start_s + sum(s for _, s in plan.evals_before) + compiled + step_seconds(plan, late=False)


def _compile_longer(plan: Plan, size: float, hits: int) -> None:
    """The first step's compilations take so long that the first step comes ``size`` times as late."""
    more = (size - 1) * _first_step(plan)
    old = plan.compiles or [Compiling(1, "line", 0.0)]
    took = sum(c.seconds for c in old)
    plan.compiles = [
        dataclasses.replace(c, seconds=c.seconds + more * (c.seconds / took if took else 1.0), hits=hits, misses=2)
        for c in old
    ]


def cold(plan: Plan, size: float, _: random.Random) -> Patterns:
    """The cache was cleared, or is on another disk: everything is compiled."""
    _compile_longer(plan, size, 0)
    plan.cache_before = NOTHING
    return ("state.cache.*", "observed.cache*", "observed.compile*")


def partial(plan: Plan, size: float, dice: random.Random) -> Patterns:
    """A part of the cache is there: some graphs hit, others do not."""
    _compile_longer(plan, size, 1)
    share = dice.uniform(0.05, 0.5)
    state = plan.cache_before
    plan.cache_before = CacheState(round(state.bytes * share), max(2, round(state.entries * share)))
    return ("state.cache.*", "observed.cache*", "observed.compile*")


def toy_cold(plan: Plan, size: float, _: random.Random) -> Patterns:
    plan.cache_before = plan.cache_after = NOTHING
    seconds = round((size - 1) * _first_step(plan), 3)
    plan.set("cold_start", seconds)
    plan.compiles = [Compiling(1, "line", seconds, misses=1, reason="the first call")]
    return ("execution.cold_start", "observed.cache*", "observed.compile*")


# --- the compiler ----------------------------------------------------------------------------------------


def recompiles(plan: Plan, size: float, dice: random.Random) -> Patterns:
    """Shapes change now and then, and each new one is compiled in the middle of the run."""
    found: Patterns = ("observed.recompile*", "observed.compile*", "observed.cache*")
    if plan.base == "box" and dice.random() < 0.5:
        plan.set("data.bucket", 1, "execution")
        found = (*found, "execution.data.bucket")
    count = max(3, plan.steps // dice.choice((20, 40)))
    steps = sorted(dice.sample(range(10, plan.steps), count))

    def alter(tried: Plan, x: float) -> None:
        tried.compiles = tried.compiles + [
            Compiling(step, f"graph 0/{n + 1} forward", x, misses=1, reason=AGAIN) for n, step in enumerate(steps)
        ]

    solve(plan, size, alter)
    return found


def recompile_limit(plan: Plan, size: float, dice: random.Random) -> Patterns:
    """After eight recompilations dynamo gives up, and the function runs uncompiled from there on."""
    steps = sorted(dice.sample(range(4, max(20, plan.steps // 6)), 8))
    seconds = dice.uniform(0.5, 2.0)
    plan.compiles = plan.compiles + [
        Compiling(step, f"graph 0/{n + 1} forward", seconds, misses=1, reason=AGAIN) for n, step in enumerate(steps)
    ]
    stretch(plan, size, MODEL, since=steps[-1] / plan.steps)
    plan.stderr.append("W torch/_dynamo/convert_frame.py] torch._dynamo hit config.recompile_limit (8)")
    return ("observed.recompile*", "observed.compile*", "observed.dense*", "observed.cache*")


def uncompiled(plan: Plan, size: float, dice: random.Random) -> Patterns:
    """Nothing is compiled any more: the setting says so, or no compiler was found."""
    stretch(plan, size, MODEL)
    plan.told["execution.compile.used"] = "none"
    plan.compiles, plan.cache_before = [], plan.cache_after
    if dice.random() < 0.5:
        plan.set("compile", "none")
    else:
        plan.notes.append("compile=auto: no C++ compiler was found, so nothing is compiled")
    return ("execution.compile", "execution.compile.used", "observed.dense*")


# --- packages --------------------------------------------------------------------------------------------

# package -> (version after, phases that it runs, the same by their short names)
_ON_BOTH = {
    "torch": ({"tiny": "2.14.1+cpu", "box": "2.15.0"}, COMPUTE, ALL_COMPUTE),
    "transformers": ({"tiny": "5.26.0", "box": "5.26.0"}, ("drafter.target", "target.forward"), grows("target")),
    "tokenizers": ({"tiny": "0.24.0", "box": "0.24.0"}, ("drafter.data", "target.data"), grows("data")),
}
_ON_BOX = {
    "triton": ("3.9.0", MODEL, grows("forward", "backward")),
    "nvidia-cudnn-cu13": ("9.12.0.46", (*MODEL, "target.forward"), grows("target", "forward", "backward")),
    "nvidia-cublas": ("13.0.2.14", (*MODEL, "target.forward"), grows("target", "forward", "backward")),
    "nvidia-nccl-cu13": ("2.28.9", ("drafter.communication",), grows("communication")),
}
_LIBRARY = {
    "nvidia-cudnn-cu13": "libcudnn.so.9",
    "nvidia-nccl-cu13": "libnccl.so.2",
    "nvidia-cublas": "libcublas.so.13",
}


def package(name: str) -> Way:
    """A package of both bases in another version."""
    after, phases, grown = _ON_BOTH[name]

    def apply(plan: Plan, size: float, _: random.Random) -> Patterns:
        stretch(plan, size, all_of(plan, *phases))
        plan.package(name, after[plan.base])
        if name != "torch":
            return (f"environment.package.{name}",)
        plan.facts["environment.torch.build"] = after[plan.base] + ("" if plan.base == "tiny" else "+cu130")
        plan.facts["environment.torch.commit"] = digest(["torch", after])[:40]
        return ("environment.package.torch", "environment.torch.build", "environment.torch.commit")

    return Way(f"the package {name}", ("tiny", "box"), apply, grown, 1.03, 4.0 if name == "torch" else 2.0)


def cuda_package(name: str) -> Way:
    """A library of CUDA in another version; the processes load the new file."""
    after, phases, grown = _ON_BOX[name]

    def apply(plan: Plan, size: float, _: random.Random) -> Patterns:
        stretch(plan, size, phases)
        plan.package(name, after)
        found = f"environment.package.{name}"
        if name not in _LIBRARY:
            return (found,)
        plan.facts[f"state.loaded.{_LIBRARY[name]}"] = f"{name} {after} sha256:{digest([name, after])[:12]}"
        return (found, f"state.loaded.{_LIBRARY[name]}")

    return Way(f"the package {name}", ("box",), apply, grown, 1.03, 4.0)


def driver(plan: Plan, size: float, _: random.Random) -> Patterns:
    stretch(plan, size, COMPUTE)
    plan.facts["environment.gpu.driver"], plan.facts["environment.gpu.driver_cuda"] = "590.44.01", "13.1"
    return ("environment.gpu.driver", "environment.gpu.driver_cuda")


def library_from_outside(plan: Plan, size: float, dice: random.Random) -> Patterns:
    """The package is the same, but another copy of its library is found first."""
    name = dice.choice(tuple(_LIBRARY))
    _, phases, _ = _ON_BOX[name]
    stretch(plan, size, phases)
    library, folder = _LIBRARY[name], "/usr/local/cuda-13.0/lib64"
    plan.facts[f"state.loaded.{library}"] = f"outside {folder} sha256:{digest([library, folder])[:12]}"
    plan.facts["environment.variable.LD_LIBRARY_PATH"] = folder
    return (f"state.loaded.{library}", "environment.variable.LD_LIBRARY_PATH")


# --- code ------------------------------------------------------------------------------------------------

_PATCHES = (
    (
        "loss.py",
        "    return (weights * losses).sum()",
        ["    losses = losses.double()", "    float(losses.sum())"],
        MODEL,
    ),
    (
        "model.py",
        "        hidden = self.norm(hidden)",
        ["        for _ in range(2):", "            self.layer(hidden)"],
        MODEL,
    ),
    ("data.py", "    rows = order[start:stop]", ["    rows = sorted(rows, key=lambda row: len(texts[row]))"], HOST[:1]),
    (
        "optim.py",
        "    optimizer.step()",
        ["    norms = [float(p.grad.norm()) for p in parameters]"],
        ("drafter.optimizer",),
    ),
    ("targets.py", "    outputs = model(tokens)", ["    model(tokens)  # warm"], ("drafter.target", "target.forward")),
)


def patch(plan: Plan, size: float, dice: random.Random) -> Patterns:
    """Somebody edited the trainer, and did not commit it."""
    fitting = [p for p in _PATCHES if all_of(plan, *p[3])]
    file, line, added, phases = dice.choice(fitting)
    stretch(plan, size, all_of(plan, *phases))
    path = "experiments/toy.py" if plan.base == "toy" else f"experiments/dflash/{file}"
    plan.patch += diff(path, line, added)
    return ("code.patch*", "code.dirty")


def commit(plan: Plan, size: float, dice: random.Random) -> Patterns:
    """Another commit of the trainer."""
    *_, phases = dice.choice([p for p in _PATCHES if all_of(plan, *p[3])])
    stretch(plan, size, all_of(plan, *phases))
    plan.facts["code.commit"] = digest(["another", dice.random()])[:40]
    return ("code.commit",)


# --- beside the steps ------------------------------------------------------------------------------------


def interval(what: str) -> Way:
    """What is done every so many steps is done more often: evaluations, checkpoints, or reading the loss."""

    def apply(plan: Plan, size: float, dice: random.Random) -> Patterns:
        every = 1 if what == "log" else max(5, plan.steps // dice.choice((8, 12, 20)))
        inside = what == "log" or dice.random() < 0.75  # some trainers stop between two steps for it
        seconds = (size - 1) * cost(plan) * plan.tokens * len(plan.counting.devices) * every
        plan.pulses.append(Pulse(what, every, seconds, inside))
        key = f"train.{ {'eval': 'eval_every', 'checkpoint': 'checkpoint_every', 'log': 'log_every'}[what] }"
        plan.set(key, every, "execution")
        return (f"execution.{key}", f"observed.{what}*", "observed.*per_1000_steps")

    return Way(f"{what} more often", ("tiny", "box"), apply, grows("other"), 1.05, 3.0, what != "log")


CACHE = (
    Way("a cold cache", ("tiny", "box"), cold, grows("compile"), 1.3, 5.0, True, first=True),
    Way("a partial cache", ("tiny", "box"), partial, grows("compile"), 1.3, 3.0, True, first=True),
    Way("toy compiles first", ("toy",), toy_cold, grows("compile"), 2.0, 8.0, True, first=True),
)

RECOMPILES = (
    Way("recompiles", ("tiny", "box"), recompiles, grows("compile"), 1.1, 3.0, True),
    Way("the recompile limit", ("tiny", "box"), recompile_limit, grows("forward", "backward"), 1.2, 3.0, True),
)

UNCOMPILED = Way("uncompiled", ("tiny",), uncompiled, grows("forward", "backward", "compile"), 1.15, 2.5, True)

PACKAGES = (
    *(package(name) for name in _ON_BOTH),
    *(cuda_package(name) for name in _ON_BOX),
    Way("the driver", ("box",), driver, ALL_COMPUTE, 1.03, 1.6),
    Way(
        "a library from outside",
        ("box",),
        library_from_outside,
        grows("target", "forward", "backward", "communication"),
    ),
)

# Uncommitted work twice: it is what a person forgets.
# Uncommitted work twice: it is what a person forgets.
PATCHES = (
    Way("a patch", ("tiny", "toy", "box"), patch, ALL_COMPUTE | grows("data", "other"), 1.03, 4.0),
    Way("a patch", ("tiny", "box"), patch, ALL_COMPUTE | grows("data", "other"), 1.03, 4.0),
    Way("a commit", ("tiny", "toy", "box"), commit, ALL_COMPUTE | grows("data", "other"), 1.03, 4.0),
)

INTERVALS = tuple(interval(what) for what in ("eval", "checkpoint", "log"))
