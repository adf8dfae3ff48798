"""From a recipe's name and overrides to a spec, or to one line that says what would be right."""

from __future__ import annotations

import pytest

from harness.config import flatten
from harness.errors import UsageError
from harness.run.resolve import default_config, recipes, resolve


def test_every_recipe_resolves_to_its_own_name_and_its_whole_configuration() -> None:
    for name, recipe in recipes().items():
        spec = resolve(name)
        assert spec.recipe == name
        assert spec.config == flatten(default_config(recipe))
        assert set(spec.kinds) == set(spec.config)
        assert spec.argv
        assert spec.env


def test_overrides_change_the_spec_and_its_identity() -> None:
    plain, changed = resolve("toy"), resolve("toy", ["steps=7", "slow.data=0.5"])
    assert (changed.config["steps"], changed.config["slow.data"]) == (7, 0.5)
    assert changed.id != plain.id
    assert resolve("toy", ["steps=7", "slow.data=0.5"]).id == changed.id


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("toi", [], "unknown recipe toi: did you mean toy?"),
        ("xyzzy", [], "the recipes are tiny"),
        ("toy", ["stepps=3"], "did you mean steps?"),
        ("toy", ["steps=many"], "steps=many: expected a whole number"),
        ("toy", ["steps=0"], "at least 1"),
        ("toy", ["steps"], "write key=value"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(name: str, settings: list[str], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        resolve(name, settings)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
