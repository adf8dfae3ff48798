"""From a recipe's name and overrides to a spec, or to one line that says what would be right."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.config import flatten
from harness.errors import UsageError
from harness.run.choose import choose_recipe
from harness.run.prepare import check_startable
from harness.run.resolve import default_config, recipes, resolve, scales


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


def test_a_scale_is_where_the_other_settings_start_from_in_any_order() -> None:
    small = resolve("qwen3_6_27b_8gpu", ["scale=tiny"])
    assert small.config == flatten(scales("qwen3_6_27b_8gpu")["tiny"])
    first = resolve("qwen3_6_27b_8gpu", ["scale=tiny", "topology.kind=threads", "train.steps=50"])
    last = resolve("qwen3_6_27b_8gpu", ["train.steps=50", "topology.kind=threads", "scale=tiny"])
    assert first == last
    changed = {key for key, value in first.config.items() if small.config[key] != value}
    assert changed == {"train.steps", "topology.kind"}


def test_a_slip_in_a_group_s_name_is_told_from_the_same_name_elsewhere() -> None:
    with pytest.raises(UsageError, match=r"did you mean topology\.kind\?$"):
        resolve("tiny", ["topolgy.kind=threads"])


def test_what_cannot_start_here_keeps_the_settings_that_were_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole command would have to repeat them."""
    monkeypatch.setattr("harness.run.prepare.check_devices", lambda _: None)
    with pytest.raises(
        UsageError,
        match=r"; harness run qwen3_6_27b_8gpu \.\.\. --plan shows what it would do, scale=tiny in it runs smaller$",
    ):
        check_startable(resolve("qwen3_6_27b_8gpu"))
    monkeypatch.undo()
    two = ["topology.kind=threads", "topology.targets=cuda:62", "topology.drafters=cuda:63"]
    with pytest.raises(
        UsageError, match=r"^tiny needs 64 GPUs .*; harness run tiny \.\.\. --plan shows what it would do$"
    ):
        check_startable(resolve("tiny", two))


def test_a_request_without_a_name_gets_a_recipe_that_can_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the box too: a recipe that this version only plans fits no machine."""
    assert choose_recipe()[0] == "tiny"
    monkeypatch.setattr("harness.run.prepare.check_devices", lambda _: None)
    name, why = choose_recipe()
    assert name == "tiny"
    assert "no loader" in why
    ready = {**recipes(), "box": lambda: replace(resolve("toy"), needs_gpus=2, needs_gpu_name="RTX")}
    monkeypatch.setattr("harness.run.choose.recipes", lambda: ready)
    assert choose_recipe() == ("box", "its 2 RTX GPUs are here")


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("toi", [], "unknown recipe toi: did you mean toy?"),
        ("xyzzy", [], "the recipes are tiny"),
        ("toy", ["stepps=3"], "did you mean steps?"),
        ("toy", ["steps=many"], "steps=many: expected a whole number"),
        ("toy", ["steps=0"], "at least 1"),
        ("toy", ["steps"], "write key=value"),
        ("toy", ["scale=tiny"], "scale=tiny: toy has one scale only, its own"),
        ("qwen3_6_27b_8gpu", ["scale=huge"], "there is no scale=huge: qwen3_6_27b_8gpu has its own and scale=tiny"),
        ("qwen3_6_27b_8gpu", ["scale="], "there is no scale=:"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(name: str, settings: list[str], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        resolve(name, settings)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
