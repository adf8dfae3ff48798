"""Steps whose seconds and tokens agree, from whatever a log says of them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.records import Step
from harness.run.imported.figures import Figures
from harness.run.imported.rows import steps_of


def rows(count: int = 12, every: int = 1, **figures: float) -> list[Figures]:
    """A row for every ``every``-th step, each with these figures."""
    return [Figures(n, step=n * every, **figures) for n in range(1, count + 1)]  # type: ignore[arg-type]


def rate(steps: Sequence[Step]) -> float:
    return sum(step.tokens for step in steps) / sum(step.seconds for step in steps)


def test_tokens_and_seconds_stand_as_they_are() -> None:
    found = steps_of(rows(tokens=4096.0, seconds=0.5))
    assert {(step.tokens, step.seconds) for step in found.steps} == {(4096, 0.5)}
    assert [step.t for step in found.steps[:3]] == [0.5, 1.0, 1.5]
    assert {tuple(step.phases.items()) for step in found.steps} == {(("other", 0.5),)}
    assert not found.first_step
    assert not found.nominal


def test_a_rate_and_seconds_give_the_tokens() -> None:
    found = steps_of(rows(rate=21_500.0, seconds=0.4, every=10))
    assert {(step.tokens, round(step.seconds, 9)) for step in found.steps} == {(86_000, 4.0)}  # ten steps a row
    assert [step.step for step in found.steps[:2]] == [10, 20]


@pytest.mark.parametrize("every", [1, 5])
def test_where_no_tokens_are_known_each_step_counts_and_not_each_line(every: int) -> None:
    found = steps_of(rows(every=every, seconds=0.5, loss=2.5))
    assert [step.step for step in found.steps] == list(range(1, 12 * every + 1))
    assert {step.seconds for step in found.steps} == {0.5}
    assert [step.t for step in found.steps] == pytest.approx([0.5 * n for n in range(1, 12 * every + 1)])
    assert [step.step for step in found.steps if step.metrics] == [n * every for n in range(1, 13)]
    assert any("shared out evenly" in words for words in found.words) == (every > 1)


def test_tokens_and_a_rate_give_the_seconds() -> None:
    found = steps_of(rows(tokens=8600.0, rate=21_500.0))
    assert {(step.tokens, round(step.seconds, 9)) for step in found.steps} == {(8600, 0.4)}


def test_time_stamps_give_the_seconds_between_them() -> None:
    given_rows = [Figures(n, step=n, stamp=100.0 + 2 * n, rate=1000.0) for n in range(1, 13)]
    found = steps_of(given_rows)
    assert len(found.steps) == 11  # nobody knows when the first one began
    assert {(step.tokens, step.seconds) for step in found.steps} == {(2000, 2.0)}
    assert not found.first_step
    begun = steps_of(given_rows, begin=70.0)
    assert (begun.steps[0].seconds, begun.steps[0].t, begun.first_step) == (32.0, 32.0, True)
    assert begun.steps[-1].t == 54.0


def test_steps_within_one_second_of_a_clock_share_it() -> None:
    stamps = [10.0, 11.0, 11.0, 11.0, 11.0, 12.0, 12.0, 14.0, 14.0, 15.0]
    found = steps_of([Figures(n, step=n, stamp=stamp, tokens=100.0) for n, stamp in enumerate(stamps, 1)])
    assert [step.seconds for step in found.steps] == [0.25, 0.25, 0.25, 0.25, 0.5, 0.5, 1.0, 1.0, 1.0]
    assert [step.t for step in found.steps] == [0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0]


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 4)), min_size=3, max_size=40),
    st.one_of(st.none(), st.integers(0, 3)),
)
def test_the_seconds_are_those_of_the_clock(jumps: list[tuple[int, int]], begin: int | None) -> None:
    """However coarse the clock is and however many steps a row stands for, no second is lost or made."""
    number, at, made = 0, 10.0, []
    for line, (steps, seconds) in enumerate(jumps, 1):
        number, at = number + steps, at + seconds
        made.append(Figures(line, step=number, clock=None, stamp=at, rate=100.0))
    if len({row.stamp for row in made}) < 2 or 10 * len({row.stamp for row in made}) <= len(made):
        return
    found = steps_of(made, None if begin is None else float(begin))
    zero = made[0].stamp if begin is None else begin
    assert zero is not None
    assert sum(step.seconds for step in found.steps) == pytest.approx(at - zero)
    assert found.steps[-1].t == pytest.approx(at - zero)
    assert all(step.seconds > 0 for step in found.steps)
    assert rate(found.steps) == pytest.approx(100.0, rel=0.2, abs=len(made))


def test_a_rate_alone_is_kept_as_a_rate_and_said_to_be_one() -> None:
    found = steps_of([Figures(n, rate=21_000.0 + n) for n in range(1, 101)])
    assert rate(found.steps) == pytest.approx(21_050.5, rel=1e-6)
    assert found.nominal
    assert any("only the rate means something" in word for word in found.words)
    assert [step.step for step in found.steps] == list(range(1, 101))


def test_running_totals_are_told_from_figures_of_a_step() -> None:
    found = steps_of([Figures(n, step=10 * n, tokens=40_960.0 * n, seconds=1000 + 20.0 * n) for n in range(1, 13)])
    assert {(step.tokens, step.seconds) for step in found.steps} == {(40_960, 20.0)}
    assert "is a running total" in found.words[0]
    assert "is a running clock" in found.words[1]
    few = steps_of([Figures(n, step=n, tokens=100.0 + n, seconds=1.0) for n in range(1, 6)])  # too few to tell
    assert [step.tokens for step in few.steps] == [101, 102, 103, 104, 105]


def test_rows_that_lack_what_the_others_have_are_not_used() -> None:
    odd = [Figures(13, step=13, loss=1.0), Figures(14, step=14, rate=float("nan"), seconds=0.5), Figures(15, step=15)]
    odd += [Figures(16, step=16, rate=0.0, seconds=0.5), Figures(17, step=17, rate=9.0, seconds=-1.0)]
    found = steps_of([*rows(rate=100.0, seconds=0.5), *odd])
    assert len(found.steps) == 12
    assert found.unused == (13, 14, 15, 16, 17)


def test_steps_that_are_counted_from_0_begin_with_1() -> None:
    found = steps_of([Figures(n, step=n, seconds=0.1) for n in range(5)])
    assert [step.step for step in found.steps] == [1, 2, 3, 4, 5]
    assert {step.tokens for step in found.steps} == {0}


def test_without_a_time_or_a_rate_there_are_no_steps() -> None:
    with pytest.raises(UsageError, match="nothing can be timed"):
        steps_of(rows(loss=1.0))
    with pytest.raises(UsageError, match="nothing can be timed"):
        steps_of(rows(tokens=5.0, clock=7.0))  # a clock that stands still is none
