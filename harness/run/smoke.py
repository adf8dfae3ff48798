"""The proof that an image works: the doctor and a short run in it, shut in, and what the run recorded of the image.

No network, nothing writable but what a run needs, no capability, and an end to the memory that it may take: what needs
more than that is found here and not on the machine that trains.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from harness.pin.aside import Say
from harness.pin.image import names
from harness.records import RunSpec, Value
from harness.run import container_watchdog
from harness.run.engine import Image
from harness.run.folder import run_folders
from harness.run.resolve import resolve

_TINY = ("target.steps=20", "train.steps=5", "data.sequences=16", "eval.prompts=2", "eval.new_tokens=8")
_TOY = ("steps=20",)

_SHUT_IN = (
    "--rm",
    "--pull=never",
    "--network=none",
    "--read-only",
    "--tmpfs=/tmp:rw,exec",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
    "--security-opt=label=disable",  # under SELinux, folders of this machine could not be used
    "--memory=4g",
)


@dataclass(frozen=True)
class Proof:
    """One thing that was tried, and how it came out."""

    name: str
    good: bool
    detail: str


def prove(image: Image, say: Say) -> list[Proof]:
    """Try ``image``; every proof, good or not. What the harness inside says of its progress goes to the terminal."""
    spec, settings = _recipe(image.labels[names.ENVIRONMENT])
    with TemporaryDirectory() as name:
        folder = Path(name)
        say(f"the doctor in {image.name}, without a network ...")
        doctor = _harness(image, folder, "doctor", image.labels[names.ENVIRONMENT], "--json")
        say(f"{spec.recipe} in it, of a few steps ...")
        ran = _harness(image, folder, "run", spec.recipe, *settings, "--json")
        recorded = _recorded(folder / "runs")
    return [
        Proof("doctor", doctor.returncode == 0, _of_doctor(doctor)),
        Proof(f"run {spec.recipe}", ran.returncode == 0, f"exit code {ran.returncode}"),
        *compare(image, spec, recorded),
    ]


def _recipe(env: str) -> tuple[RunSpec, Sequence[str]]:
    """What to run: ``tiny`` where its environment is the image's, else ``toy``, which every image can."""
    tiny = resolve("tiny", _TINY)
    return (tiny, _TINY) if tiny.env == env else (resolve("toy", _TOY), _TOY)


def _harness(image: Image, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    name = f"harness-smoke-{secrets.token_hex(4)}"
    asked = command(image, folder, name, arguments)
    try:
        return subprocess.run(asked, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False)
    except BaseException:  # Ctrl-C: the container is the engine's, and would go on
        container_watchdog.end(image.engine.program, name)
        raise


def command(image: Image, folder: Path, name: str, arguments: Sequence[str]) -> list[str]:
    """The engine's command line for a container ``name`` of the harness, whose volumes are in ``folder``."""
    options = [*_SHUT_IN, f"--name={name}"]
    if os.getuid() != 0:  # else it is the image's own user, who is not root either
        options += image.engine.user_options(os.getuid(), os.getgid())
    for volume in ("state", "runs"):
        (folder / volume).mkdir(exist_ok=True)
        (folder / volume).chmod(0o777)
        options.append(f"--mount=type=bind,source={folder / volume},target=/{volume}")
    options += [f"--env=HARNESS_IMAGE_TAG={image.name}", f"--env=HARNESS_IMAGE_DIGEST={image.digest}"]
    return [image.engine.program, "run", *options, image.digest, *arguments]


def _of_doctor(done: subprocess.CompletedProcess[str]) -> str:
    if done.returncode == 0:
        return "nothing broken or dangerous"
    try:
        return str(json.loads(done.stdout)["findings"][0]["summary"])
    except (ValueError, LookupError):
        return f"exit code {done.returncode}"


def _recorded(runs: Path) -> Mapping[str, Value]:
    """The facts of the one run there; none where it did not get so far."""
    records = [folder.load() for folder in run_folders(runs)]
    return records[0].fingerprint.facts if records and records[0].fingerprint else {}


def compare(image: Image, spec: RunSpec, recorded: Mapping[str, Value]) -> list[Proof]:
    """Each label of ``image`` against the fact that a run in it recorded."""
    expected = {
        "environment.image.tag": image.name,
        "environment.image.digest": image.digest,
        "environment.image.environment": image.labels[names.ENVIRONMENT],
        "environment.image.lock": image.labels[names.LOCK],
        "environment.image.revision": image.labels[names.REVISION],
    }
    if spec.env == image.labels[names.ENVIRONMENT]:  # what the harness read from the lock's file, not from a variable
        expected["environment.lock"] = image.labels[names.LOCK]
    return [_as_said(fact, value, recorded.get(fact, "not recorded")) for fact, value in expected.items()]


def _as_said(fact: str, said: str, recorded: Value) -> Proof:
    good = recorded == said
    return Proof(fact, good, said if good else f"{recorded}, and the image says {said}")
