"""From a bare Python to nox: the real thing in an empty home, and each way it can go wrong on the way."""

from __future__ import annotations

import ast
import base64
import dataclasses
import hashlib
import os
import shutil
import subprocess
import sys
import threading
import venv
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from harness.errors import EnvironmentFault
from harness.pin.environments import RUNNING, environment, lock_for
from harness.pin.first_uv import _fetch_wheel, fetch_uv
from harness.pin.indexes import IndexSettings
from harness.places import places
from harness.records import Lock, Pin

ROOT = places().root
WHEEL = b"not really a wheel"
PIN = Pin("pip", "1.0", ("sha256:" + hashlib.sha256(WHEEL).hexdigest(),))


@pytest.fixture
def tools_lock() -> Lock:
    return lock_for(environment("tools", places()), RUNNING, places())


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """A Python without pip, as Debian installs one."""
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    python = tmp_path / "bare" / "bin" / "python"
    assert subprocess.run([python, "-m", "pip"], capture_output=True).returncode == 1
    return python


def empty_home(tmp_path: Path) -> dict[str, str]:
    """This environment, without the user's own caches and settings."""
    (tmp_path / "home").mkdir()
    dropped = ("UV_", "NOX", "HARNESS_", "VIRTUAL_ENV", "PYTHON", "XDG_")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(dropped)}
    return {**kept, "HOME": str(tmp_path / "home")}


@pytest.mark.slow
def test_one_command_in_an_empty_home_sets_up_nox_and_runs_it(tmp_path: Path) -> None:
    checkout = tmp_path / "check out"  # a blank in the path
    checkout.mkdir()
    shutil.copy(ROOT / "noxfile.py", checkout)
    for folder in ("harness", "envs"):
        shutil.copytree(ROOT / folder, checkout / folder, ignore=shutil.ignore_patterns("__pycache__"))
    base = getattr(sys, "_base_executable", sys.executable)
    environ = empty_home(tmp_path)

    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        line = [base, str(checkout / "noxfile.py"), *arguments]
        return subprocess.run(line, cwd=tmp_path, env=environ, capture_output=True, text=True)

    first = command("--list")
    assert first.returncode == 0, first.stderr
    assert "* tests -> Run the tests" in first.stdout
    assert "setting up tools" in first.stderr
    second = command("--list")
    assert (second.stdout, second.stderr) == (first.stdout, "")
    assert command("-s", "no-such-task").returncode != 0


def test_uv_comes_through_a_pip_that_is_fetched_where_python_has_none(
    tmp_path: Path, bare_python: Path, tools_lock: Lock
) -> None:
    with (tmp_path / "lock").open("w") as held:
        uv = fetch_uv(tools_lock, bare_python, tmp_path / "seed", held.fileno())
    pins = {pin.name: pin for pin in tools_lock.pins}
    assert subprocess.run([uv, "--version"], capture_output=True, text=True).stdout.split()[1] == pins["uv"].version
    pip = tmp_path / "seed" / f"pip-{pins['pip'].version}-py3-none-any.whl"
    assert "sha256:" + hashlib.sha256(pip.read_bytes()).hexdigest() in pins["pip"].hashes


def test_a_uv_that_is_not_the_locked_one_is_refused(tmp_path: Path, tools_lock: Lock) -> None:
    pins = [dataclasses.replace(p, hashes=("sha256:" + "0" * 64,)) if p.name == "uv" else p for p in tools_lock.pins]
    forged = dataclasses.replace(tools_lock, pins=tuple(pins))
    with (tmp_path / "lock").open("w") as held, pytest.raises(EnvironmentFault, match="pip could not download uv"):
        fetch_uv(forged, Path(sys.executable), tmp_path / "seed", held.fileno())


