"""Disks that are full while an image is built: real ones, of a few kilobytes or megabytes in memory."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pin.image.real_builders import command_builder, harness_image, stored

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a disk"),
]


@pytest.fixture
def unbuilt(base: str) -> Iterator[str]:
    """The base by another name: on its own, this commit's image may be built already, and nothing would be done."""
    podman, name = command_builder("podman").program, "localhost/dflash-test:small-disk"
    subprocess.run([podman, "tag", base, name], check=True)
    before = stored()
    yield name
    assert stored() == before  # and nothing of the build is left
    subprocess.run([podman, "rmi", name], check=True, stdout=subprocess.DEVNULL)


@contextlib.contextmanager
def disk(size: str, folder: Path) -> Iterator[Path]:
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--recursive", str(folder)], check=True)


def reason(*arguments: str, **environ: str) -> str:
    """The one line of a build that was not to be."""
    done = harness_image(*arguments, **environ)
    assert done.returncode == 1
    *_, last = done.stderr.splitlines()
    assert last.startswith("error: no image was made: ")
    return last.removeprefix("error: no image was made: ")


def test_where_the_builder_keeps_its_images(unbuilt: str, tmp_path: Path) -> None:
    """What is built lies on the small disk; the base is read from where it is."""
    asked = ["podman", "info", "--format", "{{.Store.GraphRoot}}"]
    root = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    settings = tmp_path / "storage.conf"
    with disk("48m", tmp_path / "disk") as small:
        settings.write_text(
            f'[storage]\ndriver = "overlay"\ngraphroot = "{small}/graph"\nrunroot = "{small}/run"\n'
            f'[storage.options]\nadditionalimagestores = ["{root}"]\n'
        )
        said = reason("--base", unbuilt, CONTAINERS_STORAGE_CONF=str(settings))
        assert said.startswith("the disk is full where the builder keeps its images, ")
        variables = {**os.environ, "CONTAINERS_STORAGE_CONF": str(settings)}
        images = ["podman", "images", "--all", "--format", "{{.ReadOnly}} {{.Repository}}"]
        left = subprocess.run(images, env=variables, check=True, capture_output=True, text=True).stdout
        assert not [line for line in left.splitlines() if not line.startswith("true")]


def test_where_the_builder_works(unbuilt: str, tmp_path: Path) -> None:
    with disk("2m", tmp_path / "disk") as small:
        said = reason("--base", unbuilt, TMPDIR=str(small))
    assert ", or where it works (TMPDIR, else /var/tmp); make room: " in said


def test_where_the_harness_keeps_its_own(unbuilt: str, tmp_path: Path) -> None:
    with disk("600k", tmp_path / "disk") as small:  # less than the code alone takes
        said = reason("--base", unbuilt, HARNESS_STATE=f"{small}/state")
        assert {path.name for path in (small / "state").iterdir()} == {".lock-image", "logs"}
    assert said.startswith(f"the disk of {small}/state is full; make room")
