"""The commands that findings name, carried out: by a pip that can run, in the Python that the distribution is of."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from harness.findings import Finding
from harness.pin.doctor.case import Case
from harness.pin.doctor.checks import against_lock, files, paths
from tests.pin.doctor.examined import examined, locked, unpack
from tests.pin.doctor.wheels import install, make_venv, make_wheel, pip, site_packages

VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return make_wheel(tmp_path, "small", "3.0", {"small/__init__.py": b"answer = 42\n", "small/data.txt": b"data"})


def carried_out(fix: str, index: Path) -> None:
    environ = {**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index), "PIP_CONFIG_FILE": os.devnull}
    subprocess.run(["bash", "-ec", fix], check=True, env=environ, capture_output=True, text=True)


def bad(case: Case) -> list[Finding]:
    checks = (*files.check(case), *paths.check(case), *(against_lock.check(case) if case.lock else ()))
    return [finding for finding in checks if finding.severity != "note"]


def only(case: Case) -> Finding:
    [finding] = bad(case)
    return finding


# --- which pip --------------------------------------------------------------------------------------------


def test_an_environment_without_pip_is_mended_by_the_harness_own(tmp_path: Path, wheel: Path) -> None:
    python = make_venv(tmp_path / "a venv")
    install(python, wheel)
    (site_packages(python) / "small/data.txt").unlink()
    finding = only(examined(python))
    assert finding.fix.startswith(f"{sys.executable} -m pip --python '{python}' install ")
    carried_out(finding.fix, tmp_path)
    assert bad(examined(python)) == []
    carried_out(examined(python).uninstall("small"), tmp_path)
    assert examined(python).installation.distributions == ()


PIP = {"pip/__init__.py": b"", "pip/__main__.py": b"print('it runs')\n"}


def test_the_environments_own_pip_is_used_where_it_is_whole_and_not_to_be_changed(tmp_path: Path) -> None:
    python = make_venv(tmp_path / "venv")
    unpack(python, make_wheel(tmp_path, "pip", "24.0", PIP), make_wheel(tmp_path, "other", "1", {"other.py": b""}))
    own, ours = f"{python} -m pip ", f"{sys.executable} -m pip --python {python} "
    case = examined(python)
    assert case.reinstall("other") == f"{own}install --force-reinstall --no-deps other==1"
    assert case.install("new>=2,<3") == f"{own}install --force-reinstall --no-deps 'new>=2,<3'"
    assert case.uninstall("other") == f"{own}uninstall -y other"
    assert case.reinstall("other", "pip").startswith(ours)
    assert case.uninstall("pip").startswith(ours)
    main = site_packages(python) / "pip/__main__.py"
    main.write_bytes(b"print('it burns')\n")
    assert examined(python).reinstall("other").startswith(ours), "changed"
    main.unlink()
    assert examined(python, bytes_read=False).reinstall("other").startswith(ours), "missing"


# --- which Python -----------------------------------------------------------------------------------------


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A Python of its own: the tests' program with its standard library, and an empty folder for packages."""
    prefix, stdlib = tmp_path / "base", Path(sysconfig.get_path("stdlib"))
    (prefix / "bin").mkdir(parents=True)
    (prefix / "lib" / VERSION / "site-packages").mkdir(parents=True)
    shutil.copy(os.path.realpath(sys.executable), prefix / "bin" / VERSION)
    for library in stdlib.parent.glob("libpython*"):
        (prefix / "lib" / library.name).symlink_to(library)
    for entry in stdlib.iterdir():
        if entry.name not in ("site-packages", "dist-packages", "EXTERNALLY-MANAGED"):
            (prefix / "lib" / VERSION / entry.name).symlink_to(entry)
    return prefix / "bin" / VERSION


