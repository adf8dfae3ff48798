"""Names that a person gives to runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import RecordError, UsageError
from harness.run import tags
from tests import samples


def test_tags_are_added_and_taken_away(tmp_path: Path) -> None:
    folder = samples.recorded(tmp_path)
    assert tags.tags_of(folder) == ()
    assert tags.add(folder, ["spring", "before-upgrade"])
    assert not tags.add(folder, ["spring"])
    assert tags.tags_of(folder) == ("before-upgrade", "spring")
    assert folder.load().tags == ("before-upgrade", "spring")
    assert tags.remove(folder, ["spring", "never-given"])
    assert not tags.remove(folder, ["spring"])
    assert tags.tags_of(folder) == ("before-upgrade",)


def test_a_tag_names_its_runs_the_earliest_first(tmp_path: Path) -> None:
    ids = ["20261129-100000-tiny-aaaa", "20261129-110000-tiny-bbbb", "20261129-120000-tiny-cccc"]
    folders = [samples.recorded(tmp_path, name) for name in ids]
    tags.add(folders[2], ["good"])
    tags.add(folders[0], ["good", "old"])
    assert [folder.id for folder in tags.tagged(tmp_path, "good")] == [ids[0], ids[2]]
    assert tags.tagged(tmp_path, "bad") == ()
    assert tags.known(tmp_path) == ("good", "old")


@pytest.mark.parametrize("name", ["12", "٣", "", "@good", "a,b", "a b", "../up", "a/b", "-a", "ü", "x" * 65, "a\n"])
def test_what_could_not_be_written_as_a_reference_is_no_tag(tmp_path: Path, name: str) -> None:
    folder = samples.recorded(tmp_path)
    with pytest.raises(UsageError):
        tags.add(folder, ["fine", name])
    assert tags.tags_of(folder) == ()


def test_a_broken_record_is_said_and_not_taken_for_no_tags(tmp_path: Path) -> None:
    folder = samples.recorded(tmp_path)
    (folder.path / "tags.json").write_text("[")
    with pytest.raises(RecordError, match=r"tags\.json cannot be read"):
        tags.tagged(tmp_path, "good")
