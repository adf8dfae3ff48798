"""What is to be tried: a grid of cells, each a way to compile from threads, and each tried several times. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, NamedTuple

GUARDS = ("none", "flag", "first-call", "both", "shim", "warm-up", "compile_guard")
BACKENDS = ("aot_eager", "inductor")
SHAPES = ("static", "changing")
WORK: Mapping[str, str] = {
    "flex": "flex_attention forward",
    "flex-backward": "flex_attention forward and backward",
    "mlp-backward": "MLP forward and backward",
}
"""What the child compiles, as ``experiments.race`` and as a person calls it."""


class Place(NamedTuple):
    """An environment to try: its name, the torch in it, and the device that its children have."""

    env: str
    torch: str
    device: str = "cpu"


@dataclass(frozen=True)
class Cell:
    """One way of doing it."""

    env: str
    torch: str
    device: str
    work: str
    backend: str
    guard: str
    shapes: str

    @property
    def name(self) -> str:
        """One line that tells it from every other cell."""
        where = "" if self.device == "cpu" else f" on {self.device}"
        return f"{self.env}: {WORK[self.work]}{where}, {self.backend}, {self.shapes} shapes, guard {self.guard}"

    @property
    def key(self) -> str:
        """The same as a short key, for a folder and a metric."""
        return f"{self.env}-{self.work}-{self.device}-{self.backend}-{self.shapes}-{self.guard}"


@dataclass(frozen=True)
class Grid:
    """Everything that was asked for. ``timeout``: seconds after which a try hangs."""

    places: tuple[Place, ...]
    backends: tuple[str, ...] = BACKENDS
    guards: tuple[str, ...] = ("none", "compile_guard")
    shapes: tuple[str, ...] = SHAPES
    backward: bool = False
    threads: int = 3
    tries: int = 3
    timeout: float = 300

    def cells(self) -> tuple[Cell, ...]:
        """The cells, in the order in which they are tried."""
        return tuple(
            Cell(*place, work=self._work(place), backend=backend, guard=guard, shapes=shapes)
            for place, backend, shapes, guard in product(self.places, self.backends, self.shapes, self.guards)
        )

    def _work(self, place: Place) -> str:
        """flex_attention has no backward on the CPU: an MLP, whose backward is compiled lazily, stands in for it."""
        if not self.backward:
            return "flex"
        return "mlp-backward" if place.device == "cpu" else "flex-backward"

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"places": [place._asdict() for place in self.places]}


def unique(names: Sequence[str]) -> tuple[str, ...]:
    """``names`` without those that were named before."""
    return tuple(dict.fromkeys(names))
