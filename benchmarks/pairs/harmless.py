"""Changes that did nothing: those that cannot touch speed, and those that could have and did not.

``touches`` are the phases that somebody could suspect of such a change. One that could be suspected of what a true
change made grow is drawn only where the true change leaves a mark of its own: else nobody could tell the two apart.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.pairs.bases import CARDS
from benchmarks.pairs.patches import diff
from benchmarks.pairs.plan import Plan
from benchmarks.pairs.ways import ALL_COMPUTE, grows
from harness.records import Value, digest

BUMPS = {
    "rich": "15.1.0",
    "tqdm": "4.71.0",
    "pygments": "2.22.0",
    "click": "8.6.0",
    "markdown-it-py": "4.4.0",
    "mdurl": "0.1.3",
    "idna": "3.21",
    "h11": "0.17.0",
    "anyio": "4.17.0",
    "httpx2": "2.17.0",
    "typer": "0.30.0",
    "shellingham": "1.5.5",
    "markupsafe": "3.0.5",
    "jinja2": "3.1.7",
    "annotated-doc": "0.0.8",
    "truststore": "0.10.6",
    "typing-extensions": "4.17.0",
}
"""Packages that format text, parse command lines or fetch files: none of them runs in a step."""

ADDED = {"matplotlib": "3.11.1", "seaborn": "0.14.0", "ipython": "9.9.0", "black": "26.10.0", "wandb": "0.29.0"}
"""Packages that were installed beside, and that the trainer does not import."""


@dataclass(frozen=True)
class Harmless:
    """``touches``: the phases that it could be suspected of; "all" for any."""

    name: str
    apply: Callable[[Plan, random.Random], None]
    touches: frozenset[str] = frozenset()
    bases: tuple[str, ...] = ("toy", "tiny", "box")

    def fits(self, plan: Plan, grown: frozenset[str]) -> bool:
        return plan.base in self.bases and not self.touches & grown and not ("all" in self.touches and grown)


def _fact(name: str, value: Value, *bases: str, touches: frozenset[str] = frozenset()) -> Harmless:
    def apply(plan: Plan, _: random.Random) -> None:
        plan.facts[name] = value

    return Harmless(name, apply, touches, bases or ("toy", "tiny", "box"))


def _setting(key: str, value: Value, *bases: str) -> Harmless:
    def apply(plan: Plan, _: random.Random) -> None:
        plan.set(key, value)

    return Harmless(key, apply, frozenset(), bases or ("tiny", "box"))


def _package(name: str, version: str, *bases: str, touches: frozenset[str] = frozenset()) -> Harmless:
    def apply(plan: Plan, _: random.Random) -> None:
        plan.package(name, version)

    return Harmless(f"package {name}", apply, touches, bases or ("tiny", "box"))


def _seed(plan: Plan, dice: random.Random) -> None:
    plan.set("seed" if plan.base == "toy" else dice.choice(("train.seed", "model.seed")), dice.randint(1, 99))
    if plan.base == "toy":
        plan.told["workload.seed"] = plan.config["seed"]


def _steps(plan: Plan, dice: random.Random) -> None:
    """A longer run, at the same pace."""
    plan.steps = round(plan.steps * dice.choice((1.1, 1.25, 1.5)))
    plan.set("steps" if plan.base == "toy" else "train.steps", plan.steps)


def _comment(plan: Plan, dice: random.Random) -> None:
    word = dice.choice(("Why", "See", "Note:"))
    plan.patch += diff("experiments/dflash/loss.py", "", [f"# {word} the decay is over positions, not over blocks."])


def _readme(plan: Plan, _: random.Random) -> None:
    plan.patch += diff("README.md", "## How to start", ["", "Ask on the list where something is not clear."])


def _tests(plan: Plan, _: random.Random) -> None:
    plan.patch += diff("tests/dflash/test_loss.py", "", ["def test_decay_is_monotonic() -> None:", "    pass"])


def _commit(plan: Plan, dice: random.Random) -> None:
    plan.facts["code.commit"] = digest(["documentation", dice.random()])[:40]


def _moved(plan: Plan, _: random.Random) -> None:
    for name in ("context.cwd", "context.code.root"):
        plan.facts[name] = "/home/dev/again/dflash"
    plan.facts["context.python"] = str(plan.facts["context.python"]).replace("/dflash/", "/again/dflash/")


def _doctor(plan: Plan, dice: random.Random) -> None:
    plan.facts["state.doctor.files"] = dice.randint(1_500, 32_000)


def _other_cards(plan: Plan, dice: random.Random) -> None:
    """Other cards of the same model."""
    for card in range(CARDS):
        plan.facts[f"context.gpu.{card}.uuid"] = (
            f"GPU-{digest([card, dice.random()])[:8]}-0000-0000-0000-{digest(card)[:12]}"
        )


def _vbios(plan: Plan, _: random.Random) -> None:
    for card in range(CARDS):
        plan.facts[f"environment.gpu.{card}.vbios"] = "98.02.5b.00.01"


def _nearly_unlimited(plan: Plan, _: random.Random) -> None:
    plan.facts["environment.cpu.limit"] = 56.0


def _warmer(plan: Plan, dice: random.Random) -> None:
    """A warmer room; no card is near its limit."""
    for card in range(CARDS):
        plan.turn(f"gpu.{card}.temperature", plan.gauges[f"gpu.{card}.temperature"].value + dice.uniform(2, 5))


def _driver(plan: Plan, _: random.Random) -> None:
    plan.facts["environment.gpu.driver"] = "580.105.08"


def _torch(plan: Plan, _: random.Random) -> None:
    plan.package("torch", "2.14.2" if plan.base == "box" else "2.13.1+cpu")
    plan.facts["environment.torch.build"] = "2.14.2+cu130" if plan.base == "box" else "2.13.1+cpu"
    plan.facts["environment.torch.commit"] = digest("the patch release")[:40]


HARMLESS = (
    *(_package(name, version) for name, version in BUMPS.items()),
    *(_package(name, version, "toy", "tiny", "box") for name, version in ADDED.items()),
    Harmless("another seed", _seed),
    Harmless("steps", _steps),
    _setting("train.lr", 2e-3),
    _setting("train.warmup", 0.05),
    _setting("train.clip", 0.5),
    _setting("eval.near_tie", 2e-3),
    _setting("train.eval_every", 4000),
    _setting("train.checkpoint_every", 4500),
    _setting("data.seed", 3),
    Harmless("a comment", _comment),
    Harmless("the README", _readme),
    Harmless("a test", _tests),
    Harmless("moved", _moved),
    Harmless("the doctor's count", _doctor),
    Harmless("other cards", _other_cards, bases=("box",)),
    Harmless("vbios", _vbios, bases=("box",)),
    Harmless("a quota that nobody reaches", _nearly_unlimited, bases=("box",)),
    Harmless("a warmer room", _warmer, bases=("box",)),
    _fact("context.host", "renamed"),
    _fact("environment.kernel", "6.1.0-29-amd64", "toy", "tiny"),
    _fact("environment.kernel", "6.8.12-16-pve", "box"),
    _fact("environment.os", "Ubuntu 24.04.4 LTS", "box"),
    _fact("environment.python.compiler", "GCC 13.3.1", "toy", "tiny", "box"),
    _fact("environment.shm.bytes", 128_000_000_000, "box"),
    _fact("environment.variable.NCCL_DEBUG", "INFO", "box"),
    _fact("environment.variable.HF_HOME", "/data/hf", "tiny", "box"),
    _fact("environment.variable.PYTHONHASHSEED", "0"),
    _fact("environment.variable.CUDA_DEVICE_ORDER", "PCI_BUS_ID", "box"),
    # What could have done something.
    Harmless("a commit", _commit, grows("all")),
    Harmless("a driver", _driver, ALL_COMPUTE | grows("communication"), ("box",)),
    Harmless("torch", _torch, ALL_COMPUTE | grows("communication", "compile"), ("tiny", "box")),
    _package("triton", "3.8.1", "box", touches=grows("forward", "backward", "target", "compile")),
    _package("nvidia-cudnn-cu13", "9.24.0.44", "box", touches=grows("forward", "backward", "target")),
    _package("nvidia-cublas", "13.1.1.5", "box", touches=ALL_COMPUTE),
    _package("nvidia-nccl-cu13", "2.30.8", "box", touches=grows("communication")),
    _package("nvidia-cufft", "12.0.0.63", "box"),
    _package("nvidia-curand", "10.4.0.37", "box"),
    _package("transformers", "5.24.1", touches=grows("target", "data", "forward")),
    _package("tokenizers", "0.23.4", touches=grows("data")),
    _package("regex", "2026.11.20", touches=grows("data")),
    _package("numpy", "2.4.7", touches=grows("data")),
    _package("safetensors", "0.8.1", touches=grows("checkpoint", "other")),
)
