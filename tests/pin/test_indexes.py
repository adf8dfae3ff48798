"""pip's settings, read without pip, and told to uv."""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.pin.compile_lock import extra_pages
from harness.pin.environments import load_environments
from harness.pin.freeze.listing import Listing
from harness.pin.indexes import PYPI, IndexSettings, local_folders, local_path, page_links, pip_settings, uv_variables
from harness.places import places
from tests.pin.doctor.wheels import make_venv, make_wheel
from tests.pin.freeze.index_server import Index, serving


@pytest.fixture
def config(tmp_path: Path) -> dict[str, str]:
    """A home with a user's pip file, and a machine-wide one beside it."""
    (tmp_path / ".config" / "pip").mkdir(parents=True)
    (tmp_path / ".config" / "pip" / "pip.conf").write_text(
        "[global]\nindex-url = https://user.example/simple/\nfind-links =\n    /one\n    /two\n"
        "[install]\ntrusted_host = user.example\n"
    )
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "pip.conf").write_text("[global]\ncert = /all.pem\nfind-links = /all\n")
    (tmp_path / "own.conf").write_text("[global]\nfind-links = /three\n")
    (tmp_path / "closed.conf").write_text("[install]\nno_index = yes\n")
    return {"HOME": str(tmp_path), "XDG_CONFIG_DIRS": str(tmp_path)}


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"PIP_EXTRA_INDEX_URL": "https://a.example/simple https://b.example/simple"},
        {"PIP_FIND_LINKS": "/four /five", "PIP_CERT": ""},
        {"PIP_CONFIG_FILE": "own.conf"},
        {"PIP_CONFIG_FILE": "missing.conf"},
        {"PIP_CONFIG_FILE": "/dev/null"},
        *({"PIP_NO_INDEX": value} for value in ("1", "0", "true", "No", "ON", "off", "")),
        {"PIP_CONFIG_FILE": "closed.conf"},
        {"PIP_CONFIG_FILE": "closed.conf", "PIP_NO_INDEX": "0"},
    ],
)
def test_settings_are_what_pip_itself_makes_of_the_same(
    config: dict[str, str], tmp_path: Path, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "from pip._internal.commands import create_command as c\n"
        "o, _ = c('install').parse_args([])\n"
        "print([o.index_url.rstrip('/'), o.extra_index_urls, o.find_links, o.trusted_hosts, o.cert, bool(o.no_index)])"
    )
    monkeypatch.chdir(tmp_path)
    environ = {**config, **variables}
    pips = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True).stdout
    ours = pip_settings(environ)
    lists = [list(ours.extra), list(ours.find_links), list(ours.trusted_hosts)]
    assert ast.literal_eval(pips) == [ours.index, *lists, ours.cert, ours.no_index]


def test_a_variable_overrides_every_file(config: dict[str, str]) -> None:
    assert pip_settings({**config, "PIP_FIND_LINKS": "/four /five"}).find_links == ("/four", "/five")


def test_no_file_is_read_where_pip_is_told_to_read_none(config: dict[str, str]) -> None:
    assert pip_settings({**config, "PIP_CONFIG_FILE": "/dev/null"}) == IndexSettings(index=PYPI)


def test_uv_asks_the_main_index_first() -> None:
    settings = IndexSettings("https://main.example/simple", ("https://extra.example/simple",), ("/a", "/b"))
    told = uv_variables(settings, ["six"], ("https://torch.example/cpu/torch/",), environ={})
    assert told["UV_INDEX"].split() == ["https://main.example/simple", "https://extra.example/simple"]
    assert told["UV_DEFAULT_INDEX"] == "https://main.example/simple"
    assert told["UV_FIND_LINKS"] == "/a,/b,https://torch.example/cpu/torch/"


def test_what_the_user_told_uv_stays() -> None:
    environ = {"UV_DEFAULT_INDEX": "https://mine.example/simple", "UV_FIND_LINKS": "/mine", "SSL_CERT_FILE": "/m.pem"}
    told = uv_variables(IndexSettings(find_links=("/a",), cert="/c"), ["six"], ("https://t.example/torch/",), environ)
    assert told == {
        "UV_FIND_LINKS": "/mine,https://t.example/torch/",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }


def test_a_mirror_on_disk_becomes_folders_of_files(tmp_path: Path) -> None:
    """For a version's files uv takes one index and no other: the mirror's one platform would hide the rest."""
    page = tmp_path / "simple" / "six" / "index.html"
    page.parent.mkdir(parents=True)
    page.write_text(
        '<a href="../../files/six-1.0-py3-none-any.whl#sha256=0">x</a><a href="https://a.example/y.whl">y</a>'
    )
    settings = IndexSettings(extra=(f"file://{tmp_path}/simple",), find_links=("/a",))
    told = uv_variables(settings, ["six", "idna"], environ={})
    assert told["UV_FIND_LINKS"].split(",") == ["/a", str(tmp_path / "files")]
    assert (told["UV_INDEX"], told["UV_DEFAULT_INDEX"]) == (PYPI, PYPI)


def test_links_are_resolved_against_their_page() -> None:
    page = "<a href='b.whl#sha256=1'>b</a><a name='x'>no link</a><a href='https://c.example/d.whl'>d</a>"
    assert page_links(page, "https://a.example/simple/six/") == [
        "https://a.example/simple/six/b.whl#sha256=1",
        "https://c.example/d.whl",
    ]


