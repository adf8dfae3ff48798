"""Environments are built aside, by one builder at a time, and stay what their locks say. Real uv, real packages."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import zipfile
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from harness.errors import EnvironmentFault, UsageError
from harness.pin import venvs
from harness.pin.aside import MARKER, build_once, is_complete
from harness.pin.environments import RUNNING, environment
from harness.pin.indexes import IndexSettings
from harness.places import Places, places
from tests.pin.checkouts import MakeCheckout

ROOT = places().root
BUILD = """
import sys
from pathlib import Path
from harness.pin import venvs
from harness.places import Places
root = Path(sys.argv[1])
print(venvs.ensure("mini", Places(root, root / ".harness", root / "runs")).folder)
"""


def versions(built: venvs.Built) -> dict[str, str]:
    """What the environment's own Python finds installed."""
    code = "import importlib.metadata as m; print(*(f'{d.name}=={d.version}' for d in m.distributions()))"
    said = subprocess.run([built.python, "-I", "-c", code], capture_output=True, text=True, check=True).stdout
    return dict(item.split("==") for item in said.lower().split())


def pinned(built: venvs.Built) -> dict[str, str]:
    return {pin.name: pin.version for pin in built.lock.pins}


def start(where: Places, code: str = BUILD) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, str(where.root)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def start_builder(code: str, folder: Path) -> subprocess.Popen[str]:
    """A process that says "started" in the midst of a build."""
    builder = subprocess.Popen(
        [sys.executable, "-c", code, str(folder)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert builder.stdout is not None
    assert builder.stdout.readline() == "started\n"
    return builder


def test_an_environment_holds_what_its_lock_says_and_nothing_else(make_checkout: MakeCheckout) -> None:
    where = make_checkout({"mini": ["six", "idna"]})
    built = venvs.ensure("mini", where)
    assert versions(built) == pinned(built)
    assert built.site_packages.joinpath("six.py").is_file()
    assert built.folder == where.envs / f"mini-{built.lock.digest[:12]}-py{RUNNING}"


def test_a_built_environment_is_found_in_milliseconds_without_a_process(
    make_checkout: MakeCheckout, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = make_checkout({"mini": ["six"]})
    built = venvs.ensure("mini", where)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("a process was started"))
    assert venvs.ensure("mini", where) == built


def test_no_installed_file_shares_its_bytes_with_the_cache(make_checkout: MakeCheckout) -> None:
    built = venvs.ensure("mini", make_checkout({"mini": ["six"]}))
    files = [path for path in built.site_packages.rglob("*") if path.is_file()]
    assert files
    assert {path.stat().st_nlink for path in files} == {1}


def test_a_new_lock_is_a_new_folder(make_checkout: MakeCheckout) -> None:
    where = make_checkout({"mini": ["six", "idna"]})
    before = venvs.ensure("mini", where)
    lock = where.root / "envs" / "mini.txt"
    lock.write_text(lock.read_text().splitlines()[0] + "\n")
    after = venvs.ensure("mini", where)
    assert after.folder != before.folder
    assert set(versions(after)) == {"six"}
    assert set(versions(before)) == {"six", "idna"}


def test_a_wrong_hash_is_refused_and_leaves_nothing(
    make_checkout: MakeCheckout, capfd: pytest.CaptureFixture[str]
) -> None:
    where = make_checkout({"mini": ["six"]})
    lock = where.root / "envs" / "mini.txt"
    lock.write_text(f"{lock.read_text().split()[0]} --hash=sha256:{'0' * 64}\n")
    with pytest.raises(EnvironmentFault, match=r"mini could not be set up .* harness sync mini"):
        venvs.ensure("mini", where)
    assert "hash" in capfd.readouterr().err.lower()
    assert [
        path.name for path in where.envs.iterdir() if "mini" in path.name and not path.name.startswith(".lock")
    ] == []


def test_two_shells_at_once_build_once(make_checkout: MakeCheckout) -> None:
    where = make_checkout({"mini": ["six", "idna"]})
    shells = [start(where) for _ in range(3)]
    said = [shell.communicate(timeout=120) for shell in shells]
    assert [shell.returncode for shell in shells] == [0, 0, 0], said
    assert len({out for out, _ in said}) == 1
    assert sum(err.count("setting up mini") for _, err in said) == 1


def test_a_set_up_killed_half_way_is_not_used_and_is_cleaned(make_checkout: MakeCheckout) -> None:
    where = make_checkout({"mini": ["six"]})
    halfway = "venvs._Uv.sync = lambda *_: (print('half', flush=True), __import__('time').sleep(60))\n"
    shell = start(where, BUILD.replace("root =", halfway + "root ="))
    assert shell.stdout is not None
    assert shell.stdout.readline() == "half\n"
    os.killpg(shell.pid, signal.SIGKILL)
    shell.communicate()
    assert [path.name for path in where.envs.glob(".building-mini*")]
    assert not list(where.envs.glob("mini-*"))

    built = venvs.ensure("mini", where)
    assert versions(built) == pinned(built)
    assert not list(where.envs.glob(".building-*"))


def test_nobody_builds_beside_the_orphan_of_a_killed_builder(tmp_path: Path) -> None:
    code = """
import subprocess, sys
from pathlib import Path
from harness.pin.aside import build_once
def build(folder, lock):
    subprocess.Popen(["sh", "-c", "sleep 1.5; touch " + sys.argv[1] + "/orphan-ended"], pass_fds=(lock,), stdout=-3)
    print("started", flush=True)
    sys.stdin.read()
build_once(Path(sys.argv[1]) / "x", {}, build, print)
"""
    with start_builder(code, tmp_path) as builder:
        builder.kill()
    orphan_ended_first = list[bool]()

    def build(folder: Path, _: int) -> None:
        orphan_ended_first.append((tmp_path / "orphan-ended").exists())
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "python").touch()

    said = list[str]()
    build_once(tmp_path / "x", {}, build, said.append)
    assert orphan_ended_first == [True]
    assert said == ["waiting for another set-up of x to end ..."]


def test_leavings_of_another_lock_are_swept_but_not_those_of_a_living_builder(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from harness.pin.aside import build_once
def build(folder, lock):
    folder.mkdir(parents=True)
    print("started", flush=True)
    sys.stdin.read()
build_once(Path(sys.argv[1]) / "living", {}, build, print)
"""
    (tmp_path / ".building-dead" / "fresh").mkdir(parents=True)

    def build(folder: Path, _: int) -> None:
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "python").touch()

    with start_builder(code, tmp_path) as builder:
        build_once(tmp_path / "mine", {"a": "b"}, build, print)
        assert (tmp_path / ".building-living" / "fresh").exists()
        builder.kill()
    assert is_complete(tmp_path / "mine", {"a": "b"})
    assert not (tmp_path / ".building-dead").exists()


def test_an_environment_whose_interpreter_went_is_built_again(make_checkout: MakeCheckout) -> None:
    where = make_checkout({"mini": ["six"]})
    built = venvs.ensure("mini", where)
    built.python.unlink()
    built.python.symlink_to("/nowhere/python3")
    assert versions(venvs.ensure("mini", where)) == pinned(built)


def test_sync_mends_a_drifted_environment(make_checkout: MakeCheckout) -> None:
    where = make_checkout({"mini": ["six"]})
    built = venvs.ensure("mini", where)
    uv = venvs.find_uv(where)
    drift = ["--quiet", "six==1.16.0", "iniconfig"]
    subprocess.run([uv, "pip", "install", "--python", built.python, *drift], check=True)
    assert versions(built).keys() == {"six", "iniconfig"}
    assert versions(built)["six"] == "1.16.0" != pinned(built)["six"]
    assert venvs.sync("mini", where) == built
    assert versions(built) == pinned(built)


def test_the_harness_follows_its_checkout(make_checkout: MakeCheckout, tmp_path: Path) -> None:
    where = make_checkout({"harness": ["six"]})
    (where.root / "harness").mkdir()
    (where.root / "harness" / "__init__.py").touch()
    (where.root / "harness" / "cli.py").write_text(
        "import sys, six\ndef main():\n    print(__file__, *sys.argv[1:])\n    return 3\n"
    )
    venvs.link_harness(where)
    moved = tmp_path / "moved"
    shutil.copytree(where.root, moved, symlinks=True)
    (tmp_path / "short").symlink_to(moved / ".venv" / "bin" / "harness")
    shutil.rmtree(where.root)
    for command in (moved / ".venv" / "bin" / "harness", tmp_path / "short"):
        done = subprocess.run([command, "a b"], cwd=tmp_path, capture_output=True, text=True)
        assert (done.stdout.strip(), done.returncode) == (f"{moved}/harness/cli.py a b", 3), done.stderr
    done = subprocess.run(["./harness"], cwd=moved / ".venv" / "bin", capture_output=True, text=True)
    assert done.stdout.strip() == f"{moved}/harness/cli.py"


def test_the_link_is_switched_to_a_new_lock(make_checkout: MakeCheckout) -> None:
    where = make_checkout({"harness": ["six", "idna"]})
    before = venvs.link_harness(where)
    assert (where.root / ".venv").resolve() == before.folder
    lock = where.root / "envs" / "harness.txt"
    lock.write_text(lock.read_text().splitlines()[0] + "\n")
    after = venvs.link_harness(where)
    assert (where.root / ".venv").resolve() == after.folder != before.folder


def test_a_venv_of_the_users_own_is_left_alone(make_checkout: MakeCheckout) -> None:
    where = make_checkout({"harness": ["six"]})
    (where.root / ".venv").mkdir()
    (where.root / ".venv" / "mine").touch()
    with pytest.raises(EnvironmentFault, match=r"mv .venv"):
        venvs.link_harness(where)
    assert (where.root / ".venv" / "mine").exists()


def test_packages_of_data_come_without_what_they_ask_for(make_checkout: MakeCheckout) -> None:
    where = make_checkout({"data": ["jinja2"]})  # asks for markupsafe, which its lock lacks
    assert (venvs.data_folder(where) / "jinja2" / "__init__.py").is_file()
    assert not (venvs.data_folder(where) / "markupsafe").exists()


def test_the_list_says_what_is_built(make_checkout: MakeCheckout) -> None:
    where = make_checkout({"mini": ["six"], "other": ["idna"]})
    built = venvs.ensure("mini", where)
    listed = {one.name: one for one in venvs.list_environments(where)}
    assert (listed["mini"].built, listed["other"].built) == (True, False)
    assert listed["mini"].path == str(built.folder)
    assert listed["mini"].lock_digest == built.lock.digest


def test_the_list_of_the_project_names_torch_and_cuda() -> None:
    listed = {one.name: (one.torch, one.cuda) for one in venvs.list_environments()}
    assert listed["cpu"] == ("2.13.0+cpu", None)
    assert listed["cu130"] == ("2.14.1", "13.0")
    assert listed["cu130-race"] == ("2.11.0", "13.0")
    assert listed["cu128"] == ("2.10.0", "12.8")
    assert listed["harness"][0] is None


def test_an_unknown_environment_starts_nothing(make_checkout: MakeCheckout) -> None:
    where = make_checkout({"mini": ["six"]})
    with pytest.raises(UsageError, match="mini"):
        venvs.ensure("mimi", where)


def test_the_extra_index_is_asked_only_where_no_folder_has_the_file(tmp_path: Path) -> None:
    where = places()
    env = environment("cpu", where)
    target = venvs._target(env, "3.11", where)
    settings = IndexSettings(find_links=(f"file://{tmp_path}",))
    page = f"{env.extra_index}/torch/"
    assert venvs._extra_pages(env, target, settings) == (page,)
    (tmp_path / "torch-2.13.0+cpu-cp312-cp312-linux_x86_64.whl").touch()
    assert venvs._extra_pages(env, target, settings) == (page,)
    (tmp_path / "torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl").touch()
    assert venvs._extra_pages(env, target, settings) == ()


class ExtraIndex(SimpleHTTPRequestHandler):
    """Serves files in silence."""

    def log_message(self, *_: object) -> None:
        """Stay silent."""


def test_a_file_that_only_the_extra_index_has_is_taken_from_its_page(
    make_checkout: MakeCheckout, tmp_path: Path
) -> None:
    page = tmp_path / "whl" / "torch"
    page.mkdir(parents=True)
    wheel = page / "torch-1.0+cpu-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("torch.py", "")
        archive.writestr("torch-1.0+cpu.dist-info/METADATA", "Metadata-Version: 2.1\nName: torch\nVersion: 1.0+cpu\n")
        archive.writestr(
            "torch-1.0+cpu.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("torch-1.0+cpu.dist-info/RECORD", "")
    (page / "index.html").write_text('<a href="/whl/torch/torch-1.0%2Bcpu-py3-none-any.whl">torch</a>')
    where = make_checkout({"mini": ["six"]})
    lock, toml = where.root / "envs" / "mini.txt", where.root / "envs" / "envs.toml"
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    lock.write_text(f"{lock.read_text()}torch==1.0+cpu --hash=sha256:{digest}\n")
    handler = functools.partial(ExtraIndex, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        toml.write_text(f'{toml.read_text()}extra_index = "http://127.0.0.1:{server.server_port}/whl"\n')
        built = venvs.ensure("mini", where)
        server.shutdown()
        thread.join()
    assert versions(built)["torch"] == "1.0+cpu"


def test_a_marker_of_another_lock_is_not_taken_for_complete(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    (tmp_path / MARKER).write_text('{"lock": "a"}')
    assert is_complete(tmp_path, {"lock": "a"})
    assert not is_complete(tmp_path, {"lock": "b"})
    (tmp_path / MARKER).write_text('{"lock": "a')
    assert not is_complete(tmp_path, {"lock": "a"})
