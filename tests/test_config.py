"""Settings: flat and back, and every way to get an override wrong answered in one line."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.config import execution, flatten, kinds, override, unflatten, workload
from harness.errors import UsageError


@dataclass(frozen=True)
class Train:
    steps: int = workload(10)
    lr: float = workload(1e-3)
    seed: int | None = workload(None)
    loss: Literal["decay", "dpace"] = workload("decay")

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"steps is {self.steps}; at least 1 step is needed")


@dataclass(frozen=True)
class Settings:
    name: str = workload("x")
    amp: bool = execution(False)
    train: Train = field(default_factory=Train)


def test_flat_view_names_every_leaf_with_its_kind() -> None:
    flat = flatten(Settings())
    assert flat == {
        "name": "x",
        "amp": False,
        "train.steps": 10,
        "train.lr": 1e-3,
        "train.seed": None,
        "train.loss": "decay",
    }
    assert kinds(Settings())["amp"] == "execution"
    assert kinds(Settings()).keys() == flat.keys()


@given(
    st.builds(
        Settings,
        name=st.text(),
        amp=st.booleans(),
        train=st.builds(
            Train,
            steps=st.integers(1, 10**9),
            lr=st.floats(allow_nan=False, allow_infinity=False),
            seed=st.none() | st.integers(),
            loss=st.sampled_from(["decay", "dpace"]),
        ),
    )
)
def test_flatten_and_unflatten_are_inverses(settings: Settings) -> None:
    assert unflatten(Settings, flatten(settings)) == settings


@given(st.integers(1, 10**6), st.floats(1e-9, 1e9), st.booleans())
def test_an_override_says_what_it_writes(steps: int, lr: float, amp: bool) -> None:
    changed = override(Settings(), [f"train.steps={steps}", f"train.lr={lr!r}", f"amp={str(amp).lower()}"])
    assert (changed.train.steps, changed.train.lr, changed.amp) == (steps, lr, amp)
    assert changed.train.loss == "decay"


def test_optional_values_take_none_and_numbers() -> None:
    assert override(Settings(), ["train.seed=7"]).train.seed == 7
    assert override(Settings(), ["train.seed=7", "train.seed=none"]).train.seed is None


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("steps=3", "unknown setting steps: did you mean train.steps?"),
        ("train.stepz=3", "unknown setting train.stepz: did you mean train.steps?"),
        ("trian.steps=3", "unknown setting trian.steps: did you mean train.steps?"),
        ("zzzz=3", "unknown setting zzzz: the settings here are name, amp, train.steps"),
        ("train=3", "unknown setting train: "),
        ("train.steps.more=3", "unknown setting train.steps.more: "),
        ("train.steps", "'train.steps' is not an override; write key=value, for example name=x"),
        ("train.steps=3.5", "train.steps=3.5: expected a whole number"),
        ("train.steps=many", "train.steps=many: expected a whole number"),
        ("train.lr=nan", "train.lr=nan: expected a number"),
        ("train.lr=inf", "train.lr=inf: expected a number"),
        ("amp=maybe", "amp=maybe: expected true or false"),
        ("train.loss=l2", "train.loss=l2: expected one of decay, dpace"),
        ("train.seed=x", "train.seed=x: expected a whole number or none"),
        ("train.steps=0", "train.steps is 0; at least 1 step is needed"),
    ],
)
def test_a_wrong_override_is_one_line_that_names_what_would_be_right(assignment: str, message: str) -> None:
    with pytest.raises(UsageError, match="^" + re.escape(message)) as caught:
        override(Settings(), [assignment])
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_every_setting_of_the_same_last_name_is_offered() -> None:
    @dataclass(frozen=True)
    class Two:
        train: Train = field(default_factory=Train)
        target: Train = field(default_factory=Train)

    with pytest.raises(UsageError, match=re.escape("did you mean train.steps or target.steps?")):
        override(Two(), ["steps=3"])


def test_values_that_are_only_right_together_are_checked_together() -> None:
    @dataclass(frozen=True)
    class Shape:
        heads: int = workload(4)
        width: int = workload(128)

        def __post_init__(self) -> None:
            if self.width % self.heads:
                raise ValueError(f"width {self.width} is not a multiple of heads {self.heads}")

    assert override(Shape(), ["heads=6", "width=96"]) == Shape(6, 96)
    with pytest.raises(UsageError, match="width 128 is not a multiple of heads 6"):
        override(Shape(), ["heads=6"])


def test_a_spec_from_another_version_is_refused_by_name() -> None:
    flat = flatten(Settings())
    del flat["train.lr"]
    with pytest.raises(UsageError, match=r"missing train\.lr; unknown old"):
        unflatten(Settings, {**flat, "old": 1})
