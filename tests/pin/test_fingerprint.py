"""The fingerprint: read from files and never by importing, each fact of its kind."""

from __future__ import annotations

import platform
import subprocess
import sys
import sysconfig
from importlib.metadata import version
from pathlib import Path

import pytest

from harness.errors import EnvironmentFault
from harness.pin.fingerprint import cache_identity, environment_facts, packages, spec_facts, torch_facts
from harness.pin.interpreter import ask, environment_of, of_command
from harness.pin.machine import image_facts, machine_facts
from harness.records import KINDS, BuiltEnvironment, Fingerprint, Lock, RunSpec

TORCH_VERSION = """\
from typing import Optional

__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip', 'rocm', 'xpu']
__version__ = '2.14.1+cu130'
debug = False
cuda: Optional[str] = '13.0'
git_version = '449b1768410104d3ed79d3bcfe4ba1d65c7f22c0'
hip: Optional[str] = None
raise RuntimeError("this file was imported")
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """An environment whose packages raise when they are imported."""
    for name, metadata in {
        "torch-2.14.1.dist-info": "Name: torch\nVersion: 2.14.1\n",
        "nvidia_nccl_cu13-2.29.dist-info": "Name: nvidia-nccl-cu13\nVersion: 2.29\n",
        "Odd.Name-1.dist-info": "Name: Odd.Name_x\nVersion: 1\n",
        "~orch-2.0.dist-info": "",  # what a broken uninstall leaves
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "METADATA").write_text("Metadata-Version: 2.1\n" + metadata)
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise RuntimeError('imported')")
    (tmp_path / "torch" / "version.py").write_text(TORCH_VERSION)
    return tmp_path


def test_packages_and_torchs_build_are_read_and_nothing_is_imported(site: Path) -> None:
    assert packages(site) == {"torch": "2.14.1", "nvidia-nccl-cu13": "2.29", "odd-name-x": "1"}
    assert torch_facts(site) == {
        "environment.torch.build": "2.14.1+cu130",
        "environment.cuda": "13.0",
        "environment.torch.commit": "449b1768410104d3ed79d3bcfe4ba1d65c7f22c0",
    }
    assert torch_facts(site / "torch") == {}


def test_a_cpu_build_has_no_cuda(site: Path) -> None:
    (site / "torch" / "version.py").write_text("__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\n")
    assert torch_facts(site) == {"environment.torch.build": "2.13.0+cpu"}


def test_this_environment_is_what_the_metadata_says() -> None:
    facts = environment_facts(environment_of(Path(sys.executable)))
    assert facts["environment.python"] == platform.python_version()
    assert facts["environment.package.pytest"] == version("pytest")
    assert "environment.lock" not in facts


def test_the_settings_stand_under_their_kinds() -> None:
    spec = RunSpec(
        "tiny", "cpu", ("python",), {"train.batch": 8, "compile": "no", "name": "x"},
        {"train.batch": "workload", "compile": "execution", "name": "context"}, devices=("a:cpu", "b:cpu"),
    )  # fmt: skip
    assert spec_facts(spec) == {
        "workload.train.batch": 8,
        "execution.compile": "no",
        "context.name": "x",
        "execution.devices": "a:cpu,b:cpu",
        "context.recipe": "tiny",
    }
    assert spec_facts(RunSpec("", "", ("train", "--api-key", "abc"))) == {"workload.command": "train --api-key ***"}


def test_the_machines_facts_are_each_of_a_kind_and_never_empty() -> None:
    facts = machine_facts()
    assert {name.split(".")[0] for name in facts} <= set(KINDS)
    assert all(value is not None and value != "" for value in facts.values())
    assert facts["environment.kernel"] == platform.release()
    assert isinstance(facts["environment.memory.bytes"], int)
    assert facts["environment.memory.bytes"] > 1 << 28
    assert facts["environment.container"]


def test_load_and_time_do_not_move_the_identity_of_the_place() -> None:
    first = Fingerprint({"environment.python": "3.11.7", "state.load.1m": 0.1, "context.time": "a"})
    later = Fingerprint({"environment.python": "3.11.7", "state.load.1m": 9.0, "context.time": "b"})
    other = Fingerprint({"environment.python": "3.11.8", "state.load.1m": 0.1, "context.time": "a"})
    assert first.digest == later.digest != other.digest


def test_the_cache_identity_is_the_lock_or_what_is_installed() -> None:
    lock = Lock("cpu", ("3.11",), "ab" * 32, (), "cpu.txt")
    locked = BuiltEnvironment("cpu", Path("python"), Path(), lock)
    unlocked = BuiltEnvironment("", Path("python"), Path())
    facts = {"environment.python": "3.11.7", "environment.package.torch": "2.13.0"}
    assert cache_identity(locked, facts) == "cpu-abababababab-py3.11.7"
    first = cache_identity(unlocked, facts)
    assert first.startswith("unlocked-")
    assert cache_identity(unlocked, {**facts, "environment.package.torch": "2.14.0"}) != first


def test_an_image_shares_its_compile_cache_with_images_of_its_system_and_with_nothing_else() -> None:
    locked = BuiltEnvironment("cpu", Path("python"), Path(), Lock("cpu", ("3.11",), "ab" * 32, (), "cpu.txt"))
    outside = {"environment.python": "3.11.7", "environment.os": "Debian 12", "environment.libc": "glibc 2.36"}
    inside = {**outside, "environment.image.revision": "a" * 40}
    identity = cache_identity(locked, inside)
    assert identity.startswith(f"{cache_identity(locked, outside)}-image-")
    assert cache_identity(locked, {**inside, "environment.image.revision": "b" * 40}) == identity
    assert cache_identity(locked, {**inside, "environment.libc": "glibc 2.41"}) != identity


def test_an_image_is_one_more_set_of_facts() -> None:
    told = {
        "HARNESS_IMAGE_TAG": "dflash:cpu",
        "HARNESS_IMAGE_LOCK": "ab",
        "HARNESS_IMAGE_BASE": "",
        "HARNESS_RUNS": "/r",
    }
    assert image_facts(told) == {"environment.image.tag": "dflash:cpu", "environment.image.lock": "ab"}
    assert image_facts({"PATH": "/bin"}) == {}


def test_the_python_of_a_command_is_found(tmp_path: Path) -> None:
    for name, first in {
        "torchrun": f"#!{sys.executable}",
        "with-env": "#!/usr/bin/env python3",
        "with-env-s": "#!/usr/bin/env -S python3 -u",
        "train.sh": "#!/bin/sh",
    }.items():
        (tmp_path / name).write_text(first + "\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "python3").symlink_to("/bin/sh")
    (tmp_path / "python3.99").symlink_to("/bin/sh")
    path = str(tmp_path)
    assert of_command(["torchrun", "train.py"], path) == Path(sys.executable)
    assert of_command(["with-env"], path) == tmp_path / "python3"
    assert of_command(["with-env-s"], path) == tmp_path / "python3"
    assert of_command(["python3.99", "train.py"], path) == tmp_path / "python3.99"
    assert of_command(["train.sh"], path) == tmp_path / "python3"  # the first that it would find
    (tmp_path / "python3").unlink()
    assert of_command(["train.sh"], path) is None


def test_a_command_in_a_virtual_environment_has_that_environment(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    found = environment_of(tmp_path / "venv" / "bin" / "python")
    assert found.site_packages == tmp_path / "venv" / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
    assert packages(found.site_packages) == {}


def test_a_python_that_does_not_start_is_named(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match="does not start as a Python"):
        ask(tmp_path / "python")