class Index(BaseHTTPRequestHandler):
    """Two indexes: /empty knows nothing, /full has pip for one who says who they are, where that is asked."""

    content: ClassVar[bytes] = WHEEL
    secret: ClassVar[str | None] = None

    def do_GET(self) -> None:
        pages = {
            "/full/pip/": b'<a href="../../files/pip-1.0-py3-none-any.whl#sha256=0">pip</a>',
            "/files/pip-1.0-py3-none-any.whl": self.content,
        }
        answer = pages.get(self.path)
        code = 404 if answer is None else 200
        if self.secret and self.headers["Authorization"] != f"Basic {base64.b64encode(self.secret.encode()).decode()}":
            code = 401 if self.path.startswith("/full") else code
        self.send_response(code)
        self.end_headers()
        self.wfile.write(answer or b"")

    def log_message(self, *_: object) -> None:
        """Stay silent."""


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a running index."""
    monkeypatch.setattr(Index, "secret", None)
    monkeypatch.setattr(Index, "content", WHEEL)
    with ThreadingHTTPServer(("127.0.0.1", 0), Index) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_pinned_file_is_found_on_the_index_that_has_it(index: str, tmp_path: Path) -> None:
    settings = IndexSettings(f"http://{index}/empty", (f"http://{index}/full",))
    assert _fetch_wheel(PIN, settings, tmp_path).read_bytes() == WHEEL


def test_an_index_on_disk_without_the_name_is_passed_over(index: str, tmp_path: Path) -> None:
    settings = IndexSettings(f"file://{tmp_path}/simple", (f"http://{index}/full",))
    assert _fetch_wheel(PIN, settings, tmp_path).read_bytes() == WHEEL


def test_another_file_under_the_same_name_is_refused(
    index: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Index, "content", b"evil")
    with pytest.raises(EnvironmentFault, match="is not the file in the lock"):
        _fetch_wheel(PIN, IndexSettings(f"http://{index}/full"), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_name_and_password_are_sent_and_never_shown(
    index: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Index, "secret", "me:pass word")
    assert _fetch_wheel(PIN, IndexSettings(f"http://me:pass%20word@{index}/full"), tmp_path).read_bytes() == WHEEL
    with pytest.raises(EnvironmentFault, match=r"127\.0\.0\.1 answers 401") as raised:
        _fetch_wheel(PIN, IndexSettings(f"http://me:wrong@{index}/full"), tmp_path)
    assert "wrong" not in str(raised.value)


def test_no_index_with_the_file_is_one_clear_line(index: str, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match=r"no index has pip-1\.0-py3-none-any\.whl; asked 127\.0\.0\.1"):
        _fetch_wheel(PIN, IndexSettings(f"http://{index}/empty"), tmp_path)


def test_where_pip_may_ask_no_index_the_file_comes_from_a_folder_of_find_links(index: str, tmp_path: Path) -> None:
    links, to = tmp_path / "the links", tmp_path / "to"
    links.mkdir()
    to.mkdir()
    settings = IndexSettings(f"http://{index}/full", find_links=(links.as_uri(),), no_index=True)
    with pytest.raises(EnvironmentFault, match=r"no index has pip-1\.0-py3-none-any\.whl; asked file:"):
        _fetch_wheel(PIN, settings, to)
    with pytest.raises(EnvironmentFault, match="asked none: pip is told no-index"):
        _fetch_wheel(PIN, dataclasses.replace(settings, find_links=()), to)
    (links / "pip-1.0-py3-none-any.whl").write_bytes(b"evil")
    with pytest.raises(EnvironmentFault, match="is not the file in the lock"):
        _fetch_wheel(PIN, settings, to)
    (links / "pip-1.0-py3-none-any.whl").write_bytes(WHEEL)
    assert _fetch_wheel(PIN, settings, to).read_bytes() == WHEEL


def test_an_index_that_is_not_reached_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match=r"127\.0\.0\.1 is not reached: .*PIP_INDEX_URL"):
        _fetch_wheel(PIN, IndexSettings("http://127.0.0.1:9/simple"), tmp_path)


def test_an_old_python_gets_as_far_as_being_told_so() -> None:
    source = (ROOT / "noxfile.py").read_text()
    ast.parse(source, feature_version=(3, 8))
    code = "import sys, runpy; sys.version_info = (3, 8, 18); runpy.run_path('noxfile.py', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "Python 3.11 or newer is needed, this is 3.8; try: python3.11 noxfile.py\n"
