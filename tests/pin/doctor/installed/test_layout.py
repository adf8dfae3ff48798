"""Where a Python keeps its packages, asked of real ones."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from harness.pin.doctor.installed.layout import ask
from tests.pin.doctor.wheels import make_venv, site_packages

BASE = Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")


def test_a_virtual_environment(tmp_path: Path) -> None:
    python = make_venv(tmp_path / "venv")
    layout = ask(python)
    site = str(site_packages(python).resolve())
    assert layout.python == python  # the link itself: what it leads to is another environment's
    assert (layout.sites, layout.purelib, layout.platlib) == ((site,), site, site)
    assert (layout.prefix, layout.base_prefix) == (
        str((tmp_path / "venv").resolve()),
        str(Path(sys.base_prefix).resolve()),
    )
    assert layout.is_venv
    assert layout.version == sys.version.split()[0]
    assert site in layout.path
    assert layout.stdlib == str(Path(sysconfig.get_path("stdlib")).resolve())


def test_folders_reached_by_links_are_the_same_folder(tmp_path: Path) -> None:
    """lib64 is often a link to lib, and the environment itself may be reached by one."""
    python = make_venv(tmp_path / "real")
    (tmp_path / "link").symlink_to("real")
    layout = ask(tmp_path / "link" / "bin" / "python")
    assert layout.sites == (str(site_packages(python).resolve()),)
    assert layout.prefix == str((tmp_path / "real").resolve())


def test_an_open_virtual_environment_has_its_base_s_packages_too(tmp_path: Path) -> None:
    subprocess.run([BASE, "-m", "venv", "--without-pip", "--system-site-packages", tmp_path / "venv"], check=True)
    sites = ask(tmp_path / "venv" / "bin" / "python").sites
    assert sites[0] == str(site_packages(tmp_path / "venv" / "bin" / "python").resolve())
    assert ask(BASE).purelib in sites[1:]


def test_the_user_s_own_folder_counts_where_python_would_look_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    own = tmp_path / ".local" / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    own.mkdir(parents=True)
    assert str(own) not in ask(BASE).sites  # nothing in it
    (own / "mine-1.0.dist-info").mkdir()
    assert str(own) in ask(BASE).sites
    assert str(own) not in ask(make_venv(tmp_path / "venv")).sites


def test_a_pth_file_adds_packages_but_a_folder_of_sources_is_no_site(tmp_path: Path) -> None:
    python = make_venv(tmp_path / "venv")
    for folder, info in (("shared", "a-1.dist-info"), ("sources", "b.egg-info")):
        (tmp_path / folder / info).mkdir(parents=True)
        (site_packages(python) / f"{folder}.pth").write_text(f"{tmp_path / folder}\n")
    layout = ask(python)
    assert layout.sites == (layout.purelib, str(tmp_path / "shared"))
    assert str(tmp_path / "sources") in layout.path
