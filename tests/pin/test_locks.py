"""Reading locks, and what must hold of every lock in the repository."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import EnvironmentFault
from harness.pin.environments import environment, load_environments, lock_for, official_hashes
from harness.pin.locks import normalise, parse_pins, pins_digest, read_lock
from harness.places import places
from harness.records import Environment, Pin

A, B = "sha256:" + "a" * 64, "sha256:" + "b" * 64
EVERY_LOCK = [(env, version) for env in load_environments(places()).values() for version in env.python]


def test_a_pin_is_read_with_its_hashes_and_marker() -> None:
    text = f'# \nFoo_Bar[extra]==1.0+cpu ; python_version < "3.12" \\\n    --hash={B} \\\n    --hash={A}\n    # via\n'
    assert parse_pins(text, "x.txt") == (Pin("foo-bar", "1.0+cpu", (A, B), 'python_version < "3.12"'),)


@pytest.mark.parametrize(
    "line",
    [
        "--index-url https://example.org/simple",
        "--find-links /somewhere",
        f"six>=1.0 --hash={A}",
        f"six @ https://example.org/six.whl --hash={A}",
        "six==1.17.0",
        f"six==1.17.0 --hash={A} --no-binary six",
        f"six==1.17.0 --hash={A}0",
        "-e .",
    ],
)
def test_what_is_not_a_hashed_pin_is_refused_with_its_line(line: str) -> None:
    with pytest.raises(EnvironmentFault, match=r"x\.txt line 2 .*nox -s lock"):
        parse_pins(f"idna==3.0 --hash={A}\n{line}\n", "x.txt")


def test_a_missing_lock_names_the_command_that_writes_it(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match="nox -s lock -- cpu"):
        read_lock(tmp_path / "cpu.txt", "cpu", ("3.11",))


@given(st.permutations(["six==1", "idna==2", "torch==3"]), st.lists(st.sampled_from(["", "# via y"]), max_size=3))
def test_order_and_comments_do_not_move_the_digest(lines: list[str], noise: list[str]) -> None:
    def text(requirements: list[str]) -> str:
        return "\n".join([*noise, *(f"{requirement} --hash={A}" for requirement in requirements)])

    assert pins_digest(parse_pins(text(lines), "")) == pins_digest(parse_pins(text(sorted(lines)), ""))


@pytest.mark.parametrize("change", ["six==1.1 --hash=" + A, "six==1.0 --hash=" + B, f"six==1.0 --hash={A} --hash={B}"])
def test_every_change_of_a_pin_moves_the_digest(change: str) -> None:
    assert pins_digest(parse_pins(change, "")) != pins_digest(parse_pins(f"six==1.0 --hash={A}", ""))


@pytest.mark.parametrize(("env", "version"), EVERY_LOCK, ids=lambda value: getattr(value, "name", value))
def test_every_lock_pins_what_its_source_names(env: Environment, version: str) -> None:
    where = places()
    lock = lock_for(env, version, where)
    assert version in lock.python
    names = {pin.name for pin in lock.pins}
    source = (where.root / "envs" / f"{env.name}.in").read_text()
    asked = {
        normalise(re.split(r"[=<>~!\[; ]", line)[0]) for line in source.splitlines() if line and line[0] not in "-#"
    }
    assert asked <= names


@pytest.mark.parametrize("path", sorted((places().root / "envs").glob("*.txt")), ids=lambda path: path.name)
def test_no_lock_names_a_host_a_path_or_an_option(path: Path) -> None:
    text = path.read_text()
    assert not re.findall(r"://|^\s*-(?!-hash=)|\s/|@ ", text, flags=re.MULTILINE)
    assert f"nox -s lock -- {path.stem.split('-py3')[0]}" in text


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_dev_pins_what_the_harness_and_cpu_environments_pin(version: str) -> None:
    where = places()
    dev, harness, cpu = (lock_for(environment(name, where), version, where) for name in ("dev", "harness", "cpu"))
    assert {(pin.name, pin.version) for lock in (harness, cpu) for pin in lock.pins} <= {
        (pin.name, pin.version) for pin in dev.pins
    }


def test_the_harness_environment_has_no_torch() -> None:
    where = places()
    assert "torch" not in {pin.name for pin in lock_for(environment("harness", where), "3.11", where).pins}


def test_the_cpu_lock_takes_the_official_files_of_every_python() -> None:
    where = places()
    official = official_hashes(where)["torch==2.13.0+cpu"]
    pins = {pin.name: pin for pin in lock_for(environment("cpu", where), "3.11", where).pins}
    assert set(pins["torch"].hashes) == set(official.values())
    assert {name.split("-")[2] for name in official} == {"cp311", "cp312", "cp313"}
