"""``harness doctor`` and ``harness freeze`` as a person meets them: the first line, the exit code, the question."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from harness.cli import main
from harness.places import program
from tests.pin.doctor.wheels import install, make_venv, make_wheel, site_packages

Capture = pytest.CaptureFixture[str]
NCCL = "nvidia/nccl/lib/libnccl.so.2"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A venv with two locked distributions, their lock, and the wheels: also one that overwrites a file of theirs."""
    folder = tmp_path_factory.mktemp("made")
    wheels = [
        make_wheel(folder, "nvidia-nccl-cu13", "2.28.9", {NCCL: b"thirteen"}),
        make_wheel(folder, "numerics", "1.0", {"numerics/__init__.py": b"x = 1\n"}),
    ]
    pins = (wheel.name.split("-py3")[0].replace("_", "-").rpartition("-") for wheel in wheels)
    hashes = (hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in wheels)
    lines = [
        f"{name}=={version} --hash=sha256:{digest}\n" for (name, _, version), digest in zip(pins, hashes, strict=True)
    ]
    (folder / "lock.txt").write_text("".join(lines))
    (folder / "cu12").mkdir()
    make_wheel(folder / "cu12", "nvidia-nccl-cu12", "2.27.5", {NCCL: b"twelve"})
    install(make_venv(folder / "my venv"), *wheels)
    return folder


@pytest.fixture
def place(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same for this test alone, and pip's settings know no other place than its folder."""
    shutil.copytree(made, tmp_path, symlinks=True, dirs_exist_ok=True)
    (tmp_path / "pip.conf").write_text(f"[global]\nindex-url = file://{tmp_path}/nothing\nfind-links = {tmp_path}\n")
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PYTHONPATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.setenv("HARNESS_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain.txt").write_text("numerics==1.0\n")
    (tmp_path / "no base" / "bin").mkdir(parents=True)
    (tmp_path / "no base" / "bin" / "python").symlink_to(tmp_path / "gone" / "python3")
    return tmp_path


def overwrite(place: Path) -> None:
    install(place / "my venv" / "bin" / "python", *(place / "cu12").glob("*.whl"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["doctor"], "name an environment (harness envs lists them) or a Python with --python, and not both"),
        (["doctor", "cpu", "--python", "x"], "and not both"),
        (["doctor", "cpuu"], "unknown environment 'cpuu': did you mean cpu?"),
        (["doctor", "cpu", "--lock", "x"], "cpu has a lock of its own; --lock goes with --python"),
        (["doctor", "cpu", "--yes"], "--yes and --remove go with --fix"),
        (["doctor", "--python", "nowhere"], "'nowhere' is neither a Python nor a virtual environment"),
        (["doctor", "--python", "my venv", "--lock", "gone.txt"], "there is no lock at gone.txt"),
        (["doctor", "--python", "my venv", "--lock", "plain.txt"], "plain.txt line 1 is not a pin with SHA-256 hashes"),
        (["doctor", "--python", "my venv", "--lock", "/bin/ls"], "ls is not a lock: it is not text; pip-compile"),
        (["doctor", "--python", "no base"], "no base: its Python is gone, "),
        (["doctor", "--python", ""], "neither a Python nor a virtual environment"),
        (["doctor", "--python", "my venv", "--fix"], "--fix mends from a lock"),
        (
            ["doctor", "--python", "my venv", "--lock", "lock.txt", "--fix", "--remove", "numeric"],
            "did you mean numerics?",
        ),
        (["doctor", "--python", "my venv", "--if-uninstalled", "numeric"], "did you mean numerics?"),
        (["freeze", "--python", "nowhere"], "'nowhere' is neither a Python nor a virtual environment"),
        (["freeze", "--python", "my venv", "--name", "cpu"], "cpu"),
        (["freeze", "--python", "my venv", "--name", "a b"], "a b"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(arguments: list[str], message: str, place: Path, capfd: Capture) -> None:
    assert main(arguments) == 2
    printed = capfd.readouterr()
    assert printed.out == ""
    assert message in printed.err
    assert printed.err.count("\n") == 1
    assert printed.err.startswith("error: ")
    assert (place / "my venv").is_dir()


def test_an_environment_that_is_not_built_is_said_with_what_builds_it(
    capfd: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARNESS_STATE", str(tmp_path))
    assert main(["doctor", "cu128"]) == 2
    assert f"cu128 is not built here: {program()} sync cu128" in capfd.readouterr().err


def test_a_sound_environment_says_so_first(place: Path, capfd: Capture) -> None:
    assert main(["doctor", "--python", "my venv", "--lock", "lock.txt"]) == 0
    first = capfd.readouterr().out.splitlines()[0]
    assert first.startswith(f"{place}/my venv/bin/python is what its lock says: ")
    assert "every byte read" in first
    assert main(["doctor", "--python", "my venv", "--lock", "lock.txt"]) == 0
    assert "nothing has changed since every byte was read" in capfd.readouterr().out


def test_the_json_of_a_broken_one(place: Path, capfd: Capture) -> None:
    overwrite(place)
    assert main(["doctor", "--python", "my venv", "--lock", "lock.txt", "--json"]) == 1
    answer = json.loads(capfd.readouterr().out)
    assert answer["ok"] is False
    first = answer["findings"][0]
    assert {"kind", "severity", "subject", "evidence", "fix"} <= first.keys()
    assert (first["kind"], first["severity"], first["subject"]) == ("owner.overwritten", "broken", "nvidia-nccl-cu13")


def test_mending_asks_and_then_ends_at_the_locks_bytes(place: Path, capfd: Capture) -> None:
    overwrite(place)
    asked = ["doctor", "--python", "my venv", "--lock", "lock.txt", "--fix"]
    assert main(asked) == 2  # nobody is there to answer
    said = capfd.readouterr().err
    assert "1. reinstall nvidia-nccl-cu13 2.28.9" in said
    assert "add --yes" in said
    library = site_packages(place / "my venv" / "bin" / "python") / NCCL
    assert library.read_bytes() == b"twelve", "nothing was touched"

    assert main([*asked, "--yes"]) == 1, "the other CUDA's wheel was not asked about, and is still dangerous"
    assert library.read_bytes() == b"thirteen"
    assert "left as it is: " in capfd.readouterr().err

    assert main([*asked, "--yes", "--remove", "nvidia-nccl-cu12"]) == 0
    assert library.read_bytes() == b"thirteen"
    assert "is what its lock says" in capfd.readouterr().out


def test_what_an_uninstall_would_take(place: Path, capfd: Capture) -> None:
    overwrite(place)
    assert main(["doctor", "--python", "my venv", "--if-uninstalled", "NVIDIA_nccl.cu12"]) == 1
    said = capfd.readouterr().out
    assert said.splitlines()[0] == "an uninstall of NVIDIA_nccl.cu12 breaks 1 other"
    assert "nvidia-nccl-cu13 would lose libnccl.so.2" in said
    assert f"site-packages/{NCCL}" in said
    assert main(["doctor", "--python", "my venv", "--if-uninstalled", "numerics"]) == 0
    assert "takes only what is its own" in capfd.readouterr().out
