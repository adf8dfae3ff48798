"""A wheel of the same version and other contents is found, though it agrees with its own RECORD."""

from __future__ import annotations

from pathlib import Path

from harness.pin.doctor.case import Case
from harness.pin.doctor.checks import as_built
from harness.pin.doctor.installed.layout import ask
from harness.pin.doctor.installed.read import read
from harness.records import Lock, Pin
from tests.pin.doctor.wheels import install, make_venv, make_wheel, site_packages


def case_of(python: Path, *pins: Pin) -> Case:
    lock = Lock("cuda", ("3.11",), "0" * 64, pins, "cuda.txt")
    return Case(read(ask(python)), lock, {pin.name: pin for pin in pins}, command="harness doctor cuda")


def test_the_same_version_from_another_wheel(tmp_path: Path) -> None:
    python = make_venv(tmp_path / "venv")
    (tmp_path / "local").mkdir()
    pinned = make_wheel(
        tmp_path, "torch", "2.11.0", {"torch/__init__.py": b"x = 1\n"}, scripts={"torchrun": b"#!python\n"}
    )
    local = make_wheel(tmp_path / "local", "torch", "2.11.0", {"torch/__init__.py": b"x = 2\n"})
    other = make_wheel(tmp_path, "numpy", "2.0.0", {"numpy/__init__.py": b""})
    pins = (Pin("torch", "2.11.0", ()), Pin("numpy", "2.0.0", ()))
    install(python, pinned, other)
    as_built.write(tmp_path / "venv", site_packages(python))
    assert list(as_built.check(case_of(python, *pins))) == []

    install(python, pinned)  # again, from the same wheel: nothing has changed
    assert list(as_built.check(case_of(python, *pins))) == []

    install(python, local)
    (finding,) = as_built.check(case_of(python, *pins))
    assert (finding.kind, finding.severity, finding.subject) == ("lock.file", "dangerous", "torch")
    assert finding.fix == "harness doctor cuda --fix"

    assert list(as_built.check(case_of(python, Pin("torch", "2.12.0", ())))) == [], "another version is said elsewhere"


def test_an_environment_that_was_built_elsewhere_says_nothing(tmp_path: Path) -> None:
    python = make_venv(tmp_path / "venv")
    install(python, make_wheel(tmp_path, "torch", "2.11.0", {"torch/__init__.py": b""}))
    assert list(as_built.check(case_of(python, Pin("torch", "2.11.0", ())))) == []
    (tmp_path / "venv" / as_built.FILE).write_text("{ torn")
    assert list(as_built.check(case_of(python, Pin("torch", "2.11.0", ())))) == []
