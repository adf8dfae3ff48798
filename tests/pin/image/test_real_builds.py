"""Real builds by every builder that can be had here: their images, their failures, and the same bytes twice."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness.pin.image.build import build, find, wanted
from harness.pin.image.builders import Builder, BuildFailed, docker_engine
from harness.places import places
from tests.pin.image.real_builders import command_builder, harness_image, stored

pytestmark = pytest.mark.slow

MINI = """\
ARG BASE_IMAGE
FROM ${BASE_IMAGE} AS image
ARG ENV
COPY note.txt /
RUN python3 -c "open('/built', 'w').write('${ENV}')"
LABEL dflash.environment="${ENV}"
USER 1000:1000
FROM image AS later
RUN exit 1
"""


@pytest.fixture
def socket(tmp_path: Path) -> Iterator[str]:
    """podman, answering as a Docker engine does."""
    podman, path, before = command_builder("podman").program, tmp_path / "engine.sock", stored()
    with subprocess.Popen([podman, "system", "service", "--time=0", f"unix://{path}"]) as service:
        until = time.monotonic() + 30
        while not path.exists():
            assert time.monotonic() < until
            time.sleep(0.05)
        yield f"unix://{path}"
        service.terminate()
    for layer in stored() - before:  # an engine keeps what it has built of a build that fails
        subprocess.run([podman, "rmi", "--force", layer], check=False, capture_output=True)
    assert stored() == before


@pytest.fixture
def context(tmp_path: Path) -> Path:
    folder = tmp_path / "context"
    folder.mkdir()
    (folder / "Dockerfile").write_text(MINI)
    (folder / "note.txt").write_text("a note")
    return folder


def small_image(builder: Builder, context: Path, base: str, said: list[str]) -> str:
    arguments = {"BASE_IMAGE": base, "ENV": "mini", "REVISION": "r" * 40, "SOURCE_DATE_EPOCH": "1700000000"}
    return builder.build(context, arguments, said.append)


def check_small_image(builder: Builder, context: Path, base: str) -> None:
    said: list[str] = []
    identity = small_image(builder, context, base, said)
    assert any("COPY note.txt" in line for line in said)
    made, tag = builder.inspect(identity), "dflash-harness-test:mini"
    assert made is not None
    assert made.labels["dflash.environment"] == "mini"
    assert made.identity.startswith("sha256:")
    assert made.size > 50_000_000  # the base
    assert len(made.layers) > 1
    assert builder.inspect(tag) is None
    builder.tag(identity, tag)
    try:
        assert builder.inspect(tag) == made
    finally:
        subprocess.run([command_builder("podman").program, "rmi", tag], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize("program", ["buildah", "podman"])
def test_a_command_builds_an_image(program: str, context: Path, base: str) -> None:
    builder = command_builder(program)
    check_small_image(builder, context, base)
    first, second = (small_image(builder, context, base, []) for _ in range(2))
    assert first == second
    subprocess.run(["podman", "rmi", first], check=True, stdout=subprocess.DEVNULL)


def test_a_docker_engine_builds_an_image(socket: str, context: Path, base: str) -> None:
    engine = docker_engine({"DOCKER_HOST": socket})
    assert not isinstance(engine, str)
    try:
        assert engine.name.startswith("Podman Engine ")
        check_small_image(engine, context, base)
        (context / "Dockerfile").write_text(MINI.replace("RUN python3", "RUN echo error: no luck >&2; exit 1; python3"))
        with pytest.raises(BuildFailed, match=r"^no luck$"):
            small_image(engine, context, base, [])
    finally:
        engine.client.close()


STAGES = """\
ARG BASE_IMAGE
FROM ${BASE_IMAGE} AS base
ARG STAGE
LABEL dflash.stage="${STAGE}"
FROM base AS tools
RUN echo tools > /tools
FROM tools AS one
RUN sleep 1; exit 1
FROM tools AS two
RUN sleep 1; exit 1
FROM base AS image
COPY --from=one /one /
COPY --from=two /two /
LABEL dflash.stage=""
"""


@pytest.mark.parametrize("program", ["buildah", "podman"])
def test_a_stage_that_fails_leaves_none_of_the_others(program: str, context: Path, base: str) -> None:
    """As the Dockerfile's stages are. Without the label, buildah 1.28 left an image and a container of it."""
    before = stored()
    (context / "Dockerfile").write_text(STAGES)
    with pytest.raises(BuildFailed):
        small_image(command_builder(program), context, base, [])
    assert stored() == before


@pytest.fixture
def without_python(context: Path, base: str) -> Iterator[str]:
    """A base in which no Python is found."""
    builder, tag = command_builder("buildah"), "localhost/dflash-test:without-python"
    (context / "Dockerfile").write_text("ARG BASE_IMAGE\nFROM ${BASE_IMAGE} AS image\nRUN rm /usr/bin/python3*\n")
    builder.tag(small_image(builder, context, base, []), tag)
    yield tag
    subprocess.run(["podman", "rmi", tag], check=True, stdout=subprocess.DEVNULL)


def test_a_base_without_python_is_said_in_a_line(without_python: str) -> None:
    before = stored()
    done = harness_image("--base", without_python)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith(
        f"error: no image was made: the base {without_python} has no Python, not Python 3.11; all that "
    )
    assert stored() == before


def test_a_base_with_another_python_is_said_in_a_line(base: str) -> None:
    before = stored()
    done = harness_image("--base", base, "--python", "3.12", env="cu128")
    assert done.returncode == 1
    assert f"error: no image was made: the base {base} has Python 3.11." in done.stderr.splitlines()[-1]
    assert ", not Python 3.12; " in done.stderr.splitlines()[-1]
    assert stored() == before


def test_a_base_that_is_not_there_is_said_in_a_line() -> None:
    done = harness_image("--base", "localhost/dflash-test:no-such-base")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("error: no image was made: ")
    assert "no-such-base" in done.stderr.splitlines()[-1]


LOOK_INSIDE = """
id -u
find / -xdev -name .build -o -path '*/.cache/uv' -o -name uv_cache.json
touch /opt/dflash/x 2>/dev/null && echo writable
command -v gcc g++ >/dev/null || echo no compiler
command -v git cmake make pip >/dev/null && echo a tool that nothing needs
harness envs --json >/dev/null || echo no harness
"""


@pytest.mark.timeout(1800)
def test_the_image_has_what_runs_and_no_more(base: str, tmp_path: Path) -> None:
    builder, where = command_builder("buildah"), replace(places(), state=tmp_path)
    wish = wanted("cpu", where, base, allow_dirty=True)
    made = find(wish, builder) or build(wish, builder, where, print)
    command = ["podman", "run", "--rm", "--network=none", "--entrypoint=sh", made.identity, "-c", LOOK_INSIDE]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout.split() == ["1000"]


@pytest.mark.timeout(1800)
def test_two_builds_give_the_same_bytes_whatever_this_machines_settings_are(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So no setting of the machine is in a layer, a label or the history either: the identity covers them all."""
    builder, where = command_builder("buildah"), replace(places(), state=tmp_path)
    wish = wanted("cpu", where, base, allow_dirty=True)
    first = find(wish, builder) or build(wish, builder, where, print)  # CI has built it already
    monkeypatch.setenv("PIP_TRUSTED_HOST", "secret.example")
    second = build(wish, builder, where, print)
    assert second.layers == first.layers
    assert second.identity == first.identity
