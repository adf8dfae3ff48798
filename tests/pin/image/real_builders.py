"""The builders of this machine, asked for real images, and what they keep."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from harness.pin.image.builders import CommandBuilder
from harness.places import places


def command_builder(program: str) -> CommandBuilder:
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"no {program} here")
    return CommandBuilder(program, found)


def stored() -> set[str]:
    """Every image and container that buildah and podman know of."""
    lists = (["podman", "images", "--all", "--quiet", "--no-trunc"], ["buildah", "containers", "--all", "--quiet"])
    said = [subprocess.run(command, check=True, capture_output=True, text=True).stdout for command in lists]
    return set("".join(said).split())


def harness_image(*arguments: str, env: str = "cpu", **environ: str) -> subprocess.CompletedProcess[str]:
    """``harness image``, as a process of its own, without a Docker engine."""
    command = [sys.executable, "-m", "harness.cli", "image", env, "--allow-dirty", *arguments]
    variables = {**os.environ, "DOCKER_HOST": "unix:///nonexistent", **environ}
    return subprocess.run(command, cwd=places().root, env=variables, capture_output=True, text=True, check=False)
