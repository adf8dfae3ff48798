"""A working environment with everything in it that a capture can meet, and a checkout to capture it into."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

from harness.pin.environments import RUNNING
from harness.pin.venvs import find_uv
from harness.places import Places, places
from tests.pin.doctor.wheels import make_venv, make_wheel, pip, site_packages

SETUP = """
from setuptools import setup
setup(
    name="{name}", version="0.1", packages=["{name}"], package_dir={{"": "{root}"}},
    package_data={{"{name}": ["*.txt"]}}, entry_points={{"console_scripts": ["{name}={name}:main"]}},
)
"""
PATCHED = b"\n# a local patch: do not lose this\n"


def lay_checkout(root: Path, tools: Path) -> Places:
    """A checkout with the real tools environment and no other."""
    real, where = places().root / "envs", Places(root, root / ".harness", root / "runs")
    where.envs.mkdir(parents=True)
    (where.envs / tools.name).symlink_to(tools)
    (root / "envs").mkdir()
    for name in ("tools.txt", "tools.in"):
        (root / "envs" / name).write_text((real / name).read_text())
    (root / "envs" / "envs.toml").write_text(
        f'# a comment that stays\n\n[tools]\npurpose = "a test"  # and this one\npython = ["{RUNNING}"]\n'
    )
    return where


def project(folder: Path, name: str, root: str) -> Path:
    """A project of one package for setuptools, its packages in ``root``: "" or "src"."""
    package = folder / root / name
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(f"def main():\n    print('{name} runs')\n")
    (package / "notes.txt").write_text("data beside the code\n")
    (folder / "setup.py").write_text(SETUP.format(name=name, root=root))
    (folder / "tests").mkdir()
    (folder / "tests" / "__init__.py").touch()
    return folder


def local_wheel(folder: Path) -> Path:
    """A build that no index has: scripts of two kinds, data, a header, something compiled, and a local version."""
    libraries = Path(sysconfig.get_path("stdlib"), "lib-dynload").glob("*.so")
    compiled = min(libraries, key=lambda path: path.stat().st_size)
    stem = "our_ops-1.0+local.data"
    files = {
        "our_ops/__init__.py": b"ANSWER = 42\n",
        "our_ops/kernels.so": compiled.read_bytes(),
        f"{stem}/data/share/our_ops/table.bin": bytes(range(256)),
        f"{stem}/headers/ops.h": b"#pragma once\n",
    }
    scripts = {"our-ops": b"#!python\nimport our_ops\nprint(our_ops.ANSWER)\n", "our-tool": b"#!/bin/sh\necho tool\n"}
    return make_wheel(folder, "our-ops", "1.0+local", files, tag="py3-none-linux_x86_64", scripts=scripts)


def lived_in(folder: Path) -> Path:
    """The Python of an environment that people worked in. Everything in it was installed by the real pip."""
    python = make_venv(folder / "venv")
    pip(python, "install", "--quiet", "click==8.5.1", "packaging==26.4", "jmespath==1.0.1", "setuptools==84.2.1")
    built = ("install", "--quiet", "--no-deps", "--no-build-isolation")
    pip(python, *built, "--no-binary=six", "--no-cache-dir", "six==1.17.0")
    pip(python, *built, "--editable", project(folder / "flat", "flat_project", ""))
    pip(python, *built, "--editable", project(folder / "behind", "src_project", "src"))
    wheels = folder / "wheels"
    wheels.mkdir()
    pip(python, *built, local_wheel(wheels))
    for script in ("our-ops", "our-tool"):  # uv makes every script executable, pip only those that are in the wheel
        (python.parent / script).chmod(0o755)
    packages = site_packages(python)
    with (packages / "click" / "core.py").open("ab") as file:
        file.write(PATCHED)
    (packages / "shim.pth").write_text("import shim\n")
    (packages / "shim.py").write_text("WAS_HERE = True\n")
    return python


def with_uv(python: Path, *wheels: Path) -> None:
    """The real uv installs the wheels and nothing that they ask for: ten times as fast as pip."""
    options = ("--quiet", "--no-index", "--no-deps", "--reinstall", "--python", python)
    subprocess.run([find_uv(places()), "pip", "install", *options, *wheels], check=True)


def says(python: Path, *arguments: str) -> str:
    """What the program prints. Raises where it fails."""
    return subprocess.run([python, *arguments], capture_output=True, text=True, check=True).stdout
