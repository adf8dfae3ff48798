"""Builds the image of an environment: what can be known beforehand is checked first, and the name comes last."""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.errors import EnvironmentFault, UsageError
from harness.pin.aside import Say
from harness.pin.environments import environment, load_environments, lock_for
from harness.pin.image import names
from harness.pin.image.builders import Builder, BuildFailed, BuiltImage
from harness.pin.image.context import Revision, build_context, read_revision
from harness.places import Places
from harness.records import Environment, Lock


@dataclass(frozen=True)
class Wanted:
    """What an image is to hold, and be called."""

    env: Environment
    lock: Lock
    base: str
    python: str
    revision: Revision

    @property
    def tag(self) -> str:
        return names.tag(self.lock)

    @property
    def labels(self) -> dict[str, str]:
        return {
            names.ENVIRONMENT: self.env.name,
            names.LOCK: self.lock.digest,
            names.REVISION: self.revision.label,
            names.CREATED: self.revision.date,
            names.BASE: self.base,
        }


def wanted(
    name: str, where: Places, base: str | None = None, python: str | None = None, allow_dirty: bool = False
) -> Wanted:
    """The image of the environment ``name``, on the Dockerfile's base and Python unless others are asked for.

    Raises UsageError for an environment that there is not, that every image has, or that has no lock for the Python,
    and for a changed tree unless ``allow_dirty``.
    """
    env = environment(name, where)
    if name in names.IN_EVERY_IMAGE:
        others = ", ".join(other for other in load_environments(where) if other not in names.IN_EVERY_IMAGE)
        raise UsageError(f"{name} is in every image; name the environment to train in: {others}")
    python = python or _argument("PYTHON", where)
    lock, *_ = (lock_for(environment(held, where), python, where) for held in (name, *names.IN_EVERY_IMAGE))
    return Wanted(env, lock, base or _argument("BASE_IMAGE", where), python, read_revision(where.root, allow_dirty))


def _argument(name: str, where: Places) -> str:
    """What the Dockerfile gives its build argument ``name``."""
    text = (where.root / "Dockerfile").read_text(encoding="utf-8")
    if found := re.search(rf"^ARG {name}=(\S+)$", text, re.MULTILINE):
        return found[1]
    raise EnvironmentFault(f"{where.root / 'Dockerfile'} has no line ARG {name}=...; git checkout -- Dockerfile")


def find(wish: Wanted, builder: Builder) -> BuiltImage | None:
    """The image where it is built already: of this commit, lock and base, and from no changed tree."""
    image = builder.inspect(wish.tag)
    if image is None or wish.revision.dirty or not wish.labels.items() <= image.labels.items():
        return None
    return image


def build(wish: Wanted, builder: Builder, where: Places, say: Say) -> BuiltImage:
    """Build the image and call it by its tag. What the builder says goes to a log, each step of it to ``say``.

    Raises BuildFailed, in one line, where it fails; there is no image of the name then, or the one from before.
    """
    locks = [wish.lock, *(lock_for(environment(name, where), wish.python, where) for name in names.IN_EVERY_IMAGE)]
    arguments = {
        "BASE_IMAGE": wish.base,
        "PYTHON": wish.python,
        "ENV": wish.env.name,
        "LOCK": wish.lock.digest,
        "REVISION": wish.revision.label,
        "SOURCE_DATE": wish.revision.date,
        "SOURCE_DATE_EPOCH": str(wish.revision.epoch),
    }
    log = where.state / "logs" / f"image-{wish.env.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    say(f"building {wish.tag} with {builder.name} on {wish.base}; all that it says: {log}")
    given = build_context(where, wish.revision, wish.env, locks, say, os.environ)
    with _full_disk_named(where.state), given as context, log.open("w", encoding="utf-8") as file:
        progress = _Progress(say, time.monotonic())

        def line(text: str) -> None:
            file.write(text + "\n")
            progress.line(text)

        try:
            identity = builder.build(context, arguments, line)
        except BuildFailed as error:
            raise BuildFailed(f"no image was made: {error}; all that {builder.name} said: {log}") from error
    image = builder.inspect(identity)
    if image is None or not wish.labels.items() <= image.labels.items():
        raise EnvironmentFault(f"{builder.name} made an image without the labels of the Dockerfile; {log}")
    builder.tag(identity, wish.tag)
    return image


@contextmanager
def _full_disk_named(folder: Path) -> Iterator[None]:
    """Says of a full disk which one it is: Python names the file that was copied from another."""
    try:
        yield
    except OSError as error:
        if os.strerror(errno.ENOSPC) not in str(error):
            raise
        raise BuildFailed(
            f"no image was made: the disk of {folder} is full; make room, or name another folder by HARNESS_STATE"
        ) from error


@dataclass(frozen=True)
class _Progress:
    """The steps of a build, of all that a builder says, each with the time since the beginning."""

    say: Say
    begun: float

    def line(self, text: str) -> None:
        if re.match(r"(\[\d+/\d+\] )?(STEP|Step) \d+/\d+|\[\d+/\d+\] COMMIT|setting up \w+ \(", text):
            seconds = round(time.monotonic() - self.begun)
            step = " ".join(text.split())
            self.say(f"[{seconds // 60}:{seconds % 60:02}]  {step[:100]}{' ...' if len(step) > 100 else ''}")