@pytest.mark.parametrize(
    ("url", "path"), [("/a b", Path("/a b")), ("file:///a%20b", Path("/a b")), ("https://a.example/b", None)]
)
def test_what_is_on_this_machine(url: str, path: Path | None) -> None:
    assert local_path(url) == path


def test_a_no_index_that_is_neither_yes_nor_no_is_named() -> None:
    with pytest.raises(UsageError, match=r"PIP_NO_INDEX .* is 'perhaps', which is neither yes nor no"):
        pip_settings({"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "perhaps"})
    with pytest.raises(UsageError, match="UV_NO_INDEX is 'perhaps'"):
        uv_variables(IndexSettings(), [], environ={"UV_NO_INDEX": "perhaps"})


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    (tmp_path / "files").mkdir()
    with serving(Index(tmp_path / "files")) as found:
        yield found


INDEX_VARIABLES = ("UV_INDEX", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL")


def closed(index: Index, **settings: tuple[str, ...]) -> IndexSettings:
    return IndexSettings(index.address, (index.address,), no_index=True, **settings)  # type: ignore[arg-type]


def uv_installs(python: Path, wheel: Path, told: dict[str, str]) -> bool:
    """Whether the real uv, told so, finds the file that ``wheel`` is."""
    lock = python.parent / "lock.txt"
    lock.write_text(f"pack==1.0 --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("UV_", "PIP_"))}
    command = [sys.executable, "-m", "uv", "pip", "install", "--no-config", "--no-cache", "--reinstall", "--quiet"]
    command += ["--require-hashes", "--python", str(python), "-r", str(lock)]
    kept["UV_HTTP_RETRIES"] = "0"
    return subprocess.run(command, env={**kept, **told}, capture_output=True, check=False).returncode == 0


def test_uv_asks_no_index_where_pip_is_told_so(tmp_path: Path, index: Index) -> None:
    python = make_venv(tmp_path / "venv")
    wheel = make_wheel(index.folder, "pack", "1.0", {"pack.py": b""})
    opened = dataclasses.replace(closed(index), no_index=False)
    uv_installs(python, wheel, uv_variables(opened, ["pack"], environ={}))
    assert index.asked  # the trap works
    index.asked.clear()
    page = f"{index.address}/pack/"
    for settings, environ in (
        (closed(index), {}),
        *((closed(index), {name: index.address}) for name in INDEX_VARIABLES),
        (opened, {"UV_NO_INDEX": "true"}),
    ):
        told = uv_variables(settings, ["pack"], (page,), environ)
        assert not uv_installs(python, wheel, {**environ, **told})
        assert index.asked == [], environ
    links = (str(index.folder),)
    assert uv_installs(python, wheel, uv_variables(closed(index, find_links=links), ["pack"], (page,), {}))
    assert index.asked == []


def test_wheels_of_an_environment_s_own_are_found_without_an_index(tmp_path: Path, index: Index) -> None:
    python, own, links = make_venv(tmp_path / "venv"), tmp_path / "own", tmp_path / "links"
    (own / "pack").mkdir(parents=True)
    links.mkdir()
    wheel = make_wheel(own / "pack", "pack", "1.0", {"pack.py": b"1"})
    make_wheel(links, "pack", "1.0", {"pack.py": b"2"})  # of the same name, and not the one that the lock pins
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (own / "pack" / "index.html").write_text(f'<a href="{wheel.name}#sha256={digest}">{wheel.name}</a>')
    environ = dict.fromkeys(INDEX_VARIABLES, index.address)
    environ["UV_NO_INDEX"] = "1"
    told = uv_variables(closed(index, find_links=(str(links),)), ["pack"], (), environ, own=(own.as_uri(),))
    assert uv_installs(python, wheel, {**environ, **told})
    assert index.asked == []


def test_a_capture_asks_no_index_where_pip_is_told_so(index: Index) -> None:
    wheel = make_wheel(index.folder, "pack", "1.0+cpu", {"pack.py": b""})
    found = Listing(closed(index), index.address)
    assert (found.wheels("pack", "1.0+cpu"), found.all_reached("1.0+cpu")) == ((), True)
    found = Listing(closed(index, find_links=(str(index.folder),)), index.address)
    assert [listed.url for listed in found.wheels("pack", "1.0+cpu")] == [str(wheel)]
    assert index.asked == []


def test_an_index_on_this_disk_is_an_index_too(tmp_path: Path) -> None:
    page = tmp_path / "simple" / "pack" / "index.html"
    page.parent.mkdir(parents=True)
    page.write_text('<a href="../../files/pack-1.0-py3-none-any.whl">x</a>')
    settings = IndexSettings(f"file://{tmp_path}/simple", (f"file://{tmp_path}/simple",), ("/a",))
    assert local_folders(settings, ["pack"]) == [Path("/a"), tmp_path / "files"]
    settings = dataclasses.replace(settings, no_index=True)
    assert local_folders(settings, ["pack"]) == [Path("/a")]
    told = uv_variables(settings, ["pack"], environ={})
    assert {name: value for name, value in told.items() if value} == {"UV_NO_INDEX": "1", "UV_FIND_LINKS": "/a"}


def test_a_lock_is_compiled_without_the_extra_index_where_pip_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    env = next(env for env in load_environments(places()).values() if env.extra_index)
    monkeypatch.delenv("PIP_NO_INDEX", raising=False)
    assert extra_pages(env, places())
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert extra_pages(env, places()) == ()
