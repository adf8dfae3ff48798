"""pip's settings, read without pip, and told to uv."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from harness.pin.indexes import PYPI, IndexSettings, local_path, page_links, pip_settings, uv_variables


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
    ],
)
def test_settings_are_what_pip_itself_makes_of_the_same(
    config: dict[str, str], tmp_path: Path, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "from pip._internal.commands import create_command as c\n"
        "o, _ = c('install').parse_args([])\n"
        "print([o.index_url.rstrip('/'), o.extra_index_urls, o.find_links, o.trusted_hosts, o.cert])"
    )
    monkeypatch.chdir(tmp_path)
    environ = {**config, **variables}
    pips = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True).stdout
    ours = pip_settings(environ)
    listed = [ours.index, list(ours.extra), list(ours.find_links), list(ours.trusted_hosts), ours.cert]
    assert ast.literal_eval(pips) == listed


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
