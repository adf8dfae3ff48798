"""Whether Python finds what is installed, where possible with a real Python's own answer as the reference."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from sysconfig import get_config_var

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.findings import Finding
from harness.pin.doctor.case import Case
from harness.pin.doctor.checks import paths, pth
from harness.pin.doctor.installed.installation import Distribution
from harness.pin.doctor.installed.layout import ask
from tests.pin.doctor.examined import by_kind, examined, listed, locked, mapped, unpack
from tests.pin.doctor.wheels import make_venv, make_wheel, site_packages


def found(case: Case) -> list[Finding]:
    return list(paths.check(case))


def only(case: Case) -> Finding:
    [finding] = found(case)
    return finding


def carried_out(fix: str, **variables: str) -> None:
    subprocess.run(fix, shell=True, check=True, env={**os.environ, **variables})


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with a package, a module and a namespace; nothing may be changed in it."""
    folder = tmp_path_factory.mktemp("installed")
    python = make_venv(folder / "venv")
    files = {"numpy/__init__.py": b"", "lonely.py": b"", "space/inner/__init__.py": b"", "folder/x.py": b""}
    unpack(python, make_wheel(folder, "numpy", "2.0", files))
    return python


@pytest.fixture
def python(tmp_path: Path) -> Path:
    return make_venv(tmp_path / "venv")


# --- shadows ----------------------------------------------------------------------------------------------

_ASK = """
import json, sys
sys.path.insert(0, sys.argv[1])
specs = {name: next(filter(None, (f.find_spec(name, None) for f in sys.meta_path)), None) for name in sys.argv[2:]}
print(json.dumps({name: str(spec.origin) for name, spec in specs.items() if spec}))
"""


def really_from(python: Path, folder: Path, names: list[str]) -> set[str]:
    """Of ``names``, those that a real ``python`` finds in ``folder`` where that comes first on its path."""
    done = subprocess.run([python, "-I", "-c", _ASK, folder, *names], capture_output=True, text=True, check=True)
    return {name for name, origin in json.loads(done.stdout).items() if Path(origin).is_relative_to(folder)}


SHADOWING = [
    *("numpy/__init__.py", "lonely.pyc", "space/__init__.py", "folder.py"),
    *("random/__init__.py", "queue.py", "types.py", f"typing{get_config_var('EXT_SUFFIX')}", "json/__init__.pyc"),
]
HARMLESS = [
    *("logging/x.py", "experiments/x.py", "csv.txt"),  # a folder alone yields to a module that is later on the path
    *("sys.py", "os.py", "abc.py", "time.py", "zipimport.py"),  # built in and frozen: before any folder
    *("new.py", "harness/__init__.py", "not-a-name.py"),  # there is no other of that name
]


def test_what_is_said_to_be_shadowed_is_what_a_real_python_finds_there(installed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    for name in (*SHADOWING, *HARMLESS):
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).touch()
    names = sorted({name.split("/")[0].split(".")[0] for name in (*SHADOWING, *HARMLESS)})
    expected = really_from(installed, folder, names) - unknown_to(installed, names)
    assert len(expected) == len(SHADOWING)

    here = only(examined(installed, cwd=str(folder)))
    assert (here.kind, here.severity, here.evidence["from"]) == ("python.shadowed", "dangerous", "the current folder")
    assert set(listed(here, "modules")) == expected
    there = only(examined(installed, variables={"PYTHONPATH": f"/nowhere:{folder}"}, cwd="/"))
    assert set(listed(there, "modules")) == expected
    assert there.fix == "export PYTHONPATH=/nowhere"

    carried_out(here.fix)
    assert found(examined(installed, cwd=str(folder))) == []
    assert really_from(installed, folder, sorted(expected)) == set()


