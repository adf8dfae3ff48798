"""Puts stand-ins for container engines where the harness finds them, and reads what they were asked."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.run import fake_engine

DIGEST = "sha256:" + "ab" * 32
LABELS: Mapping[str, str] = {"dflash.environment": "cpu", "org.opencontainers.image.base.name": "debian@sha256:12"}


@dataclass(frozen=True)
class FakeEngine:
    """One engine on ``PATH``, which is ``bin`` alone."""

    kind: str
    folder: Path
    bin: Path

    @classmethod
    def install(cls, kind: str, under: Path) -> FakeEngine:
        """An engine without images."""
        engine = cls(kind, under / f"{kind}-state", under / "bin")
        engine.folder.mkdir(parents=True)
        engine.bin.mkdir(exist_ok=True)
        program = engine.bin / kind
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -S {fake_engine.__file__} {kind} {engine.folder} "$@"\n')
        program.chmod(0o755)
        engine.has({})
        engine.inside("pass")
        return engine

    def has(self, images: Mapping[str, Mapping[str, str] | None], digest: str = DIGEST) -> None:
        """Give it images by name, each with its labels; each is found by ``digest`` too."""
        found = {name: {"Id": digest, "Config": {"Labels": labels}} for name, labels in images.items()}
        by_digest = {str(image["Id"]): image for image in found.values()}
        (self.folder / "images.json").write_text(json.dumps({**found, **by_digest}))

    def inside(self, script: str) -> None:
        """What every container runs."""
        (self.folder / "inside.py").write_text(script)

    def asked(self, verb: str) -> list[list[str]]:
        """The commands of one kind, as they came."""
        lines = (self.folder / "asked").read_text().splitlines() if (self.folder / "asked").exists() else []
        return [command for line in lines if (command := json.loads(line))[0] == verb]

    @property
    def containers(self) -> list[int]:
        """The processes of containers that still run."""
        pids = [int(path.read_text()) for path in self.folder.glob("*.pid")]
        return [pid for pid in pids if fake_engine.alive(pid)]
