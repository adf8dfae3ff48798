"""Which engine of a machine has an image, what it is told, and what a person is told where there is none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.run.engine import Engine, find_image
from tests.run.engines import DIGEST, LABELS, FakeEngine

DOCKER = Engine("docker", "/usr/bin/docker", "docker 28.2.2", rootless=False)
PODMAN = Engine("podman", "/usr/bin/podman", "podman 5.4.2", rootless=False)
ROOTLESS_DOCKER = Engine("docker", "/usr/bin/docker", "docker 28.2.2", rootless=True)
ROOTLESS_PODMAN = Engine("podman", "/usr/bin/podman", "podman 5.4.2", rootless=True)


@pytest.fixture(autouse=True)
def only_engines_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


def refusal(name: str = "dflash:cpu", digest: str = "") -> str:
    with pytest.raises(UsageError) as refused:
        find_image(name, digest, otherwise="build it: nox -s image -- cpu")
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_the_first_engine_that_has_the_image_is_taken(tmp_path: Path) -> None:
    docker, podman = FakeEngine.install("docker", tmp_path), FakeEngine.install("podman", tmp_path)
    podman.has({"dflash:cpu": LABELS})
    image = find_image("dflash:cpu", otherwise="")
    assert (image.engine.kind, image.engine.version) == ("podman", "podman 5.4.2")
    assert (image.name, image.digest, image.labels) == ("dflash:cpu", DIGEST, LABELS)
    docker.has({"dflash:cpu": None})
    image = find_image("dflash:cpu", otherwise="")
    assert (image.engine.kind, image.engine.version, image.labels) == ("docker", "docker 28.2.2", {})


def test_an_image_is_found_by_its_digest_under_any_name(tmp_path: Path) -> None:
    engine = FakeEngine.install("docker", tmp_path)
    engine.has({"another:name": LABELS})
    assert find_image("dflash:cpu", DIGEST, otherwise="").digest == DIGEST
    engine.has({"dflash:cpu": LABELS}, digest="sha256:" + "cd" * 32)
    assert refusal("dflash:cpu", DIGEST).startswith(f"docker has no image dflash:cpu ({DIGEST[:19]}); build it")


def test_podman_that_is_called_docker_is_podman(tmp_path: Path) -> None:
    engine = FakeEngine.install("podman", tmp_path)
    engine.has({"dflash:cpu": LABELS})
    (engine.bin / "podman").rename(engine.bin / "docker")
    assert find_image("dflash:cpu", otherwise="").engine.kind == "podman"


def test_podman_of_a_user_is_rootless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeEngine.install("podman", tmp_path).has({"dflash:cpu": LABELS})
    for uid, rootless in ((0, False), (1000, True)):
        monkeypatch.setattr(os, "geteuid", lambda uid=uid: uid)
        assert find_image("dflash:cpu", otherwise="").engine.rootless is rootless


def test_without_an_engine_it_is_said_which_were_looked_for() -> None:
    assert refusal() == (
        "an image needs a container engine: docker is not on PATH; podman is not on PATH; apt-get install podman"
    )


def test_an_engine_that_does_not_answer_is_said_with_its_own_words(tmp_path: Path) -> None:
    docker = FakeEngine.install("docker", tmp_path)
    (docker.folder / "down").write_text("Cannot connect to the Docker daemon")
    silent = "docker does not answer: Cannot connect to the Docker daemon"
    assert silent in refusal()
    FakeEngine.install("podman", tmp_path)
    assert refusal() == f"podman has no image dflash:cpu ({silent}); build it: nox -s image -- cpu"


def test_files_belong_to_whoever_asked() -> None:
    assert DOCKER.user_options(1000, 100) == ["--user=1000:100"]
    assert PODMAN.user_options(0, 0) == ["--user=0:0"]
    assert ROOTLESS_PODMAN.user_options(1000, 100) == ["--userns=keep-id", "--user=1000:100"]
    assert ROOTLESS_DOCKER.user_options(1000, 100) == ["--user=0:0"]  # its root is the user outside


def test_gpus_and_the_limits_that_they_need(tmp_path: Path) -> None:
    limits = ["--ulimit=memlock=-1", "--ulimit=stack=67108864"]
    assert DOCKER.gpu_options() == ["--gpus=all", *limits]
    (tmp_path / "nvidia.yaml").touch()
    assert PODMAN.gpu_options((tmp_path,)) == ["--device=nvidia.com/gpu=all", *limits]
    assert ROOTLESS_PODMAN.gpu_options((tmp_path,)) == ["--device=nvidia.com/gpu=all"]


def test_podman_that_was_not_told_of_the_gpus_is_one_line_with_the_cure(tmp_path: Path) -> None:
    (tmp_path / "intel.json").touch()
    with pytest.raises(UsageError, match=r"sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"):
        PODMAN.gpu_options((tmp_path, tmp_path / "nowhere"))
