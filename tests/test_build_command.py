"""``harness image`` as a person meets it, with a stand-in for the builder, and where it matters for the engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.cli import main
from harness.commands import image as command
from harness.pin.image import build as building
from harness.pin.image.build import wanted
from harness.pin.image.context import Revision
from harness.places import places
from tests.pin.image.shelf import Shelf
from tests.run.engines import FakeEngine

Capture = pytest.CaptureFixture[str]
IDENTITY = "sha256:" + "1" * 64


@pytest.fixture(autouse=True)
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    """A builder that succeeds; no index is asked, and the tree is as it was committed."""
    monkeypatch.setenv("HARNESS_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(building, "read_revision", lambda *_: Revision("c" * 40, 1_700_000_000, "2023-11-14", False))
    monkeypatch.setattr(command, "check_files", lambda *_: None)
    monkeypatch.setattr(command, "_end_as_by_ctrl_c", lambda: None)  # not in pytest's own process
    shelf = Shelf(wanted("cpu", places()).labels)
    monkeypatch.setattr(command, "find_builder", lambda: shelf)
    return shelf


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    """podman alone, with the image that the shelf makes."""
    engine = FakeEngine.install("podman", tmp_path)
    engine.has({wanted("cpu", places()).tag: wanted("cpu", places()).labels}, IDENTITY)
    monkeypatch.setenv("PATH", f"{engine.bin}:/usr/bin:/bin")
    monkeypatch.setattr("harness.run.engine._LOOKED_FOR", ("podman",))
    return engine


def test_it_is_built_once_and_says_what_it_is(shelf: Shelf, capfd: Capture) -> None:
    assert main(["image", "cpu"]) == 0
    printed = capfd.readouterr()
    (tag,) = shelf.tags
    assert printed.out == f"{tag}  0.00 GB  {IDENTITY}\n"
    assert "[0:00]  [1/2] STEP 1/9: FROM base AS tools\n" in printed.err
    shelf.arguments = {}
    assert main(["image", "cpu"]) == 0
    assert capfd.readouterr().err == f"{tag} is built already, of commit cccccccccccc\n"
    assert shelf.arguments == {}  # nothing was built


def test_for_a_program_it_is_one_object(shelf: Shelf, capfd: Capture) -> None:
    assert main(["image", "cpu", "--json"]) == 0
    told = json.loads(capfd.readouterr().out)
    assert told == {
        "tag": next(iter(shelf.tags)),
        "identity": IDENTITY,
        "size": 1000,
        "labels": dict(shelf.labels),
        "layers": ["sha256:layer"],
        "proofs": [],
    }


def test_a_proof_that_is_not_good_is_shown_and_is_the_exit_code(engine: FakeEngine, capfd: Capture) -> None:
    engine.inside("raise SystemExit(3)")
    assert main(["image", "cpu", "--smoke", "--json"]) == 1
    proofs = {proof["name"]: proof for proof in json.loads(capfd.readouterr().out)["proofs"]}
    assert proofs["doctor"] == {"name": "doctor", "good": False, "detail": "exit code 3"}
    assert not any(proof["good"] for proof in proofs.values())
    assert main(["image", "cpu", "--smoke"]) == 1
    assert "  BAD  run tiny: exit code 3\n" in capfd.readouterr().out


def test_without_an_engine_nothing_is_built_that_could_not_be_tried(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["image", "cpu", "--smoke"]) == 2
    message = "an image needs a container engine: docker is not on PATH; podman is not on PATH; apt-get install podman"
    assert capfd.readouterr().err == f"error: {message}\n"
    assert shelf.arguments == {}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cqu"], "unknown environment 'cqu': did you mean cpu?"),
        (["harness"], "harness is in every image; name the environment to train in"),
        (["cu130", "--python", "3.13"], "cu130 is not locked for Python 3.13, only for 3.11, 3.12"),
        (["cpu", "--pithon", "3.12"], "No such option '--pithon'"),
    ],
)
def test_a_wrong_request_is_one_line_and_nothing_is_built(
    shelf: Shelf, arguments: list[str], message: str, tmp_path: Path, capfd: Capture
) -> None:
    assert main(["image", *arguments]) == 2
    printed = capfd.readouterr()
    assert printed.err.startswith(f"error: {message}")
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert shelf.arguments == {}
    assert not (tmp_path / "state").exists()
