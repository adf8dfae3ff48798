"""Whether changed code is suspected depends on which files changed."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from harness.records import Value
from tests.explain.suspecting.asked import Told, ask
from tests.explain.suspecting.troubles import told


@pytest.mark.parametrize(
    ("files", "longer", "suspected"),
    [
        ("README.md, tests/dflash/test_loss.py", {"forward": 1.5}, False),
        ("experiments/dflash/loss.py", {"forward": 1.5}, True),
        ("README.md, experiments/dflash/loss.py", {"forward": 1.5}, True),
        ("experiments/dflash/loss.py", {"data": 9.0}, False),
        ("experiments/dflash/data.py", {"data": 9.0}, True),
        ("experiments/dflash/train.py", {"data": 9.0}, True),
    ],
)
def test_a_patch_touches_what_its_files_are(files: str, longer: Mapping[str, float], suspected: bool) -> None:
    changed: dict[str, tuple[Value, Value]] = {"code.patch.sha256": ("a", "b"), "observed.patch.files": (None, files)}
    found = ask(Told(told(0, changed)), Told(told(1, changed), longer))
    assert ("code.patch.sha256" in found.names) is suspected


def test_of_two_patches_the_files_that_only_one_has_count() -> None:
    before = {"code.patch.sha256": "a", "observed.patch.files": "README.md, model.py"}
    after = {"code.patch.sha256": "b", "observed.patch.files": "model.py"}
    assert ask(Told(before), Told(after, {"forward": 1.5})).suspects == ()
    same = {**after, "observed.patch.files": "README.md, model.py"}
    assert ask(Told(before), Told(same, {"forward": 1.5})).names == ["code.patch.sha256"]


def test_a_commit_may_have_changed_any_file() -> None:
    changed: dict[str, tuple[Value, Value]] = {
        "code.commit": ("a", "b"),
        "code.patch.sha256": ("a", "b"),
        "observed.patch.files": (None, "README.md"),
    }
    assert ask(Told(told(0, changed)), Told(told(1, changed), {"forward": 1.5})).names[0] == "code.commit"
