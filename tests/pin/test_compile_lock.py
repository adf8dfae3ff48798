"""Compiling locks: real pip-tools, real index, small packages; uv is the independent reference."""

from __future__ import annotations

import re
import urllib.request
import zipfile
from pathlib import Path

import pytest

from harness.errors import EnvironmentFault
from harness.pin import compile_lock
from harness.pin.check_lock import check_environment, resolve_with_uv
from harness.pin.compile_lock import compile_environment
from harness.pin.environments import RUNNING, environment, lock_for
from harness.pin.indexes import pip_settings
from harness.pin.lock_command import main
from harness.pin.locks import parse_pins, read_lock
from harness.places import Places, places
from harness.records import Environment
from tests.pin.checkouts import MakeCheckout

A, B = "sha256:" + "a" * 64, "sha256:" + "b" * 64


def write_in(where: Places, name: str, text: str) -> Environment:
    """Say what the environment asks for; returns it."""
    (where.root / "envs" / f"{name}.in").write_text(text)
    return environment(name, where)


def hashes_on_the_index(name: str, version: str) -> set[str]:
    """The hashes of every file of a release, read off the index's page by hand."""
    with urllib.request.urlopen(f"{pip_settings().index}/{name}/", timeout=60) as answer:
        page = answer.read().decode()
    links = re.findall(rf"/{name}-{re.escape(version)}[-.][^#\"/]*#sha256=(\w+)", page, flags=re.IGNORECASE)
    return {"sha256:" + link for link in links}


def test_a_lock_has_the_hash_of_every_file_on_the_index(make_checkout: MakeCheckout) -> None:
    where = make_checkout({"mini": []})
    env = write_in(where, "mini", "markupsafe==3.0.2\n")
    (path,) = compile_environment(env, where, upgrade=False)
    (pin,) = read_lock(path, "mini", (RUNNING,)).pins
    assert (pin.name, pin.version) == ("markupsafe", "3.0.2")
    assert set(pin.hashes) == hashes_on_the_index("markupsafe", "3.0.2")
    assert len(pin.hashes) > 40  # wheels of every platform


@pytest.mark.slow
def test_existing_pins_stay_unless_an_upgrade_is_asked_for(make_checkout: MakeCheckout) -> None:
    where = make_checkout({"mini": []})
    env = write_in(where, "mini", "six==1.16.0\n")
    compile_environment(env, where, upgrade=False)
    write_in(where, "mini", "six\nidna==3.10\n")
    compile_environment(env, where, upgrade=False)
    pins = {pin.name: pin.version for pin in lock_for(env, RUNNING, where).pins}
    assert pins == {"six": "1.16.0", "idna": "3.10"}
    compile_environment(env, where, upgrade=True)
    pins = {pin.name: pin.version for pin in lock_for(env, RUNNING, where).pins}
    assert pins["six"] != "1.16.0"


@pytest.mark.slow
def test_an_included_environment_decides_the_shared_pins(make_checkout: MakeCheckout) -> None:
    where = make_checkout({"base": [], "more": []})
    compile_environment(write_in(where, "base", "six==1.16.0\n"), where, upgrade=False)
    write_in(where, "base", "six\n")
    more = write_in(where, "more", "-r base.in\nidna==3.10\n")
    compile_environment(more, where, upgrade=True)
    assert {pin.name: pin.version for pin in lock_for(more, RUNNING, where).pins} == {"six": "1.16.0", "idna": "3.10"}


def test_what_cannot_be_met_names_the_file_and_leaves_the_lock(
    make_checkout: MakeCheckout, capfd: pytest.CaptureFixture[str]
) -> None:
    where = make_checkout({"mini": ["six"]})
    before = (where.root / "envs" / "mini.txt").read_text()
    env = write_in(where, "mini", "six==0.0.77\n")
    with pytest.raises(EnvironmentFault, match=r"mend envs/mini\.in"):
        compile_environment(env, where, upgrade=False)
    assert "six==0.0.77" in capfd.readouterr().err
    assert (where.root / "envs" / "mini.txt").read_text() == before


def versions_and_hashes(path: Path) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(pin.name, pin.version, pin.hashes) for pin in parse_pins(path.read_text(), path.name)]


