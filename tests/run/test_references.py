"""What stands on one side of a comparison: a run, or a group of runs, named as a person types it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.run import tags
from harness.run.references import mirrored, side
from tests import samples

IDS = (
    "20261128-090000-tiny-aaaa",
    "20261129-100000-tiny-bbbb",
    "20261129-110000-toy-cccc",
    "20261129-120000-tiny-dddd",
)
MLFLOW = "0123456789abcdef" * 2


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Three runs of tiny, the last of them with other settings, and one of toy."""
    for number, name in enumerate(IDS):
        recipe = name.split("-")[2]
        folder = samples.recorded(tmp_path, name, recipe=recipe, config={"train.steps": 40 if number < 3 else 50})
        tags.add(folder, [f"nr{number}", "all"])
    return tmp_path


def ids(runs: Path, reference: str) -> list[str]:
    return [folder.id for folder in side(runs, reference).folders]


def test_one_run_is_called_by_its_id_however_it_was_named(runs: Path) -> None:
    for reference in ("@1", IDS[3], IDS[3][:-1], str(runs / IDS[3])):
        assert side(runs, reference) == (IDS[3], side(runs, "@1").folders)
        assert ids(runs, reference) == [IDS[3]]


def test_a_tag_several_ids_and_a_folder_of_runs_are_groups(runs: Path) -> None:
    assert ids(runs, "@all") == list(IDS)
    assert side(runs, "@all").name == "@all"
    assert ids(runs, f"@2, {IDS[0]}") == [IDS[2], IDS[0]]
    assert side(runs, f"@2,{IDS[0]}").name == f"{IDS[2]} and 1 more"
    assert ids(runs, "@nr0,@nr1") == list(IDS[:2])
    assert side(runs, f"{runs}/").folders == side(runs, "@all").folders
    assert side(runs, "@nr2,@nr0").folders == side(runs, "@2,@4").folders


def test_a_recipe_is_its_finished_runs_that_were_asked_for_alike(runs: Path) -> None:
    assert ids(runs, "tiny") == [IDS[3]]  # the latest has settings of its own
    assert side(runs, "tiny").name == "tiny, 1 of its 3 finished runs"
    shutil.rmtree(runs / IDS[3])
    assert ids(runs, "tiny") == [IDS[0], IDS[1]]
    assert side(runs, "tiny").name == "tiny"
    samples.end(samples.begin(runs, "20261130-100000-tiny-eeee"), "failed", "a crash")
    assert ids(runs, "tiny") == [IDS[0], IDS[1]]
    samples.begin(runs, "20261130-110000-smollm2-ffff", recipe="smollm2")
    with pytest.raises(UsageError, match="smollm2: none of its 1 runs has finished"):
        side(runs, "smollm2")


def test_a_record_that_cannot_be_read_does_not_hide_the_others(runs: Path) -> None:
    folder = samples.recorded(runs, "20261130-100000-tiny-eeee")
    folder.write_json("spec.json", {"schema": 99})
    (folder.path / "mirror.json").write_text("torn")
    assert ids(runs, "toy") == [IDS[2]]
    with pytest.raises(UsageError, match="is MLflow's"):
        side(runs, MLFLOW)


@pytest.mark.parametrize("record", ["mirror.json", "imported.json"])
def test_a_run_is_found_by_its_id_in_mlflow(runs: Path, record: str) -> None:
    with pytest.raises(UsageError, match=f"bring it here: .*harness import {MLFLOW}"):
        side(runs, MLFLOW)
    assert mirrored(runs, MLFLOW) is None
    side(runs, IDS[1]).folders[0].write_json(record, {"mlflow_run_id": MLFLOW})
    assert side(runs, MLFLOW) == side(runs, IDS[1])


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("@0", "@0 names no run: there are 4"),
        ("@5", "@5 names no run: there are 4"),
        ("@al", "@al: no run in .* has this tag; did you mean @all?"),
        ("@zzz", "the tags are all, nr0, nr1, nr2, nr3"),
        ("@", "@: no run"),
        ("2026", "4 runs start so"),
        ("20271129", "20271129: no run in .* starts so or is of a recipe of that name"),
        ("tinny", "tinny: no run in "),
        ("", "'' names no run"),
        ("./nowhere", "./nowhere is not a run folder"),
        ("@1,", "has an empty place between its commas"),
        (",", "has an empty place between its commas"),
        ("@1,@nr3", "names the run 20261129-120000-tiny-dddd twice"),
        ("@all,@nr2", "names the run 20261129-110000-toy-cccc twice"),
    ],
)
def test_what_names_no_run_is_one_line(runs: Path, reference: str, message: str) -> None:
    with pytest.raises(UsageError, match=message.replace("?", re.escape("?"))) as raised:
        side(runs, reference)
    assert "\n" not in str(raised.value)


def test_where_nothing_has_run_every_word_says_so(tmp_path: Path) -> None:
    for reference in ("@1", "toy", "2026"):
        with pytest.raises(UsageError, match="there are none in"):
            side(tmp_path, reference)
    with pytest.raises(UsageError, match=r"no run in .* has this tag; none has any"):
        side(tmp_path, "@good")
