"""Nothing is found on what real installers leave, nor on what they and Python do to it later."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pin.doctor.claims import Change, case_of, edit, found, remove
from tests.pin.doctor.wheels import make_wheel, pip, site_packages


def test_nothing_on_what_pip_installs(python: Path) -> None:
    assert any(path.name == "__pycache__" for path in site_packages(python).rglob("*"))
    assert found(python) == []


def test_nothing_on_what_uv_installs(tmp_path: Path, wheel: Path) -> None:
    uv = [str(Path(sys.executable).parent / "uv")]
    offline = ["--offline", "--no-config", "--no-index"]
    for link_mode in ("copy", "symlink"):
        folder = tmp_path / link_mode
        options = ["--cache-dir", str(tmp_path / "cache"), "--link-mode", link_mode, "--python", str(folder)]
        subprocess.run(
            [*uv, "venv", "--quiet", "--no-config", "--relocatable", "--python", sys.executable, folder], check=True
        )
        subprocess.run([*uv, "pip", "install", "--quiet", *offline, *options, wheel], check=True)
        assert found(folder / "bin" / "python") == []
        assert {d.installer for d in case_of(folder / "bin" / "python").installation.distributions} == {"uv"}


@pytest.mark.slow
def test_nothing_on_a_fresh_environment_with_pip(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "--version"], check=True, capture_output=True)
    assert found(python) == []


BACKEND = """
import pathlib, shutil
def build_editable(folder, config_settings=None, metadata_directory=None):
    wheel = next(pathlib.Path("made").glob("*.whl"))
    return pathlib.Path(shutil.copy(wheel, folder)).name
"""


def test_nothing_on_an_editable_install(python: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "made").mkdir(parents=True)
    (project / "src").mkdir()
    (project / "src" / "mine.py").write_text("x = 1\n")
    make_wheel(project / "made", "mine", "0.1", {"__editable__.mine-0.1.pth": f"{project}/src\n".encode()})
    (project / "backend.py").write_text(BACKEND)
    (project / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "mine"\nversion = "0.1"\n'
    )
    pip(python, "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--editable", project)
    assert case_of(python).installation.by_name["mine"].editable
    (project / "src" / "mine.py").write_text("x = 2\n")
    assert found(python) == []


HARMLESS: list[tuple[str, Change]] = [
    ("INSTALLER", edit("demo-1.0.dist-info/INSTALLER", b"somebody\n")),
    ("REQUESTED gone", remove("demo-1.0.dist-info/REQUESTED")),
    ("direct_url.json", edit("demo-1.0.dist-info/direct_url.json", b"{}")),
    ("uv_cache.json", edit("demo-1.0.dist-info/uv_cache.json", b"{}")),
    ("bytecode gone", lambda site: shutil.rmtree(site / "demo/__pycache__")),
    ("bytecode of another Python", edit("demo/__pycache__/main.cpython-399.pyc", b"")),
    ("virtualenv's patch", lambda site: [(site / f"_virtualenv.{end}").write_text("") for end in ("py", "pth")]),
    ("our own mark", edit("harness-built.json", b"{}")),
    ("easy_install's list", edit("easy-install.pth", b"")),
    ("a broken uninstall", lambda site: shutil.copytree(site / "demo", site / "~emo")),
    ("touched", lambda site: (site / "demo/__init__.py").touch()),
]


@pytest.mark.parametrize("change", [change for _, change in HARMLESS], ids=[name for name, _ in HARMLESS])
def test_what_installers_and_python_do_is_no_finding(python: Path, change: Change) -> None:
    change(site_packages(python))
    assert found(python) == []
