"""A stand-in for a builder: it keeps what it was given, and makes images of nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.pin.image.builders import BuildFailed, BuiltImage


@dataclass
class Shelf:
    """A builder that makes what it is told to, or fails; it keeps the names that it was asked to give."""

    labels: Mapping[str, str] = field(default_factory=dict)
    failure: str = ""
    name: str = "a shelf"
    arguments: dict[str, str] = field(default_factory=dict)
    context: list[str] = field(default_factory=list)
    tags: dict[str, str] = field(default_factory=dict)

    def build(self, context: Path, arguments: Mapping[str, str], line: Callable[[str], None]) -> str:
        self.arguments, self.context = dict(arguments), sorted(path.name for path in context.iterdir())
        line("[1/2] STEP 1/9: FROM  base   AS tools")
        line("Setting up libgcc ...")
        if self.failure:
            raise BuildFailed(self.failure)
        return "sha256:" + "1" * 64

    def tag(self, identity: str, name: str) -> None:
        self.tags[name] = identity

    def inspect(self, name: str) -> BuiltImage | None:
        identity = self.tags.get(name, name)
        return BuiltImage(identity, 1000, self.labels, ("sha256:layer",)) if identity.startswith("sha256:") else None
