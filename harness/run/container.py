"""A recipe in an image: the harness inside does what it does outside, on this machine's run folders and caches.

What the image is reaches the harness inside in variables, ``HARNESS_IMAGE_*``, and so the run's fingerprint.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UsageError
from harness.pin import gpus
from harness.pin.code import git
from harness.pin.fingerprint import variable_facts
from harness.pin.image.names import BASE, DIRTY, ENVIRONMENT, IN_EVERY_IMAGE, REVISION
from harness.places import Places
from harness.records import RunSpec
from harness.run.attached import attend
from harness.run.engine import Image

OPTIONS = "HARNESS_CONTAINER_OPTIONS"
"""The variable with what a machine's engine needs beside the usual options."""

_PASSED_ON = re.compile(r"MLFLOW_\w+|TERM|COLORTERM|NO_COLOR|COLUMNS")
_PLACES = ("LD_", "PYTHONPATH")
"""How variables begin that only make sense where they were set."""


@dataclass(frozen=True)
class Errand:
    """What to ask of the harness in ``image``.

    arguments   its command line
    folders     what it may write, and finds under the names that it has here
    read        what it may only read
    """

    image: Image
    arguments: tuple[str, ...]
    folders: tuple[Path, ...]
    read: tuple[Path, ...] = ()


def check_fits(image: Image, spec: RunSpec) -> None:
    """Raises UsageError, before anything starts, where ``image`` is none of ours or has not the spec's environment."""
    there = image.labels.get(ENVIRONMENT)
    if not there:
        raise UsageError(
            f"{image.name} is not an image of this project: it has no label {ENVIRONMENT}; build one: {build(spec)}"
        )
    if spec.env not in (there, *IN_EVERY_IMAGE):
        raise UsageError(
            f"{spec.recipe or spec.argv[0]} needs the environment {spec.env}, and {image.name} has {there}; "
            f"build another: {build(spec)}"
        )


def build(spec: RunSpec) -> str:
    """The command that builds an image for ``spec``."""
    return "nox -s image" if spec.env in IN_EVERY_IMAGE else f"nox -s image -- {spec.env}"


def other_code(image: Image, root: Path) -> str:
    """In a line, how the image's code differs from the checkout's; empty where it does not, or nobody knows."""
    inside, here = image.labels.get(REVISION, ""), git(root, "rev-parse", "HEAD")
    if not inside or here is None:
        return ""
    revision, commit = inside.removesuffix(DIRTY), here.decode().strip()
    if revision != commit:
        return f"the code in {image.name} is of commit {revision[:12]}, and this checkout is at {commit[:12]}"
    if inside != revision:
        return f"{image.name} was built with changes that were not committed"
    changed = git(root, "status", "--porcelain")
    return f"this checkout has changes that {image.name} has not" if changed else ""


def written(where: Places, store: Path | None) -> tuple[Path, ...]:
    """The folders of this machine that a run writes: its record, caches, models, and where MLflow's ``store`` is."""
    state = (where.caches, where.models, where.state / "doctor")
    return (where.runs, *state, *([store] if store else []))


def run_in_image(errand: Errand, where: Places, terminal: bool) -> int:
    """Start the container and stay with it to its end; the exit code of the harness inside.

    Raises UsageError where a folder cannot be made, HarnessError where the engine fails.
    """
    with gpus.opened() as cards:
        with_gpus = bool(cards.cards)
    for folder in errand.folders:
        _make(folder)
    name = f"harness-{errand.arguments[0]}-{secrets.token_hex(4)}"
    return attend(errand.image.engine, name, command(errand, where, name, terminal, with_gpus), terminal)


def command(errand: Errand, where: Places, name: str, terminal: bool, with_gpus: bool) -> list[str]:
    """The engine's command line."""
    image, engine = errand.image, errand.image.engine
    return [
        engine.program,
        "run",
        "--rm",
        "--pull=never",
        f"--name={name}",
        "--sig-proxy=false",  # signals are passed on here, each once
        *(["--interactive", "--tty"] if terminal else []),
        "--network=host",  # an MLflow server of this machine is at localhost inside too
        "--ipc=host",  # /dev/shm of the machine's own size, for loader processes and NCCL
        "--security-opt=label=disable",  # under SELinux, folders of this machine could not be used
        *engine.user_options(os.getuid(), os.getgid()),
        *([*engine.gpu_options(), "--env=NVIDIA_DRIVER_CAPABILITIES=compute,utility"] if with_gpus else []),
        *_mounts(errand.folders, ""),
        *_mounts(errand.read, ",readonly"),
        *(f"--env={item}" for item in _variables(image, where, os.environ)),
        *shlex.split(os.environ.get(OPTIONS, "")),
        image.digest,
        *errand.arguments,
    ]


def _mounts(folders: Iterable[Path], mode: str) -> list[str]:
    """Each folder under its own name, so that what a record says of them is true outside as well."""
    return [f"--mount=type=bind,source={folder},target={folder}{mode}" for folder in folders]


def _make(folder: Path) -> None:
    """Docker makes a folder that is missing as root, and podman refuses it."""
    if "," in str(folder):
        raise UsageError(f"{folder} has a comma in its name, and a container cannot be given it; set HARNESS_RUNS")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be made: {error.strerror}; HARNESS_RUNS and HARNESS_STATE name others"
        ) from None


def _variables(image: Image, where: Places, here: Mapping[str, str]) -> list[str]:
    """``NAME=value`` for what the harness inside must know; ``NAME`` alone for what it has as it is here.

    By name alone, so that a password of MLflow's is on no command line. What can change a run's speed goes along,
    unless its value is a place on this machine.
    """
    told = {
        "HOME": "/tmp",  # the user need not be known inside, and writes nowhere else
        "HARNESS_RUNS": str(where.runs),
        "HARNESS_STATE": str(where.state),
        "HARNESS_IMAGE_TAG": image.name,
        "HARNESS_IMAGE_DIGEST": image.digest,
        "HARNESS_IMAGE_REVISION": image.labels.get(REVISION, ""),
        "HARNESS_IMAGE_BASE": image.labels.get(BASE, ""),
        "HARNESS_IMAGE_ENGINE": image.engine.version,
    }
    fast_or_slow = {fact.rpartition(".")[2]: str(value) for fact, value in variable_facts(here).items()}
    names = {name for name, value in fast_or_slow.items() if "/" not in value and not name.startswith(_PLACES)}
    names |= {name for name in here if _PASSED_ON.fullmatch(name)}
    return [*(f"{name}={value}" for name, value in told.items() if value), *sorted(names)]
