"""The container engine of this machine, docker or podman, and the images that it has."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from harness.errors import UsageError

_LOOKED_FOR = ("docker", "podman")
_ANSWER_S = 20.0
"""Seconds that an engine has to answer. One that takes longer hangs, as docker does where its disk is gone."""

_CDI = (Path("/etc/cdi"), Path("/var/run/cdi"))
"""Where the descriptions of devices for containers are, which podman gives out GPUs by."""


@dataclass(frozen=True)
class Engine:
    """An engine that answers. ``rootless``: the container's root is the user who starts it."""

    kind: Literal["docker", "podman"]
    program: str
    version: str
    rootless: bool

    def ask(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """What the engine's client says; its exit code is the caller's to judge."""
        return _ask(self.program, *arguments)

    def user_options(self, uid: int, gid: int) -> list[str]:
        """What makes the files that a container writes belong to ``uid`` and ``gid`` outside."""
        if not self.rootless:
            return [f"--user={uid}:{gid}"]
        # Under a rootless docker, the container's root is the user; podman can map the user to the same number.
        return ["--user=0:0"] if self.kind == "docker" else ["--userns=keep-id", f"--user={uid}:{gid}"]

    def gpu_options(self, described: tuple[Path, ...] = _CDI) -> list[str]:
        """What gives a container every GPU, and the limits that pinned memory and NCCL need.

        Raises UsageError where podman has not been told of the GPUs.
        """
        if self.kind == "docker":
            return ["--gpus=all", "--ulimit=memlock=-1", "--ulimit=stack=67108864"]
        if not any(file.name.startswith("nvidia") for folder in described for file in folder.glob("*")):
            raise UsageError(
                "podman does not know of this machine's GPUs: "
                "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
            )
        # A user's own container keeps that user's limits, and may not raise them.
        limits = [] if self.rootless else ["--ulimit=memlock=-1", "--ulimit=stack=67108864"]
        return ["--device=nvidia.com/gpu=all", *limits]


@dataclass(frozen=True)
class Image:
    """An image that an engine of this machine has. ``digest`` names the same bytes on every machine."""

    engine: Engine
    name: str
    digest: str
    labels: Mapping[str, str]


def find_image(name: str, digest: str = "", *, otherwise: str) -> Image:
    """The image called ``name``, or where ``digest`` is given the one that it names, in the first engine that has it.

    Raises UsageError where no engine answers, and, with the advice ``otherwise``, where none has it.
    """
    found, silent = engines()
    for engine in found.values():
        if image := _image(engine, name, digest):
            return image
    why = "".join(f" ({answer})" for answer in silent if not answer.endswith("not on PATH"))
    sought = f"{name} ({digest[:19]})" if digest else name
    raise UsageError(f"{' and '.join(found)} has no image {sought}{why}; {otherwise}")


def engines() -> tuple[dict[str, Engine], list[str]]:
    """The engines that answer, by their program, and in a few words each why others do not.

    Raises UsageError where none answers.
    """
    answers = {program: _engine(program) for program in _LOOKED_FOR}
    silent = [answer for answer in answers.values() if isinstance(answer, str)]
    found = {program: answer for program, answer in answers.items() if isinstance(answer, Engine)}
    if not found:
        raise UsageError(f"an image needs a container engine: {'; '.join(silent)}; apt-get install podman")
    return found, silent


def _engine(name: str) -> Engine | str:
    """The engine of that name, or in a few words why there is none."""
    program = shutil.which(name)
    if program is None:
        return f"{name} is not on PATH"
    known = _ask(program, "--version")
    if known.returncode == 0 and "podman" in known.stdout.lower():  # also where it is called docker
        return Engine("podman", program, f"podman {known.stdout.split()[-1]}", os.geteuid() != 0)
    said = _ask(program, "info", "--format={{.ServerVersion}} {{json .SecurityOptions}}")
    if said.returncode != 0:
        return f"{name} does not answer: {(said.stderr.strip().splitlines() or ['it said nothing'])[-1]}"
    version, _, security = said.stdout.partition(" ")
    return Engine("docker", program, f"docker {version}", "rootless" in security)


def _image(engine: Engine, name: str, digest: str) -> Image | None:
    said = engine.ask("image", "inspect", digest or name)
    if said.returncode != 0:
        return None
    found: dict[str, Any] = json.loads(said.stdout)[0]
    identity = "sha256:" + str(found["Id"]).removeprefix("sha256:")
    return Image(engine, name, identity, (found.get("Config") or {}).get("Labels") or {})


def _ask(*command: str) -> subprocess.CompletedProcess[str]:
    options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "start_new_session": True, "timeout": _ANSWER_S}
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, **options)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", f"no answer in {_ANSWER_S:.0f} s")
