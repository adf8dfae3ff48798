"""A lived-in environment, captured, built again from its lock by the real builder, and compared file by file."""

from __future__ import annotations

import json
import shutil
import subprocess
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from harness.errors import EnvironmentFault, UsageError
from harness.frozen import Frozen
from harness.pin import venvs
from harness.pin.caches import VARIABLES
from harness.pin.check_lock import check_environment
from harness.pin.compile_lock import compile_environment
from harness.pin.doctor.case import Question
from harness.pin.doctor.diagnose import diagnose
from harness.pin.doctor.installed import layout as layouts
from harness.pin.doctor.installed.installation import Installation
from harness.pin.doctor.installed.read import read
from harness.pin.environments import RUNNING, environment
from harness.pin.freeze.capture import freeze
from harness.pin.freeze.rebuild import MARKER
from harness.pin.freeze.scheme import claims, scheme
from harness.pin.freeze.shebang import original_start
from harness.places import Places
from tests.pin.freeze.sources import PATCHED, lay_checkout, lived_in, says


class Story(NamedTuple):
    """What was captured, and what came of it."""

    source: Path
    where: Places
    frozen: Frozen
    built: venvs.Built


def silent(_: str) -> None:
    """No progress in tests."""


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory, tools: Path) -> Story:
    folder = tmp_path_factory.mktemp("freeze")
    source = lived_in(folder)
    where = lay_checkout(folder / "checkout", tools)
    before = snapshot(folder / "venv")
    with pytest.MonkeyPatch.context() as patch:
        for name, kind in VARIABLES.items():
            (folder / "caches" / kind).mkdir(parents=True)
            patch.setenv(name, str(folder / "caches" / kind))
        (folder / "caches" / "inductor" / "fxgraph" / "ab").mkdir(parents=True)
        (folder / "caches" / "inductor" / "fxgraph" / "ab" / "graph").write_bytes(b"compiled")
        (folder / "caches" / "triton" / "kernel.cubin").write_bytes(b"machine code")
        frozen = freeze(source, "ours", where, silent)
    assert snapshot(folder / "venv") == before  # nothing of it was changed
    assert (folder / "caches" / "triton" / "kernel.cubin").read_bytes() == b"machine code"
    return Story(source, where, frozen, venvs.ensure("ours", where, say=silent))


def snapshot(folder: Path) -> Mapping[str, tuple[int, int]]:
    return {str(path): (path.lstat().st_mtime_ns, path.lstat().st_size) for path in folder.rglob("*")}


def contents(installation: Installation) -> dict[str, bytes]:
    """Every file that wheels brought, by its place from the root, with the first line of scripts as in their wheels."""
    found = {}
    for distribution in installation.distributions:
        place = scheme(distribution, installation.layout)
        for claim in claims(distribution, installation.layout):
            start = original_start(claim.path, place.scripts)
            data = Path(claim.path).read_bytes()
            found[place.key_of_path(claim.path)] = start.text + data[start.length :]
    return found


def test_the_environment_built_from_the_lock_has_the_same_bytes(story: Story) -> None:
    before, after = (contents(read(layouts.ask(python))) for python in (story.source, story.built.python))
    site = f"lib/python{RUNNING}/site-packages"
    added = {path for path in after if path.endswith(MARKER)}
    packages = {
        f"{site}/{name}/{file}" for name in ("flat_project", "src_project") for file in ("__init__.py", "notes.txt")
    }
    wired = {
        path for path in before if "__editable__" in path or path.endswith("__editable___flat_project_0_1_finder.py")
    }
    assert after.keys() - before.keys() == added | packages
    assert before.keys() - after.keys() == wired
    same = before.keys() & after.keys()
    assert {path for path in same if before[path] != after[path]} == set()
    assert before[f"{site}/click/core.py"].endswith(PATCHED)
    assert len(same) > 300


def test_it_works_as_the_one_that_was_captured(story: Story) -> None:
    programs = ("our-ops", "our-tool", "flat_project", "src_project", "jp.py")
    for name in programs[:-1]:
        before, after = (
            subprocess.run([python.parent / name], capture_output=True, text=True)
            for python in (story.source, story.built.python)
        )
        assert (after.returncode, after.stdout) == (before.returncode, before.stdout) == (0, after.stdout), after.stderr
    for name in programs:
        assert (story.built.python.parent / name).stat().st_mode & 0o111
    inside = "import flat_project, src_project; print(flat_project.__file__, src_project.__file__)"
    assert all(str(story.built.folder) in path for path in says(story.built.python, "-c", inside).split())


