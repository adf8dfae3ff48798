"""Who builds images on this machine: a Docker engine or podman's socket, else buildah or podman.

Each builds without a name, so that an image which is not complete is never called one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from harness.errors import EnvironmentFault
from harness.pin.image.names import STAGE

Line = Callable[[str], None]
"""Takes what a builder says, line by line."""

TARGET = "image"
"""The stage of the Dockerfile that is kept."""


class BuildFailed(EnvironmentFault):
    """The builder did not make an image; the message is its own word for it."""


@dataclass(frozen=True)
class BuiltImage:
    """An image that a builder has. ``identity`` is the digest of its configuration, which names every layer."""

    identity: str
    size: int
    labels: Mapping[str, str]
    layers: tuple[str, ...]


class Builder(Protocol):
    """What an image is built with."""

    @property
    def name(self) -> str:
        """What it is, for people."""

    def build(self, context: Path, arguments: Mapping[str, str], line: Line) -> str:
        """Build the Dockerfile in ``context``; returns the image's identity. Raises BuildFailed.

        ``SOURCE_DATE_EPOCH`` of the arguments is the time of every file, where the builder can set it.
        """

    def tag(self, identity: str, name: str) -> None:
        """Call the image ``name``."""

    def inspect(self, name: str) -> BuiltImage | None:
        """The image that ``name`` or an identity names, or None."""


def find_builder(environ: Mapping[str, str] = os.environ) -> Builder:
    """The builder of this machine. Raises EnvironmentFault, naming what was asked, where there is none."""
    engine = docker_engine(environ)
    if not isinstance(engine, str):
        return engine
    for program in ("buildah", "podman"):
        if found := shutil.which(program, path=environ.get("PATH")):
            return CommandBuilder(program, found)
    raise EnvironmentFault(
        f"no container builder is here: {engine}, and neither buildah nor podman is on PATH; "
        "install one, for example: apt-get install buildah podman"
    )


def docker_engine(environ: Mapping[str, str]) -> EngineBuilder | str:
    """The Docker engine that answers, or in a few words why none does."""
    address = environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
    if address.startswith("unix://") and not Path(address.removeprefix("unix://")).exists():
        return f"no Docker engine is at {address}"
    import docker  # half a second, and only here
    from docker.errors import DockerException

    try:
        client = docker.from_env(environment=dict(environ), timeout=600)
        version = client.version()
    except (DockerException, OSError) as error:
        return f"no Docker engine answers at {address} ({str(error).splitlines()[0][:120]})"
    components = [str(component["Name"]) for component in version.get("Components", [])]
    return EngineBuilder(f"{(components or ['Docker Engine'])[0]} {version['Version']}", client)


_FULL = re.compile(
    r"no space left on device"
    r"|storing layer \S+ to file: io: read/write on closed pipe",  # buildah, of the folder that TMPDIR names
    re.IGNORECASE,
)


def reason_of(output: list[str]) -> str:
    """Why a build failed, in one line: the step's own word for it, or else the builder's last."""
    if any(map(_FULL.search, output)):
        return (
            "the disk is full where the builder keeps its images, or where it works (TMPDIR, else /var/tmp); "
            "make room: buildah rmi --prune, or docker system prune"
        )
    own = [line.removeprefix("error: ") for line in output if line.startswith("error: ")]
    said = [line.strip().removeprefix("Error: ") for line in output if line.strip()]
    return (own or said[-1:] or ["it said nothing"])[0]


@dataclass(frozen=True)
class CommandBuilder:
    """buildah or podman, by the command line. They keep their images in one place."""

    name: str
    program: str

    def build(self, context: Path, arguments: Mapping[str, str], line: Line) -> str:
        with TemporaryDirectory() as folder:
            written = Path(folder) / "identity"
            # OCI's format: Docker's writes the names of the build's own containers into the image.
            command = [self.program, "build", "--format=oci", f"--target={TARGET}", "--pull=false", "--force-rm"]
            command += [
                "--layers=false",
                f"--timestamp={arguments['SOURCE_DATE_EPOCH']}",
                "--identity-label=false",
                f"--iidfile={written}",
            ]
            stage = arguments["REVISION"]
            command += [f"--build-arg={name}={value}" for name, value in {**arguments, "STAGE": stage}.items()]
            try:
                self._run([*command, str(context)], line)
            except BaseException:
                self._take_away(f"label={STAGE}={stage}")
                raise
            return written.read_text(encoding="utf-8").strip()

    def _take_away(self, stages: str) -> None:
        """Remove what is left of a build that failed or was stopped: buildah forgets the stages that were to begin."""
        listing = [self.program, "images", "--all", "--quiet", "--filter", stages]
        left = subprocess.run(listing, capture_output=True, text=True, check=False).stdout.split()
        if left:
            subprocess.run([self.program, "rmi", "--force", *left], capture_output=True, check=False)

    def _run(self, command: list[str], line: Line) -> None:
        output: list[str] = []
        with _ended(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)) as process:
            assert process.stdout is not None
            for said in process.stdout:
                output.append(said.rstrip("\n"))
                line(output[-1])
        if process.returncode != 0:
            raise BuildFailed(reason_of(output))

    def tag(self, identity: str, name: str) -> None:
        self._run([self.program, "tag", identity, name], lambda _: None)

    def inspect(self, name: str) -> BuiltImage | None:
        asked = ["inspect", "--type=image", name] if self.name == "buildah" else ["image", "inspect", name]
        done = subprocess.run([self.program, *asked], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return None
        shown = json.loads(done.stdout)
        return _of_buildah(shown) if self.name == "buildah" else _of_engine(shown[0])


def _of_buildah(shown: Mapping[str, Any]) -> BuiltImage:
    config, layers = shown["OCIv1"], json.loads(shown["Manifest"])["layers"]
    labels = config["config"].get("Labels") or {}
    size = sum(layer["size"] for layer in layers)
    return BuiltImage("sha256:" + shown["FromImageID"], size, labels, tuple(config["rootfs"]["diff_ids"]))


def _of_engine(shown: Mapping[str, Any]) -> BuiltImage:
    identity = "sha256:" + shown["Id"].removeprefix("sha256:")
    labels = (shown.get("Config") or {}).get("Labels") or {}
    return BuiltImage(identity, shown["Size"], labels, tuple(shown["RootFS"]["Layers"]))


@contextmanager
def _ended(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """The process, waited for. Where its output is no longer read (Ctrl-C), it is asked to end and tidies up first."""
    with process:
        try:
            yield process
        except BaseException:
            process.terminate()
            process.wait()
            raise


@dataclass(frozen=True)
class EngineBuilder:
    """A Docker engine, or whatever answers like one, by the docker library."""

    name: str
    client: Any

    def build(self, context: Path, arguments: Mapping[str, str], line: Line) -> str:
        from docker.errors import DockerException

        options: dict[str, Any] = {"target": TARGET, "rm": True, "forcerm": True, "decode": True}
        options |= {"buildargs": dict(arguments), "use_config_proxy": True}
        identity, output = "", list[str]()
        try:
            for said in self.client.api.build(path=str(context), **options):
                identity = (said.get("aux") or {}).get("ID", identity)
                for text in str(said.get("error") or said.get("stream") or "").splitlines():
                    output.append(text)
                    line(text)
                if "error" in said:
                    raise BuildFailed(reason_of(output))
        except (DockerException, OSError) as error:
            raise BuildFailed(reason_of([*output, str(error)])) from error
        return identity

    def tag(self, identity: str, name: str) -> None:
        repository, _, version = name.rpartition(":")
        self.client.images.get(identity).tag(repository, version)

    def inspect(self, name: str) -> BuiltImage | None:
        from docker.errors import ImageNotFound

        try:
            return _of_engine(self.client.api.inspect_image(name))
        except ImageNotFound:
            return None
