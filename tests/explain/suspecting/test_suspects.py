"""Which changes are suspected: a literal case for each kind of trouble, among changes that did no harm."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.explain.comparing import facts
from harness.records import Value
from tests.explain.suspecting.asked import Told, ask, side
from tests.explain.suspecting.troubles import CASES, GPU, Case, told


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_each_kind_comes_first_and_says_why(case: Case) -> None:
    first = case.asked().suspects[0]
    changed = {fact for fact, pair in case.changed.items() if pair[0] != pair[1]}
    assert first.rule == case.rule
    assert first.change.fact in changed
    assert case.says in first.reason
    assert first.rank == 1
    assert first.phases
    assert first.evidence


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_got_faster_is_the_same_with_the_signs_turned(case: Case) -> None:
    slower, faster = case.asked(), case.asked(faster=True)
    assert [(s.rule, s.change.fact) for s in faster.suspects] == [(s.rule, s.change.fact) for s in slower.suspects]
    assert faster.suspects[0].change.after == slower.suspects[0].change.before


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_harmless_changes_are_listed_and_not_suspected_beside_it(case: Case) -> None:
    found = case.asked()
    named = {fact for s in found.suspects for fact in (s.change.fact, *(c.fact for c in s.also))}
    assert not named & {"environment.package.certifi", "environment.package.rich", "workload.seed"}
    assert {"environment.package.certifi", "workload.seed"} <= {c.fact for c in found.also_changed}
    assert not named & {c.fact for c in found.also_changed}


def test_a_change_is_one_suspect_whatever_rules_name_it() -> None:
    """A clock that fell on all cards fell on the slowest too; memory that dense attention takes is no neighbour's."""
    for case in CASES.values():
        found = case.asked()
        named = [c.fact for s in found.suspects for c in (s.change, *s.also)]
        assert len({s.change.fact for s in found.suspects}) == len(found.suspects)
        assert not {s.change.fact for s in found.suspects[1:]} & {c.fact for c in found.suspects[0].also}, named


def test_no_difference_names_no_suspect() -> None:
    changed = {fact: pair for case in CASES.values() for fact, pair in case.changed.items()}
    found = ask(Told(told(0, changed)), Told(told(1, changed)))
    assert found.suspects == ()
    assert found.unexplained == ()
    assert len(found.also_changed) > 40


def test_one_change_on_eight_cards_is_one_suspect() -> None:
    limits: dict[str, tuple[Value, Value]] = {f"environment.gpu.{n}.power.limit_w": (600.0, 400.0) for n in range(8)}
    found = ask(Told(told(0, limits)), Told(told(1, limits), dict.fromkeys(GPU, 1.3)))
    assert len([s for s in found.suspects if s.rule == "gpu-clock"]) == 1
    assert len(found.suspects[0].also) == 7


def test_what_says_the_same_thing_stands_beside_it() -> None:
    found = CASES["cold cache"].asked()
    (suspect,) = found.suspects
    assert suspect.change.fact == "state.cache.start"
    assert {c.fact for c in suspect.also} == {
        "state.cache.entries", "state.cache.bytes", "observed.cache_start", "observed.compile_s",
    }  # fmt: skip


@given(st.sampled_from(list(CASES.values())), st.randoms(use_true_random=False))
def test_the_order_of_facts_changes_nothing(case: Case, dice: object) -> None:
    before, after = (
        Told(told(0, case.changed)),
        Told(told(1, case.changed), case.longer, case.first, case.new, case.padding),
    )
    changes = list(facts.changes(side("a", before), side("b", after)))
    expected = ask(before, after, changes)
    dice.shuffle(changes)  # type: ignore[attr-defined]
    found = ask(before, after, changes)
    assert [(s.change, s.rank, s.score) for s in found.suspects] == [
        (s.change, s.rank, s.score) for s in expected.suspects
    ]
    assert {c.fact for c in found.also_changed} == {c.fact for c in expected.also_changed}
