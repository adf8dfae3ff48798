"""What a child is given: a recipe's variables, and the caller's before them."""

from __future__ import annotations

import pytest

from harness.places import Places
from harness.records import BuiltEnvironment, RunSpec
from harness.run.prepare import prepare, variables

SPEC = RunSpec("toy", "tools", ("python",), variables={"OMP_WAIT_POLICY": "passive"})


def test_a_recipes_variable_reaches_the_child_and_the_fingerprint(
    where: Places, here: BuiltEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    assert variables(SPEC, here, where, where.root)["OMP_WAIT_POLICY"] == "passive"
    facts = prepare(SPEC, here, where, where.root).fingerprint.facts
    assert [value for name, value in facts.items() if name.endswith("OMP_WAIT_POLICY")] == ["passive"]


def test_what_the_caller_set_wins_and_is_what_is_recorded(
    where: Places, here: BuiltEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    assert variables(SPEC, here, where, where.root)["OMP_WAIT_POLICY"] == "active"
    facts = prepare(SPEC, here, where, where.root).fingerprint.facts
    assert [value for name, value in facts.items() if name.endswith("OMP_WAIT_POLICY")] == ["active"]
