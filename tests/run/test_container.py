"""The command line that starts a recipe in an image: what is mounted, what is passed on, and what is refused."""

from __future__ import annotations

import dataclasses
import os
import subprocess
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.places import Places
from harness.run.container import Errand, check_fits, command, other_code, run_in_image, written
from harness.run.engine import Engine, Image
from harness.run.resolve import resolve
from tests.run.engines import DIGEST, LABELS

IMAGE = Image(Engine("docker", "/usr/bin/docker", "docker 28.2.2", False), "dflash:cpu", DIGEST, LABELS)


def composed(where: Places, terminal: bool = False, gpus: bool = False, read: tuple[Path, ...] = ()) -> list[str]:
    errand = Errand(IMAGE, ("run", "tiny", "train.steps=3"), written(where, where.mlflow), read)
    return command(errand, where, "harness-run-1", terminal, gpus)


def values(line: list[str], option: str) -> list[str]:
    return [word.removeprefix(f"--{option}=") for word in line if word.startswith(f"--{option}=")]


def test_the_request_is_given_to_the_very_image_that_was_looked_at(where: Places) -> None:
    line = composed(where)
    assert line[:2] == ["/usr/bin/docker", "run"]
    assert line[-4:] == [DIGEST, "run", "tiny", "train.steps=3"]
    assert {"--rm", "--pull=never", "--name=harness-run-1", "--network=host", "--ipc=host"} <= set(line)
    assert f"--user={os.getuid()}:{os.getgid()}" in line


def test_nothing_of_this_machine_is_mounted_but_what_a_run_writes(where: Places, tmp_path: Path) -> None:
    folders = [where.runs, where.caches, where.models, where.state / "doctor", where.mlflow]
    read = tmp_path / "elsewhere" / "20261129-100000-tiny-aaaa"
    expected = [f"type=bind,source={folder},target={folder}" for folder in folders]
    assert values(composed(where), "mount") == expected
    assert values(composed(where, read=(read,)), "mount") == [
        *expected,
        f"type=bind,source={read},target={read},readonly",
    ]
    assert written(where, None) == tuple(folders[:-1])  # MLflow is a server


def test_the_harness_inside_finds_its_places_and_learns_what_the_image_is(where: Places) -> None:
    told = dict(item.split("=", 1) for item in values(composed(where), "env") if "=" in item)
    assert (told["HARNESS_RUNS"], told["HARNESS_STATE"]) == (str(where.runs), str(where.state))
    assert told["HOME"] == "/tmp"
    assert (told["HARNESS_IMAGE_TAG"], told["HARNESS_IMAGE_DIGEST"]) == ("dflash:cpu", DIGEST)
    assert (told["HARNESS_IMAGE_BASE"], told["HARNESS_IMAGE_ENGINE"]) == ("debian@sha256:12", "docker 28.2.2")
    assert "HARNESS_IMAGE_REVISION" not in told  # no label has it; what the image itself says stands


def test_variables_that_change_a_run_go_along_by_name_and_no_place_or_secret_does(
    where: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("MLFLOW")]:
        monkeypatch.delenv(name)
    for name, value in {
        "NCCL_P2P_DISABLE": "1",
        "OMP_NUM_THREADS": "4",
        "MLFLOW_TRACKING_URI": "http://localhost:5000",
        "MLFLOW_TRACKING_PASSWORD": "a-secret-word",
        "LD_PRELOAD": "libjemalloc.so",
        "PYTHONPATH": "src",
        "CUDA_HOME": "/usr/local/cuda",
        "HF_TOKEN": "hf_abcdefghijklmnopqrstuvwxyz",
        "UNRELATED": "1",
    }.items():
        monkeypatch.setenv(name, value)
    line = composed(where)
    by_name = {item for item in values(line, "env") if "=" not in item}
    assert {"NCCL_P2P_DISABLE", "OMP_NUM_THREADS", "MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_PASSWORD"} <= by_name
    assert not by_name & {"LD_PRELOAD", "PYTHONPATH", "CUDA_HOME", "HF_TOKEN", "UNRELATED", "PATH", "HOME"}
    assert "a-secret-word" not in " ".join(line)


def test_a_terminal_and_gpus_are_given_where_there_are_some(where: Places) -> None:
    plain, full = composed(where), composed(where, terminal=True, gpus=True)
    assert not {"--tty", "--interactive", "--gpus=all"} & set(plain)
    assert {"--tty", "--interactive", "--gpus=all", "--ulimit=memlock=-1"} <= set(full)
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,utility" in values(full, "env")


def test_a_machine_adds_options_of_its_own(where: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_CONTAINER_OPTIONS", "--runtime runc --label 'a b'")
    line = composed(where)
    start = line.index("--runtime")
    assert line[start : start + 5] == ["--runtime", "runc", "--label", "a b", DIGEST]


def test_an_image_of_something_else_or_of_another_environment_is_refused() -> None:
    tiny, toy = resolve("tiny"), resolve("toy")
    check_fits(IMAGE, tiny)
    check_fits(IMAGE, toy)  # its environment is in every image
    cuda = dataclasses.replace(IMAGE, labels={**LABELS, "dflash.environment": "cu130"})
    with pytest.raises(UsageError) as refused:
        check_fits(cuda, tiny)
    assert str(refused.value) == (
        "tiny needs the environment cpu, and dflash:cpu has cu130; build another: nox -s image -- cpu"
    )
    foreign = dataclasses.replace(IMAGE, labels={"maintainer": "somebody"})
    with pytest.raises(UsageError, match=r"is not an image of this project: it has no label dflash.environment"):
        check_fits(foreign, toy)


def test_what_differs_between_the_images_code_and_the_checkouts_is_said(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        identity = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        done = subprocess.run(
            ["git", *arguments],
            cwd=tmp_path,
            env={**os.environ, **identity},
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout.strip()

    def built(revision: str) -> Image:
        return dataclasses.replace(IMAGE, labels={**LABELS, "org.opencontainers.image.revision": revision})

    assert other_code(built("a" * 40), tmp_path) == ""  # not a checkout: nobody knows
    git("init", "-q")
    (tmp_path / "train.py").write_text("1")
    git("add", ".")
    git("commit", "-qm", "first")
    commit = git("rev-parse", "HEAD")
    assert other_code(IMAGE, tmp_path) == ""  # nobody knows
    assert other_code(built(commit), tmp_path) == ""
    assert "was built with changes" in other_code(built(f"{commit}-dirty"), tmp_path)
    assert other_code(built("a" * 40), tmp_path) == (
        f"the code in dflash:cpu is of commit aaaaaaaaaaaa, and this checkout is at {commit[:12]}"
    )
    (tmp_path / "train.py").write_text("2")
    assert other_code(built(commit), tmp_path) == "this checkout has changes that dflash:cpu has not"


@pytest.mark.parametrize(("name", "message"), [("a,b", "has a comma in its name"), ("file", "File exists")])
def test_a_folder_that_no_container_can_be_given_is_refused(
    where: Places, tmp_path: Path, name: str, message: str
) -> None:
    (tmp_path / "file").touch()
    errand = Errand(IMAGE, ("run", "tiny"), (tmp_path / name,))
    with pytest.raises(UsageError, match=message):
        run_in_image(errand, where, terminal=False)
