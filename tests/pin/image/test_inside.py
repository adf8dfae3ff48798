"""One environment, as a stage of the Dockerfile builds it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from harness.pin.image import inside
from harness.places import Places
from tests.pin.checkouts import MakeCheckout


@pytest.fixture
def where(make_checkout: MakeCheckout, monkeypatch: pytest.MonkeyPatch) -> Places:
    made = make_checkout({"mini": ["click"]})
    monkeypatch.chdir(made.root)
    monkeypatch.setattr(inside, "places", lambda: made)
    return made


def test_an_environment_has_bytecode_that_says_nothing_of_times(where: Places) -> None:
    folder = inside.build("mini", where)
    bytecode = sorted(folder.rglob("click/__pycache__/*.pyc"))
    assert bytecode
    for path in bytecode:
        assert int.from_bytes(path.read_bytes()[4:8], "little") == 0b01  # PEP 552: by hash, and never checked


def test_a_stage_keeps_one_environment(tmp_path: Path) -> None:
    for name in ("mini-1", "tools-1"):
        (tmp_path / name / "bin").mkdir(parents=True)
        (tmp_path / f".lock-{name}").touch()
    inside.leave_alone(tmp_path / "mini-1")
    assert [path.name for path in tmp_path.iterdir()] == ["mini-1"]
    assert (tmp_path / "mini-1" / "bin").is_dir()


@pytest.mark.usefixtures("where")
def test_what_goes_wrong_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert inside.main("nope") == 2
    assert capsys.readouterr().err == "error: unknown environment 'nope': there are tools, mini\n"


@pytest.mark.usefixtures("where")
def test_the_settings_of_the_build_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", dict(os.environ))
    Path(".build").mkdir()
    Path(".build/settings.json").write_text(json.dumps({"PIP_INDEX_URL": "https://index.example/simple"}))
    inside.main("nope")
    assert os.environ["PIP_INDEX_URL"] == "https://index.example/simple"


def test_wheels_of_a_captured_environment_are_found_while_it_is_built(
    where: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(".build/wheels/mini").mkdir(parents=True)
    seen: list[bool] = []

    def compiled(_: Path) -> None:
        seen.append((where.state / "wheels" / "mini").is_dir())

    monkeypatch.setattr(inside, "compile_bytecode", compiled)
    inside.build("mini", where)
    assert seen == [True]
    assert not (where.state / "wheels").exists()


def test_uvs_note_of_a_files_time_is_taken_away_with_its_line(tmp_path: Path) -> None:
    info = tmp_path / "thing-1.0.dist-info"
    info.mkdir()
    (info / "uv_cache.json").write_text('{"timestamp": 1}')
    (info / "RECORD").write_bytes(b"thing.py,sha256=a,1\r\nthing-1.0.dist-info/uv_cache.json,sha256=b,16\r\nx,,\r\n")
    inside.forget_times(tmp_path)
    assert (info / "RECORD").read_bytes() == b"thing.py,sha256=a,1\r\nx,,\r\n"
    assert [path.name for path in info.iterdir()] == ["RECORD"]
