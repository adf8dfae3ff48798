"""Only a real difference is looked into, and only the phases that moved with it count."""

from __future__ import annotations

import math

import pytest

from harness.comparison import Change, Contribution, Judgement
from harness.explain.judging.interruptions import interruptions
from harness.explain.suspecting.grown import differs, growth, interrupted
from harness.explain.suspecting.suspects import suspects
from harness.records import Interval
from tests.explain.suspecting.asked import side


def judgement(ratio: float, width: float, verdict: str = "SLOWER", figure: str = "throughput") -> Judgement:
    interval = Interval(ratio, ratio * (1 - width), ratio * (1 + width))
    return Judgement(figure, verdict, "assumed", interval, 1.0, ratio)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("judged", "expected"),
    [
        (judgement(0.5, 0.1), True),
        (judgement(0.97, 0.1, "UNKNOWN"), False),
        (judgement(0.97, 0.01, "UNKNOWN"), True),
        (judgement(0.995, 0.001, "SAME"), False),
        (Judgement("throughput", "UNKNOWN", "none"), False),
    ],
)
def test_only_a_real_difference_is_looked_into(judged: Judgement, expected: bool) -> None:
    assert differs(judged) is expected


def test_growth_is_what_moved_with_the_whole() -> None:
    parts = (
        Contribution("forward", -0.6, None, 1.0, 2.0),
        Contribution("backward", -0.2, None, 1.0, 1.3),
        Contribution("data", 0.1, None, 0.5, 0.3),
    )
    found = growth(judgement(math.exp(-0.7), 0.01), parts)
    assert found
    assert found.slower
    assert [(p.phase, round(p.share, 2)) for p in found.grown] == [("forward", 0.75), ("backward", 0.25)]
    assert found.parts[0].growth == pytest.approx(math.log(2))
    assert found.parts[2].growth == 0.0


def test_a_phase_that_was_not_there_before_grew_without_bound() -> None:
    found = growth(judgement(0.5, 0.01), (Contribution("wait", -0.7, None, 0.0, 1.0),))
    assert found
    assert math.isinf(found.parts[0].growth)


def test_sides_without_runs_or_splits_are_no_trouble() -> None:
    changes = (Change("execution.x", 1, 2),)
    assert growth(Judgement("throughput", "UNKNOWN", "none"), ()) is None
    assert growth(judgement(0.5, 0.01), ()) is None
    assert interrupted(interruptions(side("a"), side("b"), decided=False)) is None
    assert suspects(changes, (), side("a"), side("b")) == ((), changes)
