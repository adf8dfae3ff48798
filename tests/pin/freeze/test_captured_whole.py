"""A capture is there whole or not at all, takes no name that is taken, and says what it could not keep."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.errors import EnvironmentFault, UsageError
from harness.findings import Finding
from harness.frozen import Frozen
from harness.pin import venvs
from harness.pin.aside import replace_text
from harness.pin.environments import RUNNING, environment
from harness.pin.freeze import capture, saved_caches, write
from harness.pin.freeze.capture import freeze
from harness.places import Places
from harness.records import BuiltEnvironment, RunSpec
from harness.run.prepare import prepare
from tests.pin.doctor.wheels import make_venv, make_wheel, site_packages
from tests.pin.freeze.index_server import Index, serving
from tests.pin.freeze.sources import lay_checkout, with_uv

PROCESS = """
import sys
from pathlib import Path
from harness.pin.freeze import write
from harness.pin.freeze.capture import freeze
from harness.places import Places
def stop(*_):
    print("in the midst", flush=True)
    sys.stdin.read()
root = Path(sys.argv[2])
write.{function} = stop
freeze(Path(sys.argv[1]), "new", Places(root, root / ".harness", root / "runs"), lambda _: None)
"""


@pytest.fixture
def place(tmp_path: Path, tools: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, Places, Index]]:
    """A Python with one distribution that an index has and one that none has, a checkout, and that index."""
    (tmp_path / "index").mkdir()
    (tmp_path / "local").mkdir()
    python = make_venv(tmp_path / "project" / ".venv")
    known = make_wheel(tmp_path / "index", "known", "1.0", {"known.py": b""})
    with_uv(python, known, make_wheel(tmp_path / "local", "ours", "1.0", {"ours.py": b""}))
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "CUDA_CACHE_PATH"):
        monkeypatch.setenv(name, str(tmp_path / "caches" / name))
    with serving(Index(tmp_path / "index")) as index:
        monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
        monkeypatch.setenv("PIP_INDEX_URL", index.address)
        monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
        yield python, lay_checkout(tmp_path / "checkout", tools), index


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def captured(python: Path, where: Places, name: str | None = "new", *broken: Finding) -> Frozen:
    return freeze(python, name, where, lambda _: None, broken)


def fail_at(step: int, done: bool, error: BaseException, patch: pytest.MonkeyPatch) -> None:
    """The step of putting it in place (a folder, a text, the table), from 1, fails: before it is done, or after."""
    steps = 0

    def failing(real: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: Any) -> None:
            nonlocal steps
            steps += 1
            fails = steps == step
            if not (fails and not done):
                real(*arguments)
            if fails:
                raise error

        return call

    patch.setattr(write, "_move", failing(write._move))
    patch.setattr(write, "replace_text", failing(replace_text))


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("step", range(1, 7))
def test_whatever_fails_takes_back_what_was_put(
    tmp_path: Path, tools: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, done: bool, step: int
) -> None:
    where = lay_checkout(tmp_path / "checkout", tools)
    before, spots = tree(tmp_path / "checkout" / "envs"), write.spots("new", where)
    folders = {}
    for number, target in enumerate((spots.record, spots.wheels, spots.large)):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "file").touch()
        folders[tmp_path / str(number)] = target
    texts = {spots.requirements: "a==1\n", spots.lock: "a==1 --hash=sha256:0\n"}
    fail_at(step, done, error, monkeypatch)
    with pytest.raises(type(error)):
        write.put("new", where, texts, folders, '[new]\npurpose = ""\npython = ["3.11"]\n')
    assert tree(where.root / "envs") == before
    assert sorted(path.name for path in (where.root / "envs").iterdir()) == ["envs.toml", "tools.in", "tools.txt"]
    assert not (where.state / "wheels").exists()
    assert not (where.state / "frozen").exists()


@pytest.mark.parametrize(("step", "done", "error"), [(2, False, OSError(28, "full")), (5, True, KeyboardInterrupt())])
def test_a_capture_that_fails_leaves_the_checkout_as_it_was(
    place: tuple[Path, Places, Index], monkeypatch: pytest.MonkeyPatch, error: BaseException, done: bool, step: int
) -> None:
    python, where, _ = place
    before = tree(where.root / "envs")
    fail_at(step, done, error, monkeypatch)
    with pytest.raises((KeyboardInterrupt, EnvironmentFault)):
        captured(python, where)
    assert tree(where.root / "envs") == before
    assert [path.name for path in (where.state / "frozen").iterdir()] == [".lock"]


def test_ctrl_c_in_a_real_process_leaves_the_checkout_as_it_was(place: tuple[Path, Places, Index]) -> None:
    python, where, _ = place
    before = tree(where.root / "envs")
    code = PROCESS.format(function="replace_text")
    command = [sys.executable, "-c", code, str(python), str(where.root)]
    with subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-1, cwd=Path(__file__).parents[3], text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "in the midst\n"
        assert (where.root / "envs" / "wheels" / "new").is_dir()
        child.send_signal(signal.SIGINT)
        child.communicate("")
    assert tree(where.root / "envs") == before
    assert not (where.root / "envs" / "wheels").exists()


def test_what_a_killed_capture_left_is_swept(place: tuple[Path, Places, Index]) -> None:
    python, where, _ = place
    left = where.state / "frozen" / ".freezing-dead"
    left.mkdir(parents=True)
    captured(python, where)
    assert not left.exists()


def test_a_name_that_is_taken_or_cannot_be_one_is_refused_with_another(place: tuple[Path, Places, Index]) -> None:
    python, where, _ = place
    captured(python, where)
    for name, message in (
        ("new", r"new is taken: envs.toml has it; try: --name new-2"),
        ("tools", r"tools is taken: envs.toml has it; try: --name tools-2"),
        ("no name", r"'no name' cannot name an environment; try: --name no-name"),
        ("new-py312", r"cannot name an environment; try: --name new-python312"),
        ("hashes", r"'hashes' cannot name an environment"),
        ("../escape", r"cannot name an environment; try: --name escape"),
    ):
        with pytest.raises(UsageError, match=message):
            captured(python, where, name)
    (where.root / "envs" / "left.txt").touch()
    with pytest.raises(UsageError, match=r"left is taken: there is .*left.txt; try: --name left-2"):
        captured(python, where, "left")


def test_without_a_name_it_is_named_after_the_project(place: tuple[Path, Places, Index]) -> None:
    python, where, _ = place
    assert [captured(python, where, None).name for _ in range(2)] == ["project", "project-2"]
    assert set(environment("project-2", where).python) == {RUNNING}


def test_what_is_no_working_python_is_refused_in_one_line(place: tuple[Path, Places, Index], tmp_path: Path) -> None:
    _, where, _ = place
    with pytest.raises(UsageError, match="has no packages"):
        captured(make_venv(tmp_path / "empty"), where)
    with pytest.raises(UsageError, match="/bin/false is not a Python"):
        captured(Path("/bin/false"), where)
    other = tmp_path / "other"
    other.write_text("#!/bin/sh\nexec " + sys.executable + ' "$@" | sed s/CPython/PyPy/\n')
    other.chmod(0o755)
    with pytest.raises(UsageError, match="is PyPy; only CPython"):
        captured(other, where)


def test_a_broken_environment_is_captured_as_it_is_with_warnings(place: tuple[Path, Places, Index]) -> None:
    python, where, _ = place
    (site_packages(python) / "known.py").unlink()
    lost = Finding("file.missing", "broken", "known", "known lost known.py")
    frozen = captured(python, where, "new", lost)
    assert "captured broken: known lost known.py" in frozen.warnings
    assert any(warning.startswith("known is captured without 1 of its files") for warning in frozen.warnings)
    assert not (venvs.ensure("new", where, say=lambda _: None).site_packages / "known.py").exists()


def test_a_script_that_an_installer_made_and_somebody_changed_is_named(place: tuple[Path, Places, Index]) -> None:
    python, where, index = place
    entry = {
        "runs.py": b"def main(): ...\n",
        "runs-1.0.dist-info/entry_points.txt": b"[console_scripts]\nruns = runs:main\n",
    }
    with_uv(python, make_wheel(index.folder, "runs", "1.0", entry))
    assert captured(python, where, "clean").warnings == ()
    with (python.parent / "runs").open("a") as script:
        script.write("print('patched')\n")
    (warning,) = captured(python, where, "changed").warnings
    assert warning.startswith(f"runs's script {python.parent}/runs was changed after its installer made it")


def test_what_nobody_knows_the_files_of_is_left_out_and_said(place: tuple[Path, Places, Index]) -> None:
    python, where, _ = place
    site = site_packages(python)
    (site / "ours-1.0.dist-info" / "RECORD").unlink()
    shutil.copytree(site / "known-1.0.dist-info", site / "known-2.0.dist-info")
    text = (site / "known-2.0.dist-info" / "METADATA").read_text().replace("1.0", "2.0")
    (site / "known-2.0.dist-info" / "METADATA").write_text(text)
    frozen = captured(python, where)
    assert {one.name: one.why.partition(",")[0] for one in frozen.left_out} == {
        "ours": "it has no RECORD (uv installed it)",
        "known": "a second copy",
    }
    lock = Path(frozen.lock).read_text()
    assert "# LEFT OUT: ours 1.0: it has no RECORD" in lock
    assert sum("is left out" in warning for warning in frozen.warnings) == 2
    assert venvs.ensure("new", where, say=lambda _: None).lock.digest == frozen.lock_digest


def test_an_index_that_is_not_reached_is_named_and_everything_kept(place: tuple[Path, Places, Index]) -> None:
    python, where, index = place
    index.broken = True
    frozen = captured(python, where)
    assert frozen.to_json()["counts"] == {"proven": 0, "rebuilt": 2, "not_reachable": 2}
    assert frozen.unreached == {"127.0.0.1": "it answers 500"}
    index.broken = False
    assert (venvs.ensure("new", where, say=lambda _: None).site_packages / "known.py").is_file()


def test_a_wheel_that_is_too_large_for_git_stays_on_this_machine(
    place: tuple[Path, Places, Index], monkeypatch: pytest.MonkeyPatch
) -> None:
    python, where, _ = place
    monkeypatch.setattr(capture, "LARGE", 100)
    frozen = captured(python, where)
    assert frozen.bytes_in_git == 0 < frozen.bytes_elsewhere
    assert frozen.wheels == (str(where.state / "wheels" / "new"),)
    assert environment("new", where).wheels == frozen.wheels
    assert not (where.root / "envs" / "wheels").exists()
    assert (venvs.ensure("new", where, say=lambda _: None).site_packages / "ours.py").is_file()


def test_a_build_that_only_the_extra_index_has_is_proven_and_built_from_there(
    place: tuple[Path, Places, Index], tmp_path: Path
) -> None:
    python, where, _ = place
    (tmp_path / "whl").mkdir()
    version = b"__version__ = '2.11.0+cu128'\ncuda = '12.8'\n"
    with_uv(
        python,
        make_wheel(tmp_path / "whl", "torch", "2.11.0+cu128", {"torch/version.py": version, "torch/__init__.py": b""}),
    )
    with serving(Index(tmp_path / "whl")) as extra:
        base = extra.address.removesuffix("/simple")
        toml = where.root / "envs" / "envs.toml"
        toml.write_text(f'{toml.read_text()}extra_index = "{base}/simple/cpu"\n')
        frozen = captured(python, where)
        assert frozen.extra_index == f"{base}/simple/cu128"
        assert {one.name: one.source for one in frozen.kept}["torch"] == "index"
        env = environment("new", where)
        assert (env.cuda, env.extra_index) == ("12.8", frozen.extra_index)
        assert (
            venvs.ensure("new", where, say=lambda _: None).site_packages / "torch" / "version.py"
        ).read_bytes() == version


def test_a_run_of_the_captured_environment_starts_with_the_saved_caches(
    place: tuple[Path, Places, Index], tmp_path: Path
) -> None:
    python, where, _ = place
    folder = tmp_path / "caches" / "TORCHINDUCTOR_CACHE_DIR" / "fxgraph"
    folder.mkdir(parents=True)
    (folder / "entry").write_bytes(b"compiled")
    frozen = captured(python, where)
    assert frozen.caches is not None
    there = venvs.ensure("new", where, say=lambda _: None)
    built = BuiltEnvironment("new", there.python, there.site_packages, there.lock)
    prepared = prepare(RunSpec("toy", "new", ("python",)), built, where, where.root)
    assert str(prepared.cache.path) == frozen.caches.root
    assert prepared.cache_before == frozen.caches.state
    assert (prepared.cache_before.entries, prepared.cache_before.bytes) == (1, 8)
    assert folder.joinpath("entry").read_bytes() == b"compiled"


def test_caches_that_cannot_be_copied_do_not_cost_the_capture(
    place: tuple[Path, Places, Index], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python, where, _ = place
    folder = tmp_path / "caches" / "TRITON_CACHE_DIR"
    folder.mkdir(parents=True)
    (folder / "kernel").touch()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(saved_caches, "fill", full)
    frozen = captured(python, where, "unfilled")
    assert frozen.caches is not None
    assert (frozen.caches.root, frozen.caches.why_not) == (
        "",
        "they could not be copied: [Errno 28] No space left on device",
    )
    monkeypatch.setattr(saved_caches, "save", full)
    frozen = captured(python, where, "uncopied")
    assert frozen.caches is None
    assert frozen.warnings == ("the compile caches were not copied: [Errno 28] No space left on device",)
    assert not (Path(frozen.folder) / "caches").exists()


def test_the_record_says_where_it_ran(place: tuple[Path, Places, Index]) -> None:
    python, where, _ = place
    frozen = captured(python, where)
    folder = Path(frozen.folder)
    build = json.loads((folder / "python.json").read_text())
    assert build["version"] == sys.version
    assert len(build["executable_sha256"]) == 64
    facts = json.loads((folder / "fingerprint.json").read_text())["facts"]
    assert facts["environment.package.ours"] == "1.0"
    assert "environment.kernel" in facts
    loaded = json.loads((folder / "loaded.json").read_text())
    assert len(loaded) == frozen.loaded
    assert all(len(one["sha256"]) == 64 and one["path"].startswith("/") for one in loaded)
    assert any(one["name"].startswith("libc.so") for one in loaded)
    assert json.loads((folder / "frozen.json").read_text()) == json.loads(json.dumps(frozen.to_json()))


def test_nothing_is_said_of_what_takes_a_moment(place: tuple[Path, Places, Index]) -> None:
    python, where, _ = place
    said = list[str]()
    freeze(python, "new", where, said.append)
    assert said == []
