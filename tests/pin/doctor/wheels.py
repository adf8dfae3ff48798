"""Small wheels with the paths of the real ones, and environments to install them into with the real installers."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path


def make_wheel(
    folder: Path,
    name: str,
    version: str,
    files: Mapping[str, bytes] = {},
    requires: Sequence[str] = (),
    tag: str = "py3-none-any",
    scripts: Mapping[str, bytes] = {},
    build: str = "",
) -> Path:
    """A valid wheel in ``folder``: ``files`` by path under site-packages, ``scripts`` by name under bin."""
    stem = f"{name.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    data = {**files, **{f"{stem}.data/scripts/{script}": text for script, text in scripts.items()}}
    needs = "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
    data[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}".encode()
    pure = "true" if tag.endswith("none-any") else "false"
    wheel = f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: {pure}\nTag: {tag}\n"
    data[f"{info}/WHEEL"] = (wheel + (f"Build: {build}\n" if build else "")).encode()
    rows = [f"{path},sha256={record_digest(content)},{len(content)}" for path, content in data.items()]
    data[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
    path = folder / f"{stem}-{build + '-' if build else ''}{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, content in data.items():
            archive.writestr(zipfile.ZipInfo(member, (2026, 1, 1, 0, 0, 0)), content)
    return path


def record_digest(content: bytes) -> str:
    """SHA-256 as a RECORD spells it."""
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def make_venv(folder: Path) -> Path:
    """The Python of a new, empty virtual environment (no pip in it)."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return folder / "bin" / "python"


def site_packages(python: Path) -> Path:
    """Where ``python`` of ``make_venv`` keeps its packages."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return python.parent.parent / "lib" / version / "site-packages"


def pip(python: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The real pip of the tests' own environment, at work on ``python``'s. Raises where it fails."""
    command = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", *arguments]
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True)


def install(python: Path, *wheels: Path) -> None:
    """Install ``wheels`` with the real pip, and nothing that they ask for; what is there is overwritten."""
    pip(python, "install", "--quiet", "--no-deps", "--no-index", "--no-compile", "--force-reinstall", *wheels)
