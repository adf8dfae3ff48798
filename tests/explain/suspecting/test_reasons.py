"""What is said of a suspect: a sentence both ways, its figures, and the command that would confirm it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import pytest

from harness.comparison import Change
from harness.explain.suspecting.reasons import Figures, confirmed_by, filled, words_of
from harness.explain.suspecting.rules import rules
from harness.records import Value
from tests.explain.suspecting.asked import COSTS, Told, ask, side
from tests.explain.suspecting.troubles import CASES, GPU, Case, told


def test_words_are_of_suspicion_and_never_of_cause() -> None:
    for case in CASES.values():
        for suspect in case.asked().suspects:
            assert suspect.reason
            assert not re.search(
                r"\bcaus|\bbecause|[{}]", " ".join((suspect.reason, suspect.confirm, *suspect.evidence))
            )


def test_what_would_confirm_it_is_a_command_where_there_is_one() -> None:
    changed: dict[str, tuple[Value, Value]] = {"execution.slow.forward": (0.0, 0.005)}
    found = ask(Told(told(0, changed)), Told(told(1, changed), {"forward": 1.5}))
    assert found.suspects[0].confirm == "harness rerun b0 slow.forward=0.0"
    package: dict[str, tuple[Value, Value]] = {"environment.package.torch": ("2.10.0", "2.11.0")}
    found = ask(Told(told(0, package)), Told(told(1, package), {"forward": 1.5}))
    assert found.suspects[0].confirm.startswith("harness rerun a0 ")


def test_no_command_has_a_hole_in_it() -> None:
    for case in CASES.values():
        for faster in (False, True):
            for suspect in case.asked(faster).suspects:
                assert not re.search(r"=( |$)|\(\)|None|  ", f"{suspect.confirm} {suspect.reason}."), suspect


def test_evidence_has_the_figures() -> None:
    found = CASES["toy's switch"].asked()
    assert found.suspects[0].evidence == ("forward: 14.0 ms per Ktok before, 21.0 after",)


@pytest.mark.parametrize(
    ("fact", "pair", "longer", "first", "slower", "faster"),
    [
        (
            "execution.slow.forward", (0.0, 0.01), {"forward": 1.5}, {"forward": 9.0},
            "slow.forward went from 0 to 0.01, which slows forward",
            "slow.forward went from 0.01 to 0, which speeds up forward",
        ),
        (
            "execution.cold_start", (1.2, 2.5), {}, {"compile": 4.0},
            "cold_start went from 1.2 to 2.5, which slows compiling in the first step",
            "cold_start went from 2.5 to 1.2, which speeds up compiling in the first step",
        ),
        (
            "execution.seconds", (0.01, 0.02), dict.fromkeys(COSTS, 2.0), {},
            "seconds went from 0.01 to 0.02, which slows each phase",
            "seconds went from 0.02 to 0.01, which speeds up each phase",
        ),
        (
            "state.cache.shared", (False, True), {}, {"compile": 4.0},
            "another run used the compile cache at the same time",
            "another run used the compile cache at the same time as the earlier run, and none does now",
        ),
        (
            "environment.variable.CUDA_LAUNCH_BLOCKING", (None, "1"), dict.fromkeys(GPU, 1.4), {},
            "CUDA_LAUNCH_BLOCKING is 1, before: not set", "CUDA_LAUNCH_BLOCKING is not set, before: 1",
        ),
    ],
)  # fmt: skip
def test_a_reason_is_a_sentence_both_ways(
    fact: str,
    pair: tuple[Value, Value],
    longer: Mapping[str, float],
    first: Mapping[str, float],
    slower: str,
    faster: str,
) -> None:
    case = Case("", {fact: pair}, longer, first)
    assert case.asked().suspects[0].reason == slower
    assert case.asked(faster=True).suspects[0].reason == faster


def test_of_a_side_that_varies_the_run_that_shows_it_is_run_again_as_one_of_the_other_side_was() -> None:
    plain, slow = (Told({"execution.slow.forward": seconds}) for seconds in (0.0, 0.01))
    change = Change("execution.slow.forward", 0.0, 0.01, varies=True)

    def confirm(change: Change, before: tuple[Told, ...], after: tuple[Told, ...]) -> str:
        a, b = side("a", *before), side("b", *after)
        return confirmed_by(("harness rerun {run} {key}={was}",), change, a, b, Figures.of(a, b, ()))

    assert confirm(change, (plain,), (plain, slow)) == "harness rerun b1 slow.forward=0.0"
    median = replace(change, before=0.005, after=0.02)
    assert confirm(median, (plain, slow), (Told({"execution.slow.forward": 0.02}),)) == (
        "harness rerun b0 with slow.forward as it was (0.005)"
    )


def test_a_figure_that_did_not_move_is_no_reason() -> None:
    """What is no padding on either side does not say why other data takes longer."""
    change = Change("workload.data.samples", 902_000, 1_100_000)
    templates = next(rule.reason for rule in rules() if rule.id == "padding")

    def reason(before: float, after: float) -> str:
        a, b = (side(name, Told({"observed.padding_share": p})) for name, p in (("a", before), ("b", after)))
        return filled(templates, words_of(change), Figures.of(a, b, ()))

    went = "data.samples went from 902,000 to 1,100,000"
    assert reason(0.0, 0.2) == f"20 % of what was computed is padding, before: 0 % ({went})"
    assert reason(0.2, 0.2) == f"{went}: it decides how much of what is computed is padding"
