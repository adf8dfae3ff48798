"""Whether a lock's files are to be had: asked of the real index, and nothing is downloaded."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from harness.errors import EnvironmentFault
from harness.pin.environments import environment, load_environments, lock_for
from harness.pin.image.files import check_files, files_on_disk
from harness.pin.indexes import IndexSettings
from harness.pin.locks import read_lock
from harness.places import places
from harness.records import Environment, Lock, Pin
from tests.pin.doctor.wheels import make_wheel
from tests.pin.freeze.index_server import Index, serving

WHERE = places()
TRAINING = [
    "cpu",
    *(pytest.param(name, marks=pytest.mark.slow) for name, e in load_environments(WHERE).items() if e.cuda),
]


def said(_: str) -> None:
    """Nobody listens."""


@pytest.mark.parametrize("name", TRAINING)
def test_every_file_of_a_lock_is_to_be_had(name: str) -> None:
    env = environment(name, WHERE)
    check_files(env, lock_for(env, "3.11", WHERE), "3.11", WHERE, said)


def altered(tmp_path: Path, changes: Mapping[str, str]) -> Lock:
    """The lock of cu128 with some words of it changed."""
    path = tmp_path / "cu128.txt"
    text = Path(lock_for(environment("cu128", WHERE), "3.11", WHERE).path).read_text("utf-8")
    for before, after in changes.items():
        text = text.replace(before, after)
    path.write_text(text)
    return read_lock(path, "cu128", ("3.11",))


def test_hashes_that_no_index_has_are_found_though_uvs_dry_run_passes_them(tmp_path: Path) -> None:
    env = environment("cu128", WHERE)
    torch = next(pin for pin in lock_for(env, "3.11", WHERE).pins if pin.name == "torch")
    lock = altered(tmp_path, {found: f"sha256:{number:064}" for number, found in enumerate(torch.hashes)})
    with pytest.raises(EnvironmentFault) as caught:
        check_files(env, lock, "3.11", WHERE, said)
    message = f"no index has a wheel of torch {torch.version} with a hash that cu128.txt pins"
    assert str(caught.value) == f"{message}; lock it anew: nox -s lock -- cu128"


def test_a_version_that_no_index_has_is_found(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    env = environment("cu128", WHERE)
    torch = next(pin for pin in lock_for(env, "3.11", WHERE).pins if pin.name == "torch")
    lock = altered(tmp_path, {f"torch=={torch.version}": "torch==2.10.99"})
    with pytest.raises(EnvironmentFault, match=r"^not every version that cu128\.txt pins is to be had: uv's own words"):
        check_files(env, lock, "3.11", WHERE, said)
    assert "torch==2.10.99" in capfd.readouterr().err


@pytest.mark.parametrize("pinned", ["the wheel's own hash", "another"])
def test_where_pip_asks_no_index_the_folders_of_this_machine_are_all(
    pinned: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_wheel(tmp_path, "pack", "1.0", {"pack.py": b""})
    digest = hashlib.sha256(path.read_bytes() if pinned != "another" else b"").hexdigest()
    (tmp_path / "e.txt").write_text(f"pack==1.0 --hash=sha256:{digest}\n")
    lock = Lock("e", ("3.11",), "0", (Pin("pack", "1.0", (f"sha256:{digest}",)),), str(tmp_path / "e.txt"))
    told = {"PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": str(tmp_path), "PIP_NO_INDEX": "1"}
    with serving(Index(tmp_path)) as index:
        for name, value in {**told, "PIP_INDEX_URL": index.address, "PIP_EXTRA_INDEX_URL": index.address}.items():
            monkeypatch.setenv(name, value)
        env = Environment("e", "a test", ("3.11",), extra_index=index.address)
        if pinned == "another":
            message = "no folder of find-links has a wheel of pack 1.0 with a hash that e.txt pins, and pip's no-index "
            with pytest.raises(EnvironmentFault, match=f"^{re.escape(message)}"):
                check_files(env, lock, "3.11", WHERE, said)
        else:
            check_files(env, lock, "3.11", WHERE, said)
        assert index.asked == []
        monkeypatch.setenv("PIP_NO_INDEX", "0")
        monkeypatch.setenv("PIP_FIND_LINKS", "")
        with contextlib.suppress(EnvironmentFault):
            check_files(env, lock, "3.11", WHERE, said)
        assert index.asked  # the trap works


def wheel(folder: Path, name: str) -> tuple[Path, str]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(name)
    return folder / name, "sha256:" + hashlib.sha256(name.encode()).hexdigest()


def test_of_files_on_disk_those_count_that_the_lock_names_by_their_hash(tmp_path: Path) -> None:
    mine, hash_ = wheel(tmp_path, "Some_Thing.more-1.0+cpu-py3-none-any.whl")
    wheel(tmp_path, "some_thing.more-1.0+cpu-cp311-cp311-linux_x86_64.whl")
    wheel(tmp_path, "unknown-1.0-py3-none-any.whl")
    (tmp_path / "notes.txt").touch()
    lock = Lock("e", ("3.11",), "0", (Pin("some-thing-more", "1.0+cpu", (hash_,)),), "e.txt")
    assert list(files_on_disk([lock], IndexSettings(find_links=(str(tmp_path),)))) == [mine]
