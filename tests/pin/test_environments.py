"""Which environments there are, and which Python they are built with."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness.errors import EnvironmentFault, UsageError
from harness.pin import environments
from harness.pin.environments import RUNNING, by_preference, choose_python, environment, find_python, load_environments
from harness.places import Places, places
from harness.records import Environment

OLD = Environment(name="old", purpose="", python=("2.1", "2.2"))


def test_the_environments_of_the_project() -> None:
    known = load_environments(places())
    assert set(known) >= {"tools", "harness", "dev", "data", "cpu", "cu128", "cu130", "cu130-race"}
    assert {name: env.cuda for name, env in known.items() if env.cuda} == {
        "cu128": "12.8",
        "cu130": "13.0",
        "cu130-race": "13.0",
    }
    assert not known["data"].dependencies


def test_an_unknown_environment_is_told_the_right_ones() -> None:
    with pytest.raises(UsageError, match="did you mean cu130") as raised:
        environment("cu13", places())
    assert "cpu" in str(raised.value)
    assert raised.value.exit_code == 2


@pytest.mark.parametrize(("text", "message"), [(None, "is .* the checkout"), ("[cpu\n", "cannot be read")])
def test_a_broken_checkout_is_one_clear_line(tmp_path: Path, text: str | None, message: str) -> None:
    (tmp_path / "envs").mkdir()
    if text:
        (tmp_path / "envs" / "envs.toml").write_text(text)
    with pytest.raises(EnvironmentFault, match=message):
        load_environments(Places(tmp_path, tmp_path, tmp_path))


def test_a_python_that_the_lock_is_not_for_is_refused() -> None:
    with pytest.raises(UsageError, match=r"cu130 is not locked for Python 3.13, only for 3.11, 3.12"):
        environments.lock_for(environment("cu130", places()), "3.13", places())


def test_the_running_python_comes_first_and_is_found() -> None:
    env = Environment(name="x", purpose="", python=("2.1", RUNNING))
    assert by_preference(env)[0] == RUNNING
    version, path = choose_python(env)
    said = subprocess.run(
        [path, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True
    )
    assert (version, said.stdout.strip()) == (RUNNING, RUNNING)


def test_no_suitable_python_is_said_with_the_way_to_get_one() -> None:
    with pytest.raises(EnvironmentFault, match=r"old needs Python 2\.1 or 2\.2, .* uv python install 2\.2"):
        choose_python(OLD)


def test_a_version_managers_shim_that_fails_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    for folder, body in ((first, "exit 127"), (second, "echo 2.7")):
        folder.mkdir()
        (folder / "python2.7").write_text(f"#!/bin/sh\n{body}\n")
        (folder / "python2.7").chmod(0o755)
    monkeypatch.setenv("PATH", f"{first}:{second}")
    monkeypatch.setenv("HOME", str(tmp_path))
    find_python.cache_clear()
    assert find_python("2.7") == second / "python2.7"
    find_python.cache_clear()
