"""The diff of two sides: what is changed, what is unknown, and what is only noise."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.comparison import Change, Measured, Side
from harness.explain.comparing import facts
from harness.records import Kind, Result, Run, RunSpec, Value

NOTHING = Result("finished", 0)


def measured(**given: Value) -> Measured:
    """A run with facts; ``__`` in a name stands for a dot."""
    named = {name.replace("__", "."): value for name, value in given.items()}
    return Measured(
        Run("x", "runs/x", RunSpec("", "", ()), NOTHING, None, None, None),
        facts={n: v for n, v in named.items() if not n.startswith("observed.")},
        observed={n: v for n, v in named.items() if n.startswith("observed.")},
    )


def side(*runs: Measured) -> Side:
    return Side("side", runs)


def only(before: Side, after: Side) -> Change:
    (change,) = facts.changes(before, after)
    return change


def test_a_change_has_what_it_was_and_what_it_is() -> None:
    a, b = (
        side(measured(execution__threads=4, code__dirty=False)),
        side(measured(execution__threads=1, code__dirty=False)),
    )
    assert facts.changes(a, b) == (Change("execution.threads", 4, 1),)


def test_what_one_side_did_not_record_is_unknown_and_not_equal() -> None:
    a, b = side(measured()), side(measured(environment__variable__NCCL_P2P_DISABLE="1"))
    assert only(a, b) == Change("environment.variable.NCCL_P2P_DISABLE", None, "1", missing="before")
    assert only(b, a).missing == "after"


def test_a_fact_of_none_was_not_recorded() -> None:
    assert only(side(measured(execution__x=None)), side(measured(execution__x=1))).missing == "before"


@pytest.mark.parametrize(("before", "after"), [(1, 1.0), (0.1 + 0.2, 0.3), ("a", "a"), (float("nan"), float("nan"))])
def test_what_is_equal_has_not_changed(before: Value, after: Value) -> None:
    assert facts.changes(side(measured(execution__x=before)), side(measured(execution__x=after))) == ()


@pytest.mark.parametrize(("before", "after"), [(True, 1), (0, False), ("1", 1), (1, 1.001), ("", "0")])
def test_types_are_told_apart(before: Value, after: Value) -> None:
    assert only(side(measured(execution__x=before)), side(measured(execution__x=after))).after is after


def test_a_group_that_shares_no_value_with_the_other_changed() -> None:
    change = only(
        side(measured(execution__x=1), measured(execution__x=2)),
        side(measured(execution__x=3)),
    )
    assert change == Change("execution.x", 1.5, 3, varies=True)


@pytest.mark.parametrize("kind", ["execution", "environment", "code"])
@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        ((0, 0), (0, 0.005), (0, 0.005)),
        ((0, 0.005), (0,), (0.005, 0)),
        ((1, 2), (2, 3), (1, 3)),
        (("flex", "dense"), ("flex", "sdpa", "eager"), ("dense", "eager | sdpa")),
        ((1, True), (True,), (1, True)),
    ],
)
def test_what_was_set_in_some_runs_of_a_side_only_is_a_change_with_what_the_other_lacks(
    kind: str, before: tuple[Value, ...], after: tuple[Value, ...], shown: tuple[Value, Value]
) -> None:
    a, b = (side(*(measured(**{f"{kind}__x": value}) for value in values)) for values in (before, after))
    assert only(a, b) == Change(f"{kind}.x", shown[0], shown[1], varies=True)
    assert only(b, a) == Change(f"{kind}.x", shown[1], shown[0], varies=True)


@pytest.mark.parametrize("fact", ["execution__x", "environment__x", "code__x"])
def test_two_sides_with_the_same_values_do_not_differ(fact: str) -> None:
    one, two = measured(**{fact: 1}), measured(**{fact: 2})
    assert facts.changes(side(one, two), side(two, one, two)) == ()


@pytest.mark.parametrize("fact", ["workload__x", "state__x", "context__x", "observed__x", "environment__memory__bytes"])
def test_what_moves_by_itself_changed_only_where_the_sides_share_no_value(fact: str) -> None:
    one, two = measured(**{fact: 10**9}), measured(**{fact: 10**10})
    assert facts.changes(side(one), side(one, two)) == facts.changes(side(one, two), side(two)) == ()


@pytest.mark.parametrize("nothing", [0, 0.0, False])
def test_nothing_seen_is_no_change_from_not_having_looked(nothing: Value) -> None:
    name = "observed__alloc_retries"
    assert facts.changes(side(measured()), side(measured(**{name: nothing}))) == ()
    assert facts.changes(side(measured(**{name: nothing})), side(measured())) == ()
    assert only(side(measured()), side(measured(**{name: nothing}), measured(**{name: 3}))).missing == "before"
    assert only(side(measured()), side(measured(execution__x=nothing))).missing == "before"


def test_words_that_vary_inside_a_side_are_all_shown() -> None:
    a = side(measured(execution__attention="flex"), measured(execution__attention="sdpa"))
    assert only(a, side(measured(execution__attention="dense"))).before == "flex | sdpa"


def test_a_figure_that_moves_by_itself_needs_ranges_that_lie_apart() -> None:
    """3 % is the threshold of a clock: 2,400 and 2,380 MHz are one, 2,400 and 1,440 are not."""
    fast, near, slow = (measured(observed__gpu__clock_mhz=mhz) for mhz in (2400.0, 2380.0, 1440.0))
    assert facts.changes(side(fast), side(near)) == ()
    assert only(side(fast), side(slow)).after == 1440.0
    assert facts.changes(side(fast, slow), side(slow, near)) == ()


def test_free_memory_may_move_by_half() -> None:
    a, b, c = (measured(state__memory__available_bytes=gb * 10**9) for gb in (100, 60, 20))
    assert facts.changes(side(a), side(b)) == ()
    assert only(side(a), side(c)).after == 20 * 10**9


@pytest.mark.parametrize(
    "fact", ["context.time", "context.pid", "state.load.1m", "state.doctor.files", "context.gpu.0.bus"]
)
def test_noise_is_no_change_unless_everything_is_asked_for(fact: str) -> None:
    a, b = (side(measured(**{fact.replace(".", "__"): value})) for value in (1, 2))
    assert facts.changes(a, b) == ()
    assert [c.fact for c in facts.changes(a, b, everything=True)] == [fact]


def test_everything_has_what_is_equal_too() -> None:
    a = side(measured(execution__x=1, observed__padding_share=0.5))
    assert [c.before for c in facts.changes(a, a, everything=True)] == [1, 0.5]


def test_kinds_come_in_the_order_of_reading_and_devices_in_that_of_numbers() -> None:
    names = [
        "observed.x",
        "environment.gpu.10.name",
        "environment.gpu.2.name",
        "workload.x",
        "state.x",
        "code.x",
        "execution.x",
    ]
    a, b = (side(measured(**{n.replace(".", "__"): value for n in names})) for value in ("1", "2"))
    found = facts.changes(a, b)
    assert [c.fact for c in found] == [
        "workload.x", "execution.x", "environment.gpu.2.name", "environment.gpu.10.name",
        "code.x", "state.x", "observed.x",
    ]  # fmt: skip
    grouped = facts.by_kind(found)
    assert list(grouped) == ["workload", "execution", "environment", "code", "state", "observed"]
    assert len(grouped["environment"]) == 2


VALUES = st.one_of(st.integers(-3, 3), st.sampled_from(["a", "b", ""]), st.booleans(), st.floats(0, 2), st.none())
NAMES = st.builds("{}.{}".format, st.sampled_from([*get_args(Kind), "observed"]), st.sampled_from("abcd"))
SIDES = st.lists(st.dictionaries(NAMES, VALUES), min_size=1, max_size=3)


def built(runs: list[dict[str, Value]]) -> Side:
    return side(*(measured(**{n.replace(".", "__"): v for n, v in run.items()}) for run in runs))


@given(SIDES, SIDES, st.randoms(use_true_random=False))
def test_order_changes_nothing(before: list[dict[str, Value]], after: list[dict[str, Value]], dice: object) -> None:
    found = facts.changes(built(before), built(after))
    for runs in (before, after):
        dice.shuffle(runs)  # type: ignore[attr-defined]
        for i, run in enumerate(runs):
            items = list(run.items())
            dice.shuffle(items)  # type: ignore[attr-defined]
            runs[i] = dict(items)
    assert [c.fact for c in facts.changes(built(before), built(after))] == [c.fact for c in found]


@given(SIDES, SIDES)
def test_swapped_sides_change_in_the_same_facts(before: list[dict[str, Value]], after: list[dict[str, Value]]) -> None:
    a, b = built(before), built(after)
    there, back = facts.changes(a, b), facts.changes(b, a)
    assert [(c.fact, c.varies) for c in there] == [(c.fact, c.varies) for c in back]
    assert [repr((c.before, c.after)) for c in there] == [repr((c.after, c.before)) for c in back]


@given(SIDES)
def test_a_side_does_not_differ_from_itself(runs: list[dict[str, Value]]) -> None:
    assert facts.changes(built(runs), built(runs)) == ()