@pytest.fixture
def open_venv(tmp_path: Path, base: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The Python of a virtual environment that sees what its base has, and the user's folder."""
    monkeypatch.setenv("PYTHONUSERBASE", str(tmp_path / "user"))
    folder = tmp_path / "open"
    subprocess.run([base, "-m", "venv", "--system-site-packages", "--without-pip", folder], check=True)
    return folder / "bin" / "python"


@pytest.mark.parametrize("managed", [False, True])
@pytest.mark.parametrize("where", ["base", "user"])
def test_what_an_open_environment_sees_is_mended_where_it_is(
    open_venv: Path, base: Path, tmp_path: Path, wheel: Path, where: str, managed: bool
) -> None:
    pip(base, "install", "--no-index", "--no-deps", *(["--user"] if where == "user" else []), wheel)
    site = (tmp_path / where).resolve() / "lib" / VERSION / "site-packages"
    (site / "small/data.txt").unlink()
    if managed:
        (base.parents[1] / "lib" / VERSION / "EXTERNALLY-MANAGED").write_text("[externally-managed]\nError=no\n")
    case = examined(open_venv, variables=dict(os.environ))
    finding = only(case)
    assert f"-m pip --python {base} install " in finding.fix
    carried_out(finding.fix, tmp_path)
    case = examined(open_venv, variables=dict(os.environ))
    assert bad(case) == []
    assert [d.site for d in case.installation.distributions] == [str(site)], "no copy in the environment"
    carried_out(case.uninstall("small"), tmp_path)
    assert list(site.iterdir()) == []


def test_a_lock_mends_what_is_in_it_and_pip_what_is_seen_from_outside(
    open_venv: Path, base: Path, tmp_path: Path, wheel: Path
) -> None:
    unpack(open_venv, make_wheel(tmp_path, "own", "1.0", {"own.py": b""}))
    pip(base, "install", "--no-index", "--no-deps", wheel)
    case = examined(open_venv, locked({"own": "1.0"}), variables=dict(os.environ))
    assert case.reinstall("own") == "harness doctor x --fix"
    assert case.reinstall("own", "small").startswith(
        f"harness doctor x --fix && {sys.executable} -m pip --python {base}"
    )
    assert case.uninstall("small") == f"{sys.executable} -m pip --python {base} uninstall -y small"


def test_a_folder_of_packages_that_is_no_pythons_is_filled_again(tmp_path: Path, wheel: Path) -> None:
    python = make_venv(tmp_path / "venv")
    folder = tmp_path / "vendored packages"
    pip(python, "install", "--no-index", "--no-deps", "--target", folder, wheel)
    (site_packages(python) / "vendored.pth").write_text(f"{folder}\n")
    (folder / "small/data.txt").unlink()
    missing = [finding for finding in bad(examined(python)) if finding.kind == "file.missing"]
    carried_out(missing[0].fix, tmp_path)
    assert (folder / "small/data.txt").read_bytes() == b"data"
    assert list(site_packages(python).glob("small*")) == []


# --- a name and nothing else ------------------------------------------------------------------------------


@pytest.fixture
def python(tmp_path: Path) -> Path:
    return make_venv(tmp_path / "venv")


@pytest.mark.parametrize("lock", [None, locked({}), locked({"other": "1"})])
@pytest.mark.parametrize("content", [(), ("INSTALLER", "direct_url.json")])
def test_an_empty_dist_info_goes_and_nothing_is_fetched_in_its_name(
    python: Path, tmp_path: Path, lock: object, content: tuple[str, ...]
) -> None:
    unpack(python, make_wheel(tmp_path, "other", "1", {"other.py": b""}))
    husk = site_packages(python) / "empty-1.0.dist-info"
    husk.mkdir()
    for name in content:
        (husk / name).write_text("{}")
    findings = [f for f in bad(examined(python, lock)) if f.subject == "empty"]  # type: ignore[arg-type]
    assert {finding.fix for finding in findings} == {f"rm -r -- {husk}"}
    carried_out(findings[0].fix, tmp_path)
    assert [f for f in bad(examined(python, lock)) if f.subject == "empty"] == []  # type: ignore[arg-type]


@pytest.mark.parametrize("gone", [("METADATA",), ("RECORD",), ("METADATA", "RECORD", "WHEEL")])
def test_what_lost_its_metadata_is_put_back_though_pip_cannot_uninstall_it(
    python: Path, tmp_path: Path, wheel: Path, gone: tuple[str, ...]
) -> None:
    unpack(python, wheel, make_wheel(tmp_path, "other", "1", {"other.py": b""}))
    for name in gone:
        (site_packages(python) / "small-3.0.dist-info" / name).unlink()
    assert {f.fix for f in bad(examined(python, locked({"small": "3.0", "other": "1"})))} == {"harness doctor x --fix"}
    [metadata] = [f for f in bad(examined(python)) if f.kind == "python.dist-info"]
    carried_out(metadata.fix, tmp_path)
    assert bad(examined(python)) == []
    (site_packages(python) / "small-3.0.dist-info/RECORD").unlink()
    carried_out(examined(python).reinstall("small", "other"), tmp_path)
    assert bad(examined(python)) == []


@pytest.mark.parametrize("lock", [None, locked({"small": "3.0"})])
def test_an_empty_dist_info_beside_a_sound_one_goes(python: Path, tmp_path: Path, wheel: Path, lock: object) -> None:
    unpack(python, wheel)
    (site_packages(python) / "small-2.0.dist-info").mkdir()
    [finding] = [f for f in bad(examined(python, lock)) if f.kind.startswith("python.")]  # type: ignore[arg-type]
    carried_out(finding.fix, tmp_path)
    assert bad(examined(python, lock)) == []  # type: ignore[arg-type]


def test_of_two_records_the_one_that_is_borne_out_is_put_back(python: Path, tmp_path: Path, wheel: Path) -> None:
    unpack(python, make_wheel(tmp_path, "small", "2.0", {"small/__init__.py": b"older"}), wheel)
    [finding] = [f for f in bad(examined(python)) if f.kind == "python.duplicate"]
    carried_out(finding.fix, tmp_path)
    assert bad(examined(python)) == []
    assert [d.version for d in examined(python).installation.distributions] == ["3.0"]


# --- one file, one mend -----------------------------------------------------------------------------------

PTH = {
    "stale": "/gone/src\n",
    "partly stale": "{here}\n/gone/src\n",
    "code": "import sys; sys.flags\n",
    "code of something gone": "import not_there_at_all\n",
    "stale, and code": "/gone/src\nimport sys; sys.flags\n",
    "partly stale, and code": "{here}\n/gone/src\nimport sys; exec('pass')\n",
    "packages from outside": "{other}\n",
    "packages from outside, partly stale": "{other}\n/gone/src\n",
    "packages from outside, and code": "{other}\nimport sys; sys.flags\n",
    "neither": "{here}\n",
}


@pytest.mark.parametrize("with_lock", [False, True])
@pytest.mark.parametrize("text", PTH.values(), ids=PTH)
def test_all_that_is_said_of_one_pth_file_is_mended_together(
    python: Path, tmp_path: Path, wheel: Path, text: str, with_lock: bool
) -> None:
    other, here = tmp_path / "other", tmp_path / "here"
    here.mkdir()
    shutil.unpack_archive(wheel, other, "zip")
    (site_packages(python) / "mine.pth").write_text(text.format(other=other, here=here))
    (site_packages(python) / "stray.py").write_text("")
    for _ in range(2):  # what is left of a file is nobody's still
        findings = bad(examined(python, locked({}) if with_lock else None))
        for fix in dict.fromkeys(finding.fix for finding in findings):
            carried_out(fix, tmp_path)
    assert bad(examined(python, locked({}) if with_lock else None)) == []
    assert not (site_packages(python) / "stray.py").exists()
