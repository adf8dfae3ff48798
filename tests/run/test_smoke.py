"""The proof of an image: shut in, and what a run in it recorded against what the image says of itself."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import FrameType

import pytest

from harness.records import Fingerprint
from harness.run.engine import Engine, Image
from harness.run.folder import RunFolder
from harness.run.resolve import resolve
from harness.run.smoke import command, compare, prove
from tests.run.engines import FakeEngine

LABELS = {"dflash.environment": "cpu", "dflash.lock": "l" * 64, "org.opencontainers.image.revision": "c" * 40}
FACTS = {
    "environment.image.tag": "dflash-harness:cpu-1",
    "environment.image.digest": "sha256:1",
    "environment.image.environment": "cpu",
    "environment.image.lock": "l" * 64,
    "environment.image.revision": "c" * 40,
    "environment.lock": "l" * 64,
}


def image(program: str = "podman", labels: dict[str, str] = LABELS) -> Image:
    return Image(Engine("podman", program, "podman 4.3", rootless=False), "dflash-harness:cpu-1", "sha256:1", labels)


def test_it_runs_shut_in(tmp_path: Path) -> None:
    given = command(image(), tmp_path, "smoke-1", ["doctor", "cpu"])
    assert given[:2] == ["podman", "run"]
    assert given[-3:] == ["sha256:1", "doctor", "cpu"]  # by the digest: a name may move
    assert {"--network=none", "--read-only", "--cap-drop=ALL", "--memory=4g", "--rm", "--name=smoke-1"} <= set(given)
    mounts = [argument for argument in given if argument.startswith("--mount")]
    assert mounts == [f"--mount=type=bind,source={tmp_path / name},target=/{name}" for name in ("state", "runs")]
    assert not [argument for argument in given if "privileged" in argument and "no-new" not in argument]


def test_what_was_recorded_as_the_image_says_is_good() -> None:
    assert [proof.good for proof in compare(image(), resolve("tiny"), FACTS)] == [True] * 6


@pytest.mark.parametrize("fact", FACTS)
def test_a_fact_that_differs_or_is_missing_is_not(fact: str) -> None:
    wrong = compare(image(), resolve("tiny"), {**FACTS, fact: "another"})
    assert [proof.name for proof in wrong if not proof.good] == [fact]
    missing = compare(image(), resolve("tiny"), {name: value for name, value in FACTS.items() if name != fact})
    [bad] = [proof for proof in missing if not proof.good]
    assert (bad.name, bad.detail.startswith("not recorded, and the image says ")) == (fact, True)


def test_of_a_recipe_in_another_environment_the_lock_is_that_ones() -> None:
    """``toy`` runs in ``tools``: its lock says nothing of the image's."""
    facts = {**FACTS, "environment.lock": "that of tools"}
    assert all(proof.good for proof in compare(image(), resolve("toy"), facts))


def stand_in(folder: Path, doctor: int, run: int, facts: dict[str, str] | None) -> Image:
    """An engine whose container answers the doctor and the run with these exit codes, and leaves these facts."""
    findings = [{"summary": "libcudnn.so.9 is gone"}] if doctor else []
    (folder / "findings.json").write_text(json.dumps({"findings": findings}))
    if facts is not None:
        recorded = RunFolder.create(folder / "recorded", "tiny")
        recorded.write_json("spec.json", resolve("tiny").to_json())
        recorded.write_json("fingerprint.json", Fingerprint(dict(facts)).to_json())
    program = folder / "podman"
    program.write_text(
        f"""#!/bin/sh
for argument; do case $argument in *target=/runs) runs=${{argument#*source=}}; runs=${{runs%,target*}};; esac; done
case " $* " in
*" doctor "*) cat {folder}/findings.json; exit {doctor};;
*" run tiny "*) [ -d {folder}/recorded ] && cp -r {folder}/recorded/* "$runs"; exit {run};;
esac
exit 99
"""
    )
    program.chmod(0o755)
    return image(str(program))


def test_an_image_that_works_is_proved(tmp_path: Path) -> None:
    proofs = prove(stand_in(tmp_path, 0, 0, FACTS), lambda _: None)
    assert [proof.name for proof in proofs if not proof.good] == []
    assert len(proofs) == 8


def test_a_proof_that_is_stopped_leaves_no_container(tmp_path: Path) -> None:
    engine = FakeEngine.install("podman", tmp_path)
    engine.inside("import time; time.sleep(600)")

    def stopped(_: int, __: FrameType | None) -> None:
        raise KeyboardInterrupt

    def stop() -> None:
        until = time.monotonic() + 60
        while not engine.containers and time.monotonic() < until:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, stopped)
    try:
        threading.Thread(target=stop).start()
        with pytest.raises(KeyboardInterrupt):
            prove(image(str(engine.bin / "podman")), lambda _: None)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert engine.containers == []
    (name,) = [word.removeprefix("--name=") for word in engine.asked("run")[0] if word.startswith("--name=")]
    assert [command[-1] for command in engine.asked("stop")] == [name]


def test_each_thing_that_fails_is_named(tmp_path: Path) -> None:
    proofs = {proof.name: proof for proof in prove(stand_in(tmp_path, 1, 137, None), lambda _: None)}
    assert not any(proof.good for proof in proofs.values())
    assert proofs["doctor"].detail == "libcudnn.so.9 is gone"
    assert proofs["run tiny"].detail == "exit code 137"


def test_an_image_of_another_environment_runs_the_toy(tmp_path: Path) -> None:
    cuda = replace(stand_in(tmp_path, 0, 0, FACTS), labels={**LABELS, "dflash.environment": "cu130"})
    proofs = {proof.name: proof for proof in prove(cuda, lambda _: None)}
    assert proofs["run toy"].detail == "exit code 99"  # this stand-in has no toy, and was asked for it
    assert not proofs["environment.image.environment"].good


def test_root_does_not_run_it_as_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 0)
    assert not [argument for argument in command(image(), tmp_path, "a", []) if argument.startswith("--user")]
    monkeypatch.setattr(os, "getuid", lambda: 1234)
    monkeypatch.setattr(os, "getgid", lambda: 1235)
    assert "--user=1234:1235" in command(image(), tmp_path, "a", [])