@pytest.mark.parametrize("name", ["tools", pytest.param("cpu", marks=pytest.mark.slow)])
def test_pip_tools_and_uv_resolve_the_same_lock(
    name: str, make_checkout: MakeCheckout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", pip_settings().index)  # uv merges no indexes: one alone to compare on
    where = make_checkout({"cpu": []})
    real = places().root / "envs"
    table = (real / "envs.toml").read_text()
    (where.root / "envs" / "envs.toml").write_text(
        re.sub(r"^python = .*$", f'python = ["{RUNNING}"]', table, flags=re.MULTILINE)
    )
    env = write_in(where, name, (real / f"{name}.in").read_text())
    (path,) = compile_environment(env, where, upgrade=True)
    done = resolve_with_uv(env, RUNNING, where, tmp_path / "uv.txt", "--generate-hashes")
    assert done.returncode == 0, done.stderr
    ours, uvs = versions_and_hashes(path), versions_and_hashes(tmp_path / "uv.txt")
    # The files of torch's CPU build are on an index that may not be reached: their hashes come from envs.toml.
    assert [pin for pin in ours if "+cpu" not in pin[1]] == [pin for pin in uvs if "+cpu" not in pin[1]]
    assert [pin[:2] for pin in ours] == [pin[:2] for pin in uvs]


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("six\nidna\n", None),
        ("six<1.0\nidna\n", r"mini, Python \S+: six==\S+ is in the lock, and what is asked for needs =="),
        ("six\nidna\ntoml==0.10.2\n", r"mini, Python \S+: toml is asked for and not in the lock"),
        ("six\n", r"mini, Python \S+: idna==\S+ is in the lock and nothing asks for it"),
        ("six==0.0.77\n", r"mini, Python \S+: .*six==0\.0\.77"),
    ],
)
def test_the_check_names_what_is_not_satisfied(make_checkout: MakeCheckout, source: str, complaint: str | None) -> None:
    where = make_checkout({"mini": ["six", "idna"]})
    complaints = check_environment(write_in(where, "mini", source), where)
    assert len(complaints) == (0 if complaint is None else 1), complaints
    assert complaint is None or re.match(complaint, complaints[0])


def test_the_command_exits_1_naming_the_environment(
    make_checkout: MakeCheckout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    where = make_checkout({"mini": ["six"]})
    monkeypatch.setattr("harness.pin.lock_command.places", lambda: where)
    assert main(["--check", "mini"]) == 0
    write_in(where, "mini", "six<1.0\n")
    assert main(["--check", "mini"]) == 1
    assert capsys.readouterr().err.endswith("lock it anew: nox -s lock -- mini\n")
    assert main(["mimi"]) == 2


@pytest.fixture
def three_pythons(make_checkout: MakeCheckout) -> tuple[Environment, Places]:
    where = make_checkout({"mini": []})
    toml = where.root / "envs" / "envs.toml"
    toml.write_text(toml.read_text().replace(f'["{RUNNING}"]', '["3.11", "3.12", "3.13"]'))
    return environment("mini", where), where


def test_a_python_that_resolves_differently_gets_a_lock_of_its_own(
    three_pythons: tuple[Environment, Places], monkeypatch: pytest.MonkeyPatch
) -> None:
    env, where = three_pythons
    texts = {"3.11": f"a==1 --hash={A}\n", "3.12": f"a==1 --hash={A} # via b\n", "3.13": f"a==2 --hash={B}\n"}
    seeds = dict[str, str]()

    def compiled(_: Environment, version: str, __: Places, seed: str) -> str:
        seeds[version] = seed
        return texts[version]

    monkeypatch.setattr(compile_lock, "_compile", compiled)
    written = compile_environment(env, where, upgrade=True)
    assert [path.name for path in written] == ["mini.txt", "mini-py313.txt"]
    assert seeds == {"3.11": "", "3.12": texts["3.11"], "3.13": texts["3.11"]}
    assert [lock_for(env, version, where).pins[0].version for version in env.python] == ["1", "1", "2"]
    assert lock_for(env, "3.12", where).python == ("3.11", "3.12")
    assert lock_for(env, "3.13", where).python == ("3.13",)

    texts["3.13"] = texts["3.11"]
    written = compile_environment(env, where, upgrade=False)
    assert [path.name for path in written] == ["mini.txt"]
    assert "a==2" in seeds["3.13"]  # it was seeded with its own pins, so that they stay where they may
    assert not (where.root / "envs" / "mini-py313.txt").exists()


@pytest.mark.slow
def test_a_hash_is_never_taken_from_a_file(
    make_checkout: MakeCheckout, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """An index that gives no hash is an error, not a download: ``pip-compile`` alone would fetch every file."""
    where = make_checkout({"mini": []})
    links = where.root / "links"
    links.mkdir()
    with zipfile.ZipFile(links / "bare-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("bare-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: bare\nVersion: 1.0\n")
        wheel.writestr("bare-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("bare-1.0.dist-info/RECORD", "")
    env = write_in(where, "mini", "bare==1.0\n")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    with pytest.raises(EnvironmentFault, match="mini cannot be locked"):
        compile_environment(env, where, upgrade=False)
    assert "bare==1.0: the index gives no SHA-256 for bare-1.0-py3-none-any.whl" in capfd.readouterr().err
    toml = where.root / "envs" / "envs.toml"
    toml.write_text(f'{toml.read_text()}\n[hashes."bare==1.0"]\n"bare-1.0-py3-none-any.whl" = "{A}"\n')
    (path,) = compile_environment(env, where, upgrade=False)
    assert read_lock(path, "mini", (RUNNING,)).pins[0].hashes == (A,)
