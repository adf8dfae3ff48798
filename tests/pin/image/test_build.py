"""What is checked before a build, and that a name is given to nothing but a complete image."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.errors import EnvironmentFault, UsageError
from harness.pin.environments import environment, lock_for
from harness.pin.image import build as building
from harness.pin.image.build import Wanted, build, find, wanted
from harness.pin.image.builders import BuildFailed, BuiltImage
from harness.pin.image.context import Revision
from harness.places import Places, places
from tests.pin.image.shelf import Shelf

REVISION = Revision("c" * 40, 1_700_000_000, "2023-11-14T22:13:20+00:00", dirty=False)


@pytest.fixture
def where(tmp_path: Path) -> Places:
    return Places(places().root, tmp_path / "state", tmp_path / "runs")


@pytest.fixture
def wish(where: Places) -> Wanted:
    env = environment("cpu", where)
    return Wanted(env, lock_for(env, "3.11", where), "base@sha256:0", "3.11", REVISION)


def test_a_name_says_which_lock(wish: Wanted) -> None:
    assert wish.tag == f"dflash-harness:cpu-{wish.lock.digest[:12]}"


def test_a_complete_image_is_named(wish: Wanted, where: Places) -> None:
    shelf, said = Shelf(wish.labels), list[str]()
    made = build(wish, shelf, where, said.append)
    assert shelf.tags == {wish.tag: made.identity}
    assert shelf.arguments == {
        "BASE_IMAGE": "base@sha256:0",
        "PYTHON": "3.11",
        "ENV": "cpu",
        "LOCK": wish.lock.digest,
        "REVISION": "c" * 40,
        "SOURCE_DATE": "2023-11-14T22:13:20+00:00",
        "SOURCE_DATE_EPOCH": "1700000000",
    }
    assert {"Dockerfile", "envs", "harness", ".build"} <= set(shelf.context)
    assert said[1:] == ["[0:00]  [1/2] STEP 1/9: FROM base AS tools"]  # each step, and not each package
    assert (where.state / "logs/image-cpu.log").read_text().splitlines()[1] == "Setting up libgcc ..."


def test_a_build_that_fails_leaves_no_name_and_one_line(wish: Wanted, where: Places) -> None:
    shelf = Shelf(failure="the disk is full")
    with pytest.raises(BuildFailed) as caught:
        build(wish, shelf, where, lambda _: None)
    log = where.state / "logs/image-cpu.log"
    assert str(caught.value) == f"no image was made: the disk is full; all that a shelf said: {log}"
    assert not shelf.tags
    assert {path.name for path in where.state.iterdir()} == {"logs", ".lock-image"}  # and nothing of the context


def test_a_full_disk_of_the_harness_is_named(wish: Wanted, where: Places) -> None:
    (where.state / "logs").mkdir(parents=True)
    (where.state / "logs/image-cpu.log").symlink_to("/dev/full")
    shelf = Shelf(wish.labels)
    with pytest.raises(BuildFailed) as caught:
        build(wish, shelf, where, lambda _: None)
    message = (
        f"no image was made: the disk of {where.state} is full; make room, or name another folder by HARNESS_STATE"
    )
    assert str(caught.value) == message
    assert not shelf.tags


def test_an_image_without_its_labels_is_not_named(wish: Wanted, where: Places) -> None:
    shelf = Shelf({**wish.labels, "dflash.lock": "another"})
    with pytest.raises(EnvironmentFault, match="made an image without the labels of the Dockerfile"):
        build(wish, shelf, where, lambda _: None)
    assert not shelf.tags


def test_the_image_of_this_commit_is_not_built_again(wish: Wanted) -> None:
    shelf = Shelf({**wish.labels, "one.more": "label"}, tags={wish.tag: "sha256:1"})
    assert find(wish, shelf) == BuiltImage("sha256:1", 1000, shelf.labels, ("sha256:layer",))


@pytest.mark.parametrize(
    "label", ["dflash.lock", "org.opencontainers.image.revision", "org.opencontainers.image.base.name"]
)
def test_an_image_of_something_else_by_that_name_is_not_it(wish: Wanted, label: str) -> None:
    assert find(wish, Shelf({**wish.labels, label: "another"}, tags={wish.tag: "sha256:1"})) is None


def test_of_a_changed_tree_nobody_knows_what_it_was(wish: Wanted) -> None:
    dirty = replace(wish, revision=replace(REVISION, dirty=True))
    assert find(dirty, Shelf(dirty.labels, tags={dirty.tag: "sha256:1"})) is None


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "read_revision", lambda *_: REVISION)


@pytest.mark.usefixtures("clean")
def test_the_dockerfile_says_the_base_and_its_python(where: Places) -> None:
    wish = wanted("cpu", where)
    assert wish.base.startswith("python:3.11-slim-bookworm@sha256:")
    assert wish.python == "3.11"
    other = wanted("cpu", where, "localhost/other:1", "3.12")
    assert (other.base, other.python) == ("localhost/other:1", "3.12")


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize(
    ("name", "python", "message"),
    [
        ("cqu", None, "unknown environment 'cqu': did you mean cpu? there are tools, harness, "),
        ("tools", None, "tools is in every image; name the environment to train in: "),
        ("cu130", "3.13", "cu130 is not locked for Python 3.13, only for 3.11, 3.12"),
        ("cpu", "3.9", "cpu is not locked for Python 3.9, only for 3.11, 3.12, 3.13"),
    ],
)
def test_what_cannot_be_built_is_said_before_anything_is_asked(
    where: Places, name: str, python: str | None, message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        wanted(name, where, None, python)
    assert str(caught.value).startswith(message)
    assert caught.value.exit_code == 2
