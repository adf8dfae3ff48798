"""An installed environment against its lock. Installed by the real pip where pip's own notes matter."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.markers import Marker
from packaging.requirements import Requirement

from harness.errors import EnvironmentFault
from harness.findings import Finding
from harness.pin.doctor.case import Case, names
from harness.pin.doctor.checks import against_lock
from harness.pin.doctor.checks.against_lock import applicable_pins
from harness.pin.doctor.checks.requirements import required_by, runnable_tags
from harness.pin.doctor.installed.installation import Claim, Distribution, Installation, Layout
from harness.records import Environment, Lock
from tests.pin.doctor.examined import examined, locked
from tests.pin.doctor.wheels import install, make_venv, make_wheel, pip

SITE = "/v/lib/python3.12/site-packages"
LAYOUT = Layout(Path("/v/bin/python"), "3.12.4", "/v", "/usr", (SITE,), SITE, SITE, "/usr/lib/python3.12", (SITE,))
FIX = "harness doctor x --fix"


def dist(name: str, version: str = "1", **fields: Any) -> Distribution:
    return Distribution(name, version, f"{SITE}/{name}-{version}.dist-info", fields.pop("site", SITE), **fields)


def case_of(*distributions: Distribution, lock: Lock | None = None, layout: Layout = LAYOUT, **fields: Any) -> Case:
    pins = applicable_pins(lock, layout) if lock else {}
    return Case(Installation(layout, distributions, {}), lock, pins, command="harness doctor x", **fields)


def found(case: Case) -> list[Finding]:
    return list(against_lock.check(case))


def short(case: Case) -> list[tuple[str, str, str]]:
    return [(finding.kind, finding.severity, finding.subject) for finding in found(case)]


def test_a_real_installation_that_is_its_lock_says_nothing_and_pips_own_note_of_another_file_speaks(
    tmp_path: Path,
) -> None:
    python = make_venv(tmp_path / "venv")
    right = make_wheel(tmp_path, "pinned", "1.0", {"pinned.py": b"1"})
    same = make_wheel(tmp_path, "plain", "1.0", {"plain.py": b""})
    install(python, right, same)
    lock = locked({"pinned": "1.0", "plain": "1.0"}, right, same)
    assert found(examined(python, lock)) == []

    (tmp_path / "other").mkdir()
    other = make_wheel(tmp_path / "other", "pinned", "1.0", {"pinned.py": b"2"})
    install(python, other)
    [finding] = found(examined(python, lock))
    assert (finding.kind, finding.severity, finding.fix) == ("lock.file", "dangerous", FIX)
    assert finding.evidence["url"] == other.as_uri()
    assert f"sha256:{finding.evidence['sha256']}" == locked({"pinned": "1.0"}, other).pins[0].hashes[0]


def test_an_editable_install_of_a_locked_name_is_another_build(tmp_path: Path) -> None:
    python = make_venv(tmp_path / "venv")
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    (project / "pyproject.toml").write_text(BACKEND)
    (project / "backend.py").write_text(BACKEND_CODE)
    arguments = ("install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation", "-e", project)
    pip(python, *arguments)
    case = examined(python, locked({"mine": "1.0"}))
    assert case.installation.by_name["mine"].editable
    [finding] = found(case)
    assert (finding.kind, finding.severity) == ("lock.build", "dangerous")
    assert finding.summary == f"mine is an editable install of {project.as_uri()}, not the locked file"


BACKEND = """\
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "mine"
version = "1.0"
"""
BACKEND_CODE = """\
import zipfile
def build_editable(folder, config_settings=None, metadata_directory=None):
    files = {
        "mine.pth": "src",
        "mine-1.0.dist-info/METADATA": "Metadata-Version: 2.1\\nName: mine\\nVersion: 1.0\\n",
        "mine-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
        "mine-1.0.dist-info/RECORD": "mine.pth,,\\nmine-1.0.dist-info/METADATA,,\\n"
            "mine-1.0.dist-info/WHEEL,,\\nmine-1.0.dist-info/RECORD,,\\n",
    }
    with zipfile.ZipFile(f"{folder}/mine-1.0-py3-none-any.whl", "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return "mine-1.0-py3-none-any.whl"
"""


@pytest.mark.parametrize(
    ("installed", "pinned", "kind"),
    [
        ("2.13.0+cpu", "2.13.0+cpu", None),
        ("2.13", "2.13.0", None),
        ("1.0.0rc1", "1.0.0.RC.1", None),
        ("2.13.0+CU128", "2.13.0+cu128", None),
        ("2.13.0+cu128", "2.13.0+cpu", "lock.build"),
        ("2.13.0+cu128", "2.13.0", "lock.build"),
        ("2.13.0", "2.13.0+cpu", "lock.build"),
        ("2.13.1", "2.13.0", "lock.version"),
        ("2.13.0.post1", "2.13.0", "lock.version"),
        ("2.13.0rc1", "2.13.0", "lock.version"),
        ("2004d", "2004e", "lock.version"),
        ("", "2.13.0", None),  # its dist-info is broken, and that is said elsewhere
    ],
)
def test_versions_compare_as_pep_440_has_it(installed: str, pinned: str, kind: str | None) -> None:
    case = case_of(dist("torch", installed), lock=locked({"torch": pinned}))
    assert short(case) == ([(kind, "dangerous", "torch")] if kind else [])


def test_what_is_locked_and_not_there_is_broken() -> None:
    [finding] = found(case_of(lock=locked({"numpy": "2.0"})))
    assert (finding.kind, finding.severity, finding.fix) == ("lock.missing", "broken", FIX)
    assert finding.summary == "numpy 2.0 is in the lock and is not installed"


def test_without_a_lock_nothing_is_missing_or_extra() -> None:
    assert found(case_of(dist("numpy"), dist("sglang"))) == []


# --- markers: of the examined Python, never of the one that the harness runs in --------------------------


def test_markers_are_those_of_the_examined_python() -> None:
    other = "3.8.1" if sys.version_info[:2] != (3, 8) else "3.9.1"
    here = ".".join(map(str, sys.version_info[:2]))
    markers = {
        "old": f"python_version != '{here}'",
        "new": f"python_version == '{here}'",
        "never": "sys_platform == 'x'",
    }
    lock = locked({"old": "1", "new": "1", "never": "1", "always": "1"}, markers=markers)
    assert applicable_pins(lock, replace(LAYOUT, version=other)).keys() == {"old", "always"}
    assert applicable_pins(lock, replace(LAYOUT, version=f"{here}.99")).keys() == {"new", "always"}


@given(st.sampled_from(["3.9.7", "3.11.0rc1", "3.12.0", "3.13.2", "3.14.0a3"]), st.data())
def test_full_versions_agree_with_an_independent_evaluation(version: str, data: st.DataObject) -> None:
    operator = data.draw(st.sampled_from(["<", "<=", "==", "!=", ">=", ">"]))
    bound = data.draw(st.sampled_from(["3.9", "3.11", "3.12.0", "3.13.2", "3.14"]))
    marker = f"python_full_version {operator} '{bound}'"
    pins = applicable_pins(locked({"p": "1"}, markers={"p": marker}), replace(LAYOUT, version=version))
    expected = Marker(marker).evaluate({"python_full_version": version})
    assert ("p" in pins) == expected


def test_a_marker_that_means_nothing_is_an_error_that_names_its_pin() -> None:
    lock = locked({"p": "1"}, markers={"p": "python_version ~= 'abc' nonsense"})
    with pytest.raises(EnvironmentFault, match=r"envs/x.txt: the marker of p cannot be evaluated"):
        applicable_pins(lock, LAYOUT)


# --- builds and files -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "built", "summary"),
    [
        ("13.0", "'13.0'", None),
        (None, "None", None),
        ("12.8", "'13.0'", "torch is built for CUDA 13.0, and the environment gpu is for CUDA 12.8"),
        ("12.8", "None", "torch is built without CUDA, and the environment gpu is for CUDA 12.8"),
        (None, "'13.0'", "torch is built for CUDA 13.0, and the environment gpu is without CUDA"),
    ],
)
def test_torch_says_itself_for_which_cuda_it_was_built(
    tmp_path: Path, wanted: str | None, built: str, summary: str | None
) -> None:
    (tmp_path / "torch").mkdir()
    text = f"__version__ = '2.11.0'\ncuda: Optional[str] = {built}\nhip: Optional[str] = None\n"
    (tmp_path / "torch/version.py").write_text(text)
    layout = replace(LAYOUT, sites=(str(tmp_path),), purelib=str(tmp_path))
    case = case_of(
        dist("torch", "2.11.0", site=str(tmp_path)),
        lock=locked({"torch": "2.11.0"}),
        layout=layout,
        environment=Environment("gpu", "", ("3.12",), wanted),
    )
    findings = found(case)
    assert [finding.summary for finding in findings] == ([summary] if summary else [])
    assert {finding.kind for finding in findings} <= {"lock.build"}


GOOD = locked({"p": "1"}).pins[0].hashes[0].removeprefix("sha256:")


@pytest.mark.parametrize(
    ("direct_url", "kind"),
    [
        ({"url": "https://i/p.whl", "archive_info": {"hashes": {"sha256": GOOD.upper()}}}, None),
        ({"url": "https://i/p.whl", "archive_info": {"hash": f"sha256={GOOD}"}}, None),
        ({"url": "https://i/p.whl", "archive_info": {"hashes": {"sha256": "a" * 64}}}, "lock.file"),
        ({"url": "https://i/p.whl", "archive_info": {"hash": f"sha256={'a' * 64}"}}, "lock.file"),
        ({"url": "https://i/p.whl", "archive_info": {"hash": "md5=1"}}, None),  # says nothing about the SHA-256
        ({"url": "https://i/p.whl", "archive_info": {}}, None),
        ({"url": "https://u:secret@i/p", "vcs_info": {"vcs": "git", "commit_id": "1"}}, "lock.build"),
        ({"url": "file:///src/p", "dir_info": {}}, "lock.build"),
        ({"url": 7, "archive_info": ["what"]}, None),
        ({"url": "http://[", "archive_info": {"hashes": {"sha256": 7}}}, None),
    ],
)
def test_the_file_that_the_installer_noted_has_to_be_one_of_the_pins(
    direct_url: dict[str, Any], kind: str | None
) -> None:
    findings = found(case_of(dist("p", direct_url=direct_url), lock=locked({"p": "1"})))
    assert [finding.kind for finding in findings] == ([kind] if kind else [])
    assert "secret" not in json.dumps([(f.summary, dict(f.evidence)) for f in findings])


@pytest.mark.parametrize(
    ("tags", "runs"),
    [
        (("cp312-cp312-manylinux_2_17_x86_64", "cp312-cp312-manylinux2014_x86_64"), True),
        (("py2.py3-none-any",), True),
        (("cp38-abi3-linux_x86_64",), True),
        ((), True),
        (("nonsense",), True),  # says nothing
        (("cp311-cp311-linux_x86_64",), False),
        (("cp312-cp312t-linux_x86_64",), False),
        (("cp313-abi3-linux_x86_64",), False),
        (("cp312-cp312-win_amd64",), False),
        (("py3-none-manylinux_2_17_ppc64",), False),
        (("py2-none-any",), False),
    ],
)
@pytest.mark.skipif(sys.platform != "linux" or not sys.maxsize > 2**32, reason="the tags are those of x86-64 Linux")
def test_a_wheel_has_to_be_for_this_python_and_machine(tags: tuple[str, ...], runs: bool) -> None:
    findings = found(case_of(dist("native", tags=tags)))
    assert [(f.kind, f.severity, f.subject) for f in findings] == [("lock.file", "dangerous", "native")] * (not runs)


def test_the_tags_are_the_ones_that_the_running_python_takes() -> None:
    """For the Python that runs this, packaging asks the interpreter itself: an independent answer."""
    from sysconfig import get_path

    from packaging.tags import sys_tags

    version = ".".join(map(str, sys.version_info[:3]))
    assert runnable_tags(replace(LAYOUT, version=version, stdlib=get_path("stdlib"))) == frozenset(sys_tags())


def test_a_free_threaded_python_takes_its_own_wheels() -> None:
    layout = replace(LAYOUT, version="3.13.1", stdlib="/usr/lib/python3.13t")
    platform = next(iter(tag.platform for tag in runnable_tags(layout)))
    assert found(case_of(dist("native", tags=(f"cp313-cp313t-{platform}",)), layout=layout)) == []
    assert len(found(case_of(dist("native", tags=(f"cp313-cp313-{platform}",)), layout=layout))) == 1


# --- extras -----------------------------------------------------------------------------------------------


def test_an_extra_is_named_with_who_asked_for_it() -> None:
    lock = locked({"torch": "1"})
    case = case_of(
        dist("flashinfer-python"),
        dist("sglang", requires=("FlashInfer_Python>=0.2; sys_platform != 'x'", "absent")),
        dist("torch", requires=('sglang; extra == "never"',)),
        lock=lock,
    )
    flashinfer, sglang = found(case)
    assert (flashinfer.kind, flashinfer.severity, flashinfer.subject) == ("lock.extra", "drift", "flashinfer-python")
    assert flashinfer.evidence["required_by"] == ("sglang",)
    assert flashinfer.summary == "flashinfer-python 1 is installed and not in the lock; sglang asked for it"
    assert flashinfer.fix == f"{case.command} --fix --remove flashinfer-python"
    assert sglang.summary.endswith("nothing that is installed asks for it")


def test_an_extra_of_an_extra_counts_only_where_somebody_asks_for_it() -> None:
    own = ('safe[torch]; extra == "all"', 'torch; extra == "torch"', 'loop; extra == "torch"')
    loop = dist("loop", requires=('safe[all]; extra == "x"', 'safe[all]; extra == "torch"'))
    torch = dist("torch")

    def asked(*others: Distribution) -> tuple[str, ...]:
        return names(required_by(case_of(dist("safe", requires=own), loop, torch, *others).installation, "torch"))

    assert asked() == ()
    assert asked(dist("user", requires=("safe[none]",))) == ()
    assert asked(dist("user", requires=("safe[torch]",))) == ("safe",)
    assert asked(dist("user", requires=("safe[all]",))) == ("safe",)
    assert asked(dist("user", requires=("safe[all]; python_version < '3'",))) == ()
    assert asked(dist("user", requires=("safe[all]; extra == 'e'",)), dist("boss", requires=("user[e]",))) == ("safe",)


def test_an_extra_that_holds_a_locked_ones_files_is_not_to_be_uninstalled_by_hand() -> None:
    claim = Claim(f"{SITE}/nvidia/nccl/lib/libnccl.so.2", "sha256", "x", 1)
    pair = (dist("nvidia-nccl-cu12", claims=(claim,)), dist("nvidia-nccl-cu13", claims=(claim,)))
    [finding] = found(case_of(*pair, lock=locked({"nvidia-nccl-cu12": "1"})))
    assert finding.fix == f"{FIX} --remove nvidia-nccl-cu13"


def test_what_every_venv_has_is_a_note() -> None:
    extras = [dist(name) for name in ("pip", "setuptools", "wheel")]
    findings = found(case_of(*extras, lock=locked({})))
    assert [(f.kind, f.severity, f.fix) for f in findings] == [("lock.extra", "note", "")] * 3


def test_an_open_venv_is_told_once_how_to_close_it() -> None:
    outside = [dist(name, site="/usr/lib/python3/dist-packages") for name in ("six", "yaml")]
    layout = replace(LAYOUT, sites=(SITE, "/usr/lib/python3/dist-packages"))
    [finding] = found(case_of(*outside, lock=locked({}), layout=layout))
    assert (finding.severity, finding.evidence["names"]) == ("drift", ("six", "yaml"))
    assert finding.fix == "sed -i '/^include-system-site-packages/s/true/false/' /v/pyvenv.cfg"


@given(st.lists(st.text(max_size=40), max_size=5), st.text(max_size=20), st.lists(st.text(max_size=20), max_size=3))
def test_no_metadata_makes_it_fall(requires: list[str], version: str, tags: list[str]) -> None:
    odd = dist("odd", version, requires=(*requires, 'x; python_version < "é"', "x @ ["), tags=tuple(tags))
    for finding in found(case_of(odd, dist("x"), lock=locked({"odd": "1"}))):
        assert finding.summary.isprintable() or not version.isprintable()  # versions are checked where they are read
        json.dumps(dict(finding.evidence))


@given(st.sampled_from(["'3.12' in python_version", "python_version < '3'", "extra == 'e'", "os_name == 'posix'"]))
def test_who_asks_agrees_with_packagings_own_requirement(marker: str) -> None:
    line = f"thing; {marker}"
    case = case_of(dist("asker", requires=(line,)), dist("thing"), lock=locked({"asker": "1"}))
    expected = Requirement(line).marker.evaluate({"python_version": "3.12", "extra": ""})  # type: ignore[union-attr]
    assert found(case)[0].evidence["required_by"] == (("asker",) if expected else ())