def test_what_is_proven_and_what_is_kept_and_why(story: Story) -> None:
    frozen = story.frozen
    assert {kept.name for kept in frozen.proven} == {"packaging", "jmespath", "setuptools"}
    why = {kept.name: kept.why for kept in frozen.rebuilt}
    assert why.keys() == {"click", "six", "our-ops", "flat-project", "src-project"}
    assert why["click"].startswith("differs from click-8.5.1-py3-none-any.whl in ")
    assert why["click"].endswith("site-packages/click/core.py")
    assert "six-1.17.0.dist-info/WHEEL" in why["six"]  # built from the sdist by another tool
    assert why["our-ops"].startswith("no index has its wheel; installed from ")
    assert why["flat-project"].startswith("an editable install of /")
    assert frozen.left_out == ()
    assert frozen.to_json()["counts"] == {"proven": 3, "rebuilt": 5, "not_reachable": 0}


def test_files_without_an_owner_are_named_and_kept(story: Story) -> None:
    names = [Path(path).name for path in story.frozen.untracked]
    assert names == ["shim.pth", "shim.py"]
    saved = Path(story.frozen.folder) / "untracked" / Path(story.frozen.untracked[1]).relative_to("/")
    assert saved.read_text() == "WAS_HERE = True\n"
    assert any("shim.pth and 1 more, which Python could import" in warning for warning in story.frozen.warnings)


def test_a_rebuilt_wheel_says_so(story: Story) -> None:
    (info,) = story.built.site_packages.glob("click-*.dist-info")
    told = json.loads((info / MARKER).read_text())
    assert told["why"] == {kept.name: kept.why for kept in story.frozen.rebuilt}["click"]
    assert told["source"] == story.frozen.source
    assert told["when"] == story.frozen.day
    lock = Path(story.frozen.lock).read_text()
    assert f"# rebuilt: click-8.5.1-py3-none-any.whl: {told['why']}" in lock
    assert not list(story.built.site_packages.glob(f"packaging-*.dist-info/{MARKER}"))


def test_the_table_is_added_and_the_rest_of_the_file_stays(story: Story) -> None:
    text = (story.where.root / "envs" / "envs.toml").read_text()
    assert text.startswith('# a comment that stays\n\n[tools]\npurpose = "a test"  # and this one\n')
    table = tomllib.loads(text)["ours"]
    assert table["wheels"] == ["wheels/ours"]
    assert table["python"] == [RUNNING]
    assert "cuda" not in table
    wheels = story.where.root / "envs" / "wheels" / "ours"
    found = {path.name: path.stat().st_size for path in wheels.glob("*/*.whl")}
    assert found == {kept.wheel: kept.bytes for kept in story.frozen.rebuilt}
    assert sum(found.values()) == story.frozen.bytes_in_git


def test_the_doctor_finds_nothing_wrong_with_it(story: Story) -> None:
    env = environment("ours", story.where)
    found = diagnose(
        Question(story.built.python, story.built.lock, env, "ours", "harness doctor ours", {}, "/"), story.where
    )
    assert [finding for finding in found.findings if finding.severity != "note"] == []
    assert found.unchecked == ()


def test_a_captured_lock_is_not_compiled_and_is_checked_against_its_list(story: Story) -> None:
    env = environment("ours", story.where)
    with pytest.raises(UsageError, match="is not compiled"):
        compile_environment(env, story.where, upgrade=False)
    assert check_environment(env, story.where) == ()


def test_caches_are_copied_and_given_to_the_runs_of_the_new_environment(story: Story) -> None:
    saved = story.frozen.caches
    assert saved is not None
    assert (saved.state.entries, saved.state.bytes) == (2, len(b"compiled") + len(b"machine code"))
    assert set(saved.state.by_kind) == {"fxgraph", "triton"}
    root = Path(saved.root)
    assert (root / "inductor" / "fxgraph" / "ab" / "graph").read_bytes() == b"compiled"
    assert (root / "triton" / "kernel.cubin").read_bytes() == b"machine code"


def test_without_its_wheels_the_environment_is_refused_in_one_line(story: Story, tmp_path: Path) -> None:
    elsewhere = Places(tmp_path / "c", tmp_path / "c" / ".harness", tmp_path / "c" / "runs")
    shutil.copytree(story.where.root / "envs", elsewhere.root / "envs")
    shutil.rmtree(elsewhere.root / "envs" / "wheels")
    elsewhere.envs.mkdir(parents=True)
    for tools in story.where.envs.glob("tools-*"):
        (elsewhere.envs / tools.name).symlink_to(tools.resolve())
    with pytest.raises(EnvironmentFault, match=r"ours needs wheels that no index has: copy .*wheels/ours"):
        venvs.ensure("ours", elsewhere, say=silent)
