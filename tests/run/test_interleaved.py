"""Two sides in turns: a drift of the machine falls on both, and what a side is asked for is understood beforehand."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.places import Places
from harness.records import BuiltEnvironment
from harness.run import interleaved, orders
from harness.run.folder import RunFolder
from harness.run.interleaved import contender, seconds_left, smallest_p, turns, usual_seconds
from tests import samples


def test_the_order_is_abba_baab_and_on() -> None:
    assert "".join(turns(1)) == "AB"
    assert "".join(turns(3)) == "ABBABA"
    assert "".join(turns(4)) == "ABBABAAB"
    assert "".join(turns(8)) == "ABBABAABBAABABBA"  # Thue-Morse, OEIS A010060


@given(st.integers(1, 200))
def test_the_sides_have_as_many_runs_whenever_one_looks(repeat: int) -> None:
    order = turns(repeat)
    assert order.count("A") == order.count("B") == repeat
    leads = itertools.accumulate(1 if turn == "A" else -1 for turn in order)
    assert max(map(abs, leads)) == 1


@given(st.integers(1, 30), st.integers(-5, 5), st.integers(-9, 9), st.integers(-9, 9))
def test_a_drift_falls_on_both_sides_alike(quarters: int, bend: int, slope: int, start: int) -> None:
    def difference(repeat: int, bend: int) -> int:
        drift = [bend * n * n + slope * n + start for n in range(2 * repeat)]
        return sum(value if turn == "A" else -value for value, turn in zip(drift, turns(repeat), strict=True))

    assert difference(2 * quarters, 0) == 0
    assert difference(4 * quarters, bend) == 0


@pytest.mark.parametrize("repeat", [1, 2, 3, 4, 5])
def test_the_smallest_p_is_that_of_all_halvings_counted(repeat: int) -> None:
    values = range(2 * repeat)  # all of A below all of B: as different as can be
    sums = [sum(half) for half in itertools.combinations(values, repeat)]
    mean = sum(values) / 2
    extreme = sum(abs(s - mean) >= abs(sum(values[:repeat]) - mean) for s in sums)
    assert smallest_p(repeat) == extreme / len(sums)
    assert (smallest_p(repeat) <= 0.05) == (repeat >= interleaved.ENOUGH)


@pytest.fixture(autouse=True)
def built_here(here: BuiltEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders, "built", lambda *_, **__: here)


def test_a_side_is_a_recipe_with_its_settings(where: Places) -> None:
    found = contender("toy slow.forward=0.01  steps=7", where, cold=True)
    assert (found.order.spec.recipe, found.order.cold) == ("toy", True)
    assert (found.order.spec.config["slow.forward"], found.order.spec.config["steps"]) == (0.01, 7)


def test_a_side_is_a_recorded_run_with_other_settings(
    where: Places, here: BuiltEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = samples.begin(where.runs, "20261129-100000-toy-aaaa", recipe="toy")
    folder.write_json("spec.json", contender("toy steps=7 noise=0.5", where).order.spec.to_json())
    monkeypatch.setattr("harness.run.rerun._environment", lambda *_: (here, ["another lock"]))
    monkeypatch.setattr("harness.run.rerun._code", lambda *_: (where.root, ["other code"]))
    found = contender("@1 steps=9", where)
    assert (found.order.spec.config["steps"], found.order.spec.config["noise"]) == (9, 0.5)
    assert found.remarks == ("another lock", "other code")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("", "'' is not a recipe with its settings; write it in quotes"),
        ("  ", "is not a recipe with its settings"),
        ("toy 'steps=9", "No closing quotation"),
        ("tinny", "unknown recipe tinny: did you mean tiny"),
        ("toy stepz=9", "unknown setting stepz: did you mean steps"),
        ("steps=9", "unknown recipe steps=9"),
        ("@3 steps=9", "@3 names no run: there are 2"),
        ("@both", "@both is 2 runs: name the one to run again"),
        ("20261129-1", "2 runs start so"),
        ("@1", "was made in the image dflash:cpu: ask the harness in that image"),
        ("@2", "was imported from good.log: only its record is here, so it cannot run again"),
    ],
)
def test_what_is_neither_is_one_line(where: Places, asked: str, message: str) -> None:
    facts = {
        "20261129-100000-tiny-aaaa": {"context.imported.from": "good.log"},
        "20261129-110000-tiny-bbbb": {"environment.image.tag": "dflash:cpu", "environment.image.digest": "sha256:ab"},
    }
    for run_id, known in facts.items():
        folder = samples.begin(where.runs, run_id)
        folder.write_json("fingerprint.json", {"facts": known})
        folder.write_json("tags.json", {"tags": ["both"]})
    with pytest.raises(UsageError) as raised:
        contender(asked, where)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def took(folder: RunFolder, seconds: float, status: str = "finished") -> None:
    data = json.loads((folder.path / "result.json").read_text())
    folder.write_json("result.json", {**data, "status": status, "ended_at": samples.STARTED_AT + seconds})


def test_how_long_a_run_takes_is_the_median_of_those_of_its_spec(tmp_path: Path) -> None:
    assert usual_seconds(tmp_path, "x") is None
    for number, seconds in enumerate((10.0, 30.0, 11.0)):
        took(samples.recorded(tmp_path, f"20261129-10000{number}-tiny-aaaa"), seconds)
    spec_id = samples.recorded(tmp_path, "20261129-100009-tiny-aaaa", config={"other": 1}).load().spec.id
    took(samples.recorded(tmp_path, "20261129-100004-tiny-aaaa"), 500.0, "failed")
    torn = samples.recorded(tmp_path, "20261129-100005-tiny-aaaa")
    (torn.path / "result.json").write_text("{")
    of_three = RunFolder(tmp_path / "20261129-100000-tiny-aaaa").load().spec.id
    assert usual_seconds(tmp_path, of_three) == 11.0
    assert usual_seconds(tmp_path, spec_id) == 20.0


def test_what_is_left_is_the_sum_of_its_turns_or_unknown() -> None:
    assert seconds_left(turns(2), {"A": 10.0, "B": 1.0}) == 22.0
    assert seconds_left(turns(2)[3:], {"A": 10.0, "B": None}) == 10.0
    assert seconds_left(turns(2), {"A": 10.0, "B": None}) is None
    assert seconds_left((), {"A": None, "B": None}) == 0
