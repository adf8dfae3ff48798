"""The files behind an editable install, for each way in which tools lead to them."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.pin.doctor.installed import layout as layouts
from harness.pin.doctor.installed.installation import Claim, Distribution
from harness.pin.doctor.installed.read import read
from harness.pin.freeze.editable import sources
from tests.pin.doctor.wheels import make_venv, pip


def editable(site: Path, name: str, **files: str) -> Distribution:
    """An editable install by hand: ``files`` of its site by name, with "_pth" and "_py" for the endings."""
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    claims = []
    for spelled, text in files.items():
        stem, _, ending = spelled.rpartition("_")
        path = site / f"{stem}.{ending}"
        path.write_text(text)
        claims.append(Claim(str(path), "", "", None))
    return Distribution(name, "1.0", str(info), str(site), tuple(claims), editable=True)


def lay(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return folder


def relative(found: dict[str, str], folder: Path) -> dict[str, str]:
    return {name: str(Path(path).relative_to(folder)) for name, path in found.items()}


def test_a_folder_of_sources_alone_is_taken_whole(tmp_path: Path) -> None:
    lay(tmp_path / "p", "src/one/__init__.py", "src/one/data.json", "src/two.py", "pyproject.toml")
    lay(tmp_path / "p", "src/one/__pycache__/x.pyc", "src/one.egg-info/PKG-INFO", "src/one/.git/config")
    found = sources(editable(tmp_path / "site", "one", wire_pth=f"{tmp_path}/p/src\n"))
    assert found is not None
    assert relative(found.files, tmp_path / "p" / "src") == {
        name: name for name in ("one/__init__.py", "one/data.json", "two.py")
    }
    assert found.passed_over == ()


def test_of_a_projects_own_folder_only_its_package_is_taken_and_the_rest_named(tmp_path: Path) -> None:
    lay(tmp_path / "p", "pyproject.toml", "my_pack/__init__.py", "my_pack/sub/a.py", "tests/test_a.py", "other/b.py")
    found = sources(editable(tmp_path / "site", "my-pack", wire_pth=f"{tmp_path}/p"))
    assert found is not None
    assert relative(found.files, tmp_path / "p").keys() == {"my_pack/__init__.py", "my_pack/sub/a.py"}
    assert [Path(path).name for path in found.passed_over] == ["other", "tests"]


def test_a_project_whose_package_has_another_name_is_taken_without_what_lies_beside(tmp_path: Path) -> None:
    lay(tmp_path / "p", "setup.py", "train/__init__.py", "model.py", "tests/test_a.py")
    found = sources(editable(tmp_path / "site", "seeds", wire_pth=f"{tmp_path}/p"))
    assert found is not None
    assert relative(found.files, tmp_path / "p").keys() == {"train/__init__.py", "model.py"}


def test_top_level_txt_says_what_belongs_to_it(tmp_path: Path) -> None:
    lay(tmp_path / "p", "setup.py", "train/__init__.py", "tools/__init__.py", "other/__init__.py")
    distribution = editable(tmp_path / "site", "seeds", wire_pth=f"{tmp_path}/p")
    (Path(distribution.info) / "top_level.txt").write_text("train\ntools\n")
    found = sources(distribution)
    assert found is not None
    assert relative(found.files, tmp_path / "p").keys() == {"train/__init__.py", "tools/__init__.py"}


def test_setuptools_finder_maps_packages_and_modules(tmp_path: Path) -> None:
    lay(tmp_path / "p", "lib/pack/__init__.py", "mod.py", "ns/inner/__init__.py")
    table = {"pack": f"{tmp_path}/p/lib/pack", "mod": f"{tmp_path}/p/mod", "ns.inner": f"{tmp_path}/p/ns/inner"}
    finder = f"from __future__ import annotations\nMAPPING: dict[str, str] = {table!r}\nNAMESPACES = {{}}\n"
    files = {"__editable___pack_finder_py": finder, "__editable___pack_pth": "import __editable___pack_finder\n"}
    found = sources(editable(tmp_path / "site", "pack", **files))
    assert found is not None
    assert relative(found.files, tmp_path / "p") == {
        "pack/__init__.py": "lib/pack/__init__.py",
        "mod.py": "mod.py",
        "ns/inner/__init__.py": "ns/inner/__init__.py",
    }


@pytest.mark.parametrize(
    "finder",
    ["", "MAPPING = {", "MAPPING = make()", "MAPPING = {1: 2, 'a': b}", "MAPPING = {'../../etc': '/etc'}", "\0"],
)
def test_what_leads_nowhere_is_unknown_and_never_run(tmp_path: Path, finder: str) -> None:
    found = sources(
        editable(tmp_path / "site", "pack", __editable___pack_finder_py=finder, wire_pth="/nowhere\nimport os\n")
    )
    assert found is None


def test_a_link_that_leads_back_ends(tmp_path: Path) -> None:
    lay(tmp_path / "p", "src/one/__init__.py")
    (tmp_path / "p" / "src" / "one" / "again").symlink_to("..")
    found = sources(editable(tmp_path / "site", "one", wire_pth=f"{tmp_path}/p/src"))
    assert found is not None
    assert "one/__init__.py" in found.files
    assert len(found.files) < 5


PROJECTS = {
    "hatchling": '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n',
    "flit": '[build-system]\nrequires = ["flit_core"]\nbuild-backend = "flit_core.buildapi"\n',
    "setuptools": '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n',
    "poetry": '[build-system]\nrequires = ["poetry-core"]\nbuild-backend = "poetry.core.masonry.api"\n',
}


@pytest.mark.slow
@pytest.mark.parametrize("root", ["", "src"])
@pytest.mark.parametrize("tool", list(PROJECTS))
def test_what_the_real_tools_install(tmp_path: Path, tool: str, root: str) -> None:
    text = PROJECTS[tool] + '[project]\nname = "my-pack"\nversion = "1.0"\ndescription = "x"\n'
    lay(tmp_path / "p" / root, "my_pack/__init__.py", "my_pack/sub/__init__.py", "my_pack/data.json")
    (tmp_path / "p" / "pyproject.toml").write_text(text)
    for path in (tmp_path / "p").rglob("*.py"):
        path.write_text("")
    python = make_venv(tmp_path / "venv")
    pip(python, "install", "--quiet", "--editable", tmp_path / "p")
    found = sources(read(layouts.ask(python)).by_name["my-pack"])
    assert found is not None
    expected = {"my_pack/__init__.py", "my_pack/sub/__init__.py", "my_pack/data.json"}
    assert relative(found.files, tmp_path / "p" / root) == {name: name for name in expected}
    assert found.wiring