def unknown_to(python: Path, names: list[str]) -> set[str]:
    """Of ``names``, those that ``python`` does not find at all: nothing of theirs can be shadowed."""
    code = "import sys; from importlib.util import find_spec; print(*(n for n in sys.argv[1:] if not find_spec(n)))"
    done = subprocess.run([python, "-I", "-c", code, *names], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_shadowed_distribution_is_named(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "lonely.py").touch()
    finding = only(examined(installed, variables={"PYTHONPATH": str(tmp_path)}, cwd="/"))
    assert finding.subject == "numpy"
    assert (
        finding.summary
        == f"{tmp_path} (on PYTHONPATH) has a module that Python imports instead of the installed lonely"
    )
    assert finding.fix == "unset PYTHONPATH"


def test_the_harness_own_folder_on_pythonpath_shadows_nothing(installed: Path) -> None:
    root = str(Path(__file__).resolve().parents[4])
    assert found(examined(installed, variables={"PYTHONPATH": root}, cwd=root)) == []


def test_folders_that_do_not_come_first_are_left_alone(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "numpy.py").touch()
    site = str(site_packages(installed))
    assert found(examined(installed, variables={"PYTHONSAFEPATH": "1"}, cwd=str(tmp_path))) == []
    assert found(examined(installed, variables={"PYTHONPATH": f"{site}:/nowhere:{__file__}"}, cwd=site)) == []


def test_an_empty_entry_of_pythonpath_is_the_current_folder(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "numpy.py").touch()
    variables = {"PYTHONPATH": ":/x", "PYTHONSAFEPATH": "1"}
    code = [str(installed), "-c", "import numpy; print(numpy.__file__)"]
    done = subprocess.run(code, cwd=tmp_path, env=variables, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(tmp_path / "numpy.py")
    case = examined(installed, variables=variables, cwd=str(tmp_path))
    assert only(case).fix == "export PYTHONPATH=/x"


def test_the_sources_of_an_editable_install_are_no_shadow(python: Path, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/mine.py").touch()
    unpack(python, make_wheel(tmp_path, "mine", "1", {"mine.pth": str(tmp_path / "src").encode()}))
    assert found(examined(python, cwd=str(tmp_path / "src"))) == []


def test_pythonhome_takes_an_environment_away(installed: Path, tmp_path: Path) -> None:
    finding = only(examined(installed, variables={"PYTHONHOME": sys.base_prefix}))
    assert (finding.severity, finding.fix) == ("dangerous", "unset PYTHONHOME")
    case = examined(installed)
    base = replace(case.installation.layout, prefix=case.installation.layout.base_prefix)
    case = replace(case, installation=replace(case.installation, layout=base))
    assert found(replace(case, variables={"PYTHONHOME": base.base_prefix})) == []
    assert len(found(replace(case, variables={"PYTHONHOME": str(tmp_path)}))) == 1


def test_packages_of_the_user_come_before_the_environments_own(installed: Path) -> None:
    case = examined(installed)
    layout, own = case.installation.layout, case.installation.by_name["numpy"]
    users = "/home/me/.local/lib/python3.11/site-packages"
    both = (replace(own, site=users, version="1.26"), *case.installation.distributions)
    layout = replace(layout, sites=(*layout.sites, users))
    open_case = replace(case, installation=replace(case.installation, layout=layout, distributions=both))
    finding = only(open_case)
    assert (finding.kind, finding.severity) == ("python.shadowed", "dangerous")
    assert (finding.evidence["shadowed"], finding.fix) == (("numpy",), "export PYTHONNOUSERSITE=1")
    assert found(replace(open_case, variables={"PYTHONNOUSERSITE": "1"})) == []


# --- .pth files -------------------------------------------------------------------------------------------


def errors_at_start(python: Path) -> str:
    return subprocess.run([python, "-c", ""], capture_output=True, text=True, check=True).stderr


def test_a_folder_that_is_not_there_any_more_is_named_and_the_fix_leaves_the_others(
    python: Path, tmp_path: Path
) -> None:
    file = site_packages(python) / "mine.pth"
    file.write_text(f"# a comment\n{tmp_path}\n/gone/src\n\nrelative\n")
    finding = only(examined(python))
    assert (finding.kind, finding.severity) == ("python.pth", "drift")
    assert listed(finding, "missing") == ("/gone/src", "relative")
    carried_out(finding.fix)
    assert file.read_text() == f"# a comment\n{tmp_path}\n\n"
    assert found(examined(python)) == []
    file.write_text("/gone/src\n")
    carried_out(only(examined(python)).fix)
    assert found(examined(python)) == []
    assert not file.exists()


def test_code_of_something_that_is_gone_fails_at_every_start(python: Path) -> None:
    file = site_packages(python) / "distutils-precedence.pth"
    file.write_text("import os; os.environ.get('X') or __import__('_distutils_gone').add_shim();\n")
    assert "No module named '_distutils_gone'" in errors_at_start(python)
    finding = only(examined(python))
    assert (finding.kind, finding.severity, listed(finding, "absent")) == (
        "python.pth",
        "dangerous",
        ("_distutils_gone",),
    )
    carried_out(finding.fix)
    assert errors_at_start(python) == ""
    assert found(examined(python)) == []


@pytest.mark.parametrize(
    ("name", "code", "severity"),
    [
        ("unknown.pth", "import sys; sys.flags", "drift"),
        ("unknown.pth", "import base64; exec(base64.b64decode('cGFzcw=='))", "dangerous"),
        ("unknown.pth", "import subprocess; subprocess.Popen(['true'])", "dangerous"),
        ("a1_coverage.pth", "import sys; exec('pass')", None),
        ("protobuf-3.20.0-py3.8-nspkg.pth", "import sys, types, os; p = os.path.join('google')", None),
        ("sphinxcontrib_x-nspkg.pth", "import sys, types, os", None),
        ("_virtualenv.pth", "import sys", None),
        (".hidden.pth", "import nothing_at_all", None),  # the site module leaves it out
        ("unknown.pth", "import this is not Python", "drift"),
        ("unknown.pth", "#import nothing_at_all", None),
    ],
)
def test_whose_code_runs_at_every_start(
    installed: Path, tmp_path: Path, name: str, code: str, severity: str | None
) -> None:
    assert [f.severity for f in with_pth(installed, tmp_path, name, code.encode())] == [severity] * (
        severity is not None
    )


def with_pth(installed: Path, site: Path, name: str, content: bytes) -> list[Finding]:
    """What is said of a .pth file in one more site, so that no environment has to be made for it."""
    (site / name).write_bytes(content)
    case = examined(installed, bytes_read=False)
    layout = replace(case.installation.layout, sites=(str(site),), purelib=str(site))
    files = {str(site / name): next(iter(case.installation.files.values()))}
    inner = replace(case.installation, layout=layout, files=files, distributions=())
    return list(pth.check(replace(case, installation=inner)))


def test_code_that_a_distribution_brought_is_its_own(python: Path, tmp_path: Path) -> None:
    files = {"hooked.pth": b"import hooked; exec('pass')\n", "hooked.py": b""}
    unpack(python, make_wheel(tmp_path, "hooked", "1", files))
    assert found(examined(python)) == []
    (site_packages(python) / "hooked.py").unlink()
    assert "hooked" in errors_at_start(python)
    finding = only(examined(python, locked({"hooked": "1"})))
    assert (finding.severity, finding.subject, finding.fix) == ("dangerous", "hooked", "harness doctor x --fix")


def test_an_editable_finder_whose_sources_are_gone(installed: Path, tmp_path: Path) -> None:
    mapping = f"from x import y\nMAPPING: dict[str, str] = {{'here': {str(tmp_path)!r}, 'gone': '/gone/src'}}\n"
    (tmp_path / "__editable___mine_1_finder.py").write_text(mapping)
    code = b"import __editable___mine_1_finder; __editable___mine_1_finder.install()"
    [finding] = with_pth(installed, tmp_path, "__editable__.mine-1.pth", code)
    assert (finding.severity, finding.evidence["missing"]) == ("drift", ("/gone/src",))
    (tmp_path / "__editable___mine_1_finder.py").write_text("MAPPING: dict[str, str] = open('x')\n")
    assert with_pth(installed, tmp_path, "__editable__.mine-1.pth", code) == []


@given(content=st.binary(max_size=60) | st.text(max_size=60).map(lambda text: f"import {text}".encode()))
def test_no_pth_file_makes_it_fall(installed_layout: Case, content: bytes) -> None:
    case = installed_layout
    site = case.installation.layout.purelib
    Path(site, "odd.pth").write_bytes(content)
    for finding in pth.check(case):
        assert all(text.isprintable() for text in (finding.summary, finding.fix, *listed_or_none(finding)))


def listed_or_none(finding: Finding) -> tuple[str, ...]:
    return tuple(text for value in finding.evidence.values() if isinstance(value, tuple) for text in value)


@pytest.fixture(scope="module")
def installed_layout(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Case:
    site = str(tmp_path_factory.mktemp("site"))
    case = examined(installed, bytes_read=False)
    layout = replace(case.installation.layout, sites=(site,), purelib=site, platlib=site)
    files = {f"{site}/odd.pth": next(iter(case.installation.files.values()))}
    return replace(case, installation=replace(case.installation, layout=layout, files=files, distributions=()))


# --- dist-info --------------------------------------------------------------------------------------------


def test_two_versions_of_one_name_and_whose_the_files_are(python: Path, tmp_path: Path) -> None:
    site = site_packages(python)
    old = make_wheel(tmp_path, "pkg", "1.0", {"pkg.py": b"one"})
    new = make_wheel(tmp_path, "pkg", "2.0", {"pkg.py": b"two", "more.py": b"two"})
    unpack(python, old)
    (site / "pkg-1.0.dist-info").rename(tmp_path / "aside")
    unpack(python, new)
    (tmp_path / "aside").rename(site / "pkg-1.0.dist-info")

    finding = only(examined(python))
    code = "from importlib.metadata import version; print(version('pkg'))"
    says = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert (finding.kind, finding.severity, finding.subject) == ("python.duplicate", "dangerous", "pkg")
    assert f"Python says {says}" in finding.summary
    assert str(finding.evidence["python_finds"]).endswith(f"pkg-{says}.dist-info")
    assert finding.summary.endswith("and the files are those of 2.0")
    assert set(mapped(finding, "files_borne_out").values()) == {"2 of 3", "4 of 4"}
    removal = finding.fix.split(" && ")[0]
    assert shlex.split(removal) == ["rm", "-r", str(site / "pkg-1.0.dist-info")]
    carried_out(removal)
    assert found(examined(python)) == []


def test_a_version_that_another_site_hides_is_no_duplicate(installed: Path) -> None:
    case = examined(installed)
    hidden = replace(case.installation.by_name["numpy"], site="/usr/lib/python3/dist-packages", version="1.0")
    inner = replace(case.installation, distributions=(*case.installation.distributions, hidden))
    assert found(replace(case, installation=inner)) == []


def test_what_an_interrupted_pip_left_is_cleared_away_by_the_fix(python: Path, tmp_path: Path) -> None:
    site = site_packages(python)
    unpack(python, make_wheel(tmp_path, "orch", "2.1", {"orch/__init__.py": b""}))
    for name in ("orch", "orch-2.1.dist-info"):
        (site / name).rename(site / f"~{name[1:]}")
    finding = only(examined(python))
    assert (finding.kind, finding.severity, finding.subject) == ("python.dist-info", "drift", "python")
    assert listed(finding, "folders") == ("~rch", "~rch-2.1.dist-info")
    carried_out(finding.fix)
    assert list(site.glob("*rch*")) == []


def test_a_dist_info_without_its_metadata_is_dangerous(python: Path, tmp_path: Path) -> None:
    unpack(python, make_wheel(tmp_path, "pkg", "1.0", {"pkg.py": b""}))
    (site_packages(python) / "pkg-1.0.dist-info/METADATA").unlink()
    finding = only(examined(python, locked({"pkg": "1.0"})))
    assert (finding.kind, finding.severity, finding.subject) == ("python.dist-info", "dangerous", "pkg")
    assert "METADATA is missing" in finding.summary
    assert finding.fix == "harness doctor x --fix"


# --- purelib and platlib ----------------------------------------------------------------------------------


def test_torch_and_nvidias_wheels_in_two_folders_are_joined_by_the_fix(tmp_path: Path, installed: Path) -> None:
    pure, native = tmp_path / "lib/site-packages", tmp_path / "lib64/site-packages"
    for folder in (pure / "nvidia/cudnn/lib", pure / "nvidia/nccl/lib", native / "nvidia/nccl", native / "torch/lib"):
        folder.mkdir(parents=True)
    layout = replace(ask(installed), sites=(str(pure), str(native)), purelib=str(pure), platlib=str(native))
    (pure / "nvidia/cudnn/lib/libcudnn.so.9").touch()
    placed = {"nvidia-cudnn-cu12": pure, "nvidia-nccl-cu12": native, "torch": native, "six": pure}
    distributions = tuple(
        Distribution(name, "1", f"{site}/{name}.dist-info", str(site)) for name, site in sorted(placed.items())
    )
    case = examined(installed)
    case = replace(case, installation=replace(case.installation, layout=layout, distributions=distributions, files={}))
    finding = by_kind(found(case))["python.split"][0]
    assert (finding.severity, finding.subject) == ("dangerous", "torch")
    assert mapped(finding, "elsewhere") == {"nvidia-cudnn-cu12": str(pure)}
    carried_out(finding.fix)
    assert (native / "torch/lib/../../nvidia/cudnn/lib/libcudnn.so.9").exists()  # torch's own RPATH
    joined = replace(case.installation, layout=replace(layout, sites=(str(pure),), platlib=str(pure)))
    assert found(replace(case, installation=joined)) == []
