"""Is it the same work: each of the four answers, its reasons in plain words, and what a fair pair would be."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace

import pytest

from harness.comparison import Measured, Side, Steady
from harness.explain.comparing import facts
from harness.explain.comparing.comparable import Compared, compare
from harness.explain.comparing.normalised import attention_pairs
from harness.records import IMPORTED, Interval, Result, Run, RunSpec, Value

WORK: Mapping[str, Value] = {
    "workload.data.sequences": 902_000,
    "workload.data.digest": "a" * 64,
    "workload.data.length": 3072,
    "workload.model.heads": 16,
    "workload.model.layers": 5,
    "workload.model.block_size": 16,
    "workload.model.parameters": 1_000,
    "workload.train.anchors": 512,
    "workload.train.batch": 4,
    "workload.train.steps": 1000,
    "workload.train.seed": 0,
    "environment.gpu.0.name": "NVIDIA RTX PRO 6000",
    "environment.lock": "b" * 64,
    "environment.container": "none",
    "context.host": "box",
}
CONFIG = {name.removeprefix("workload."): value for name, value in WORK.items() if name.startswith("workload.")}


def run(name: str, facts: Mapping[str, Value] = WORK, start: float = 0.0, recipe: str = "qwen") -> Measured:
    steady = Steady("drafter", 100, 1.0, 20_000, 0, {"forward": 0.4, "backward": 0.6}, Interval(2e4, 2e4, 2e4))
    result = Result("finished", 0, started_at=start, ended_at=start + 100)
    return Measured(Run(name, "", RunSpec(recipe, "cu128", (), CONFIG), result, None, None, None), facts, steady=steady)


def compared(after: Mapping[str, Value], before: Mapping[str, Value] = WORK) -> Compared:
    """A run as before, and one an hour later with ``after`` changed; None takes a fact away."""
    changed = {name: value for name, value in {**before, **after}.items() if value is not None}
    a, b = Side("good", (run("good", before),)), Side("now", (run("now", changed, start=3600),))
    return compare(a, b, facts.changes(a, b))


def test_the_same_work() -> None:
    assert compared({"environment.package.torch": "2.12", "execution.threads": 3}) == replace(
        compared({}), comparability="COMPARABLE", reasons=()
    )


def test_the_seeds_pair_is_different_work_in_plain_words() -> None:
    """902 K samples and balanced heads against 1.1 M and full query heads: 21.5 against 12.8 Ktok/s was none."""
    before: dict[str, Value] = {**WORK, "workload.model.heads": "balanced"}
    after: dict[str, Value] = {
        "workload.data.sequences": 1_100_000,
        "workload.data.digest": "c" * 64,
        "workload.model.heads": "full",
    }
    found = compared(after, before)
    assert found.comparability == "NOT_COMPARABLE"
    assert found.reasons == ("the data: 902,000 samples against 1,100,000", "the query heads: balanced against full")
    assert found.fair_pair == (
        "a fair pair would be good against now run again with the same work: "
        "harness rerun now data.sequences=902000 model.heads=balanced"
    )


def test_a_command_that_is_offered_can_be_pasted() -> None:
    """Whatever the setting holds: a shell reads it back as it was."""
    text = "a 'b' $HOME; rm \"c\" (d)"
    found = compared({"workload.model.heads": "full"}, {**WORK, "workload.model.heads": text})
    assert shlex.split(found.fair_pair.partition("same work: ")[2])[2:] == ["now", f"model.heads={text}"]


def test_another_program_is_offered_in_words_and_not_as_a_command() -> None:
    """What a recipe does not take, as the words of a command, nobody can paste."""
    word = "workload.command"
    a = Side("good", (run("good", {**WORK, word: f"python -c print('{'x' * 500}')"}, recipe=""),))
    b = Side("now", (run("now", {**WORK, word: "python t.py"}, 3600, recipe=""),))
    found = compare(a, b, facts.changes(a, b)).fair_pair
    assert "harness" not in found
    assert f"that of good: command python -c print('{'x' * 61}" in found
    assert len(found) < 250


def test_an_import_is_not_offered_to_be_run_again() -> None:
    a = Side("good", (run("good"),))
    b = Side("log", (run("log", {**WORK, "workload.data.sequences": 5, IMPORTED: "mlflow"}, 3600),))
    found = compare(a, b, facts.changes(a, b)).fair_pair
    assert found.endswith("that of good: harness run qwen data.sequences=902000")


def test_what_no_recipe_runs_is_told_in_words() -> None:
    a = Side("log", (run("log", recipe=""),))
    b = Side("now", (run("now", {**WORK, "workload.data.sequences": 5}, 3600, recipe=""),))
    found = compare(a, b, facts.changes(a, b))
    assert found.fair_pair.endswith("that of log: data.sequences 902,000")


@pytest.mark.parametrize(
    "fact",
    ["workload.train.steps", "workload.train.seed", "workload.train.lr", "workload.seed", "workload.eval.prompts"],
)
def test_what_changes_no_cost_is_a_remark(fact: str) -> None:
    found = compared({fact: 7}, {**WORK, fact: 3})
    assert found.comparability == "COMPARABLE"
    assert found.notes == (f"different, and no other work: {fact.removeprefix('workload.')} 3 against 7",)


def test_a_workload_fact_that_nobody_listed_is_different_work() -> None:
    assert (
        compared({"workload.model.new_idea": 2}, {**WORK, "workload.model.new_idea": 1}).comparability
        == "NOT_COMPARABLE"
    )


def test_what_follows_from_a_change_is_not_a_reason_of_its_own() -> None:
    found = compared({"workload.model.heads": 32, "workload.model.parameters": 2_000})
    assert found.reasons == ("the query heads: 16 against 32",)


def test_other_data_under_the_same_settings_is_other_data() -> None:
    found = compared({"workload.data.digest": "e" * 64})
    assert found.comparability == "NOT_COMPARABLE"
    assert found.reasons == ("the data (their digests): aaaaaaaaaaaa against eeeeeeeeeeee",)


def test_data_drawn_with_another_seed_are_the_same_work() -> None:
    found = compared({"workload.data.digest": "e" * 64, "workload.data.seed": 1}, {**WORK, "workload.data.seed": 0})
    assert found.comparability == "COMPARABLE"


def test_what_a_side_did_not_record_is_unknown() -> None:
    found = compared({"workload.train.batch": None, "workload.data.length": None})
    assert found.comparability == "UNKNOWN"
    assert found.reasons == ("now did not record data.length, train.batch",)


def test_an_imported_log_that_knows_nothing_of_its_work() -> None:
    a, b = Side("log", (run("log", {}),)), Side("log2", (run("log2", {}, 3600),))
    assert compare(a, b, ()).comparability == "UNKNOWN"


def test_what_is_known_to_differ_outweighs_what_is_unknown() -> None:
    found = compared({"workload.train.batch": None, "workload.model.heads": 32})
    assert found.comparability == "NOT_COMPARABLE"
    assert len(found.reasons) == 2


def test_what_the_settings_determine_is_not_unknown() -> None:
    """A run that failed before it counted its parameters has those that its settings make."""
    assert compared({"workload.model.parameters": None}).comparability == "COMPARABLE"


@pytest.mark.parametrize(
    ("fact", "value", "words"),
    [
        ("environment.gpu.0.name", "NVIDIA H100", "another kind of GPU"),
        ("environment.cpu.model", "AMD EPYC 9654", "another processor"),
        ("context.host", "box-2", "another machine"),
    ],
)
def test_another_machine_confounds(fact: str, value: str, words: str) -> None:
    found = compared({fact: value}, {"environment.cpu.model": "Intel Xeon", **WORK})
    assert found.comparability == "CONFOUNDED"
    assert words in found.reasons[0]
    assert value in found.reasons[0]


def test_the_name_of_a_container_is_no_machine() -> None:
    contained = {**WORK, "environment.container": "docker"}
    assert compared({"context.host": "f00dcafe"}, contained).comparability == "COMPARABLE"


@pytest.mark.parametrize(("start", "expected"), [(99.0, "CONFOUNDED"), (101.0, "COMPARABLE")])
def test_runs_at_the_same_time_on_one_machine_confound(start: float, expected: str) -> None:
    a, b = Side("a", (run("a"),)), Side("b", (run("b", start=start),))
    assert compare(a, b, ()).comparability == expected


def test_runs_at_the_same_time_on_two_machines_do_not() -> None:
    a, b = (
        Side("a", (run("a"),)),
        Side("b", (run("b", {**WORK, "environment.container": "docker", "context.host": "2"}),)),
    )
    assert not any("same time" in reason for reason in compare(a, b, ()).reasons)


def test_a_side_that_mixes_environments_confounds() -> None:
    mixed = Side("mixed", (run("a"), run("b", {**WORK, "environment.lock": "c" * 64}, 200)))
    found = compare(mixed, Side("now", (run("now", start=400),)), ())
    assert found.comparability == "CONFOUNDED"
    assert found.reasons == ("the runs of mixed are not of one environment: they differ in lock",)


def test_a_side_that_mixes_work_is_not_comparable() -> None:
    mixed = Side("mixed", (run("a"), run("b", {**WORK, "workload.train.batch": 8}, 200)))
    found = compare(mixed, Side("now", (run("now", start=400),)), ())
    assert found.comparability == "NOT_COMPARABLE"
    assert found.reasons == ("the runs of mixed did different work: train.batch (4 and 8)",)


def test_tokens_and_steps_are_not_compared() -> None:
    a, b = Side("a", (run("a"),)), Side("b", (replace(run("b", start=400), unit="steps"),))
    found = compare(a, b, ())
    assert found.comparability == "NOT_COMPARABLE"
    assert found.reasons == ("the throughput counts tokens on one side and steps on the other",)
    assert found.normalised == ()


def test_normalised_figures_by_hand() -> None:
    """20,000 tokens in 1 s: 50 us each; 5 layers x 16 heads x 8,192 queries x 11,264 keys over 3,072 tokens."""
    figures = {name: (before, after) for name, before, after in compared({"workload.model.heads": 32}).normalised}
    assert figures["useful tokens a second"] == pytest.approx((20_000, 20_000))
    assert figures["microseconds a useful token"] == pytest.approx((50, 50))
    assert figures["microseconds a useful token in backward"] == pytest.approx((30, 30))
    pairs = 5 * 16 * (512 * 16) * (3072 + 512 * 16) / 3072
    one = 50_000 / pairs
    assert figures["nanoseconds an attention pair, all of forward and backward"] == pytest.approx((one, one / 2))


@pytest.mark.parametrize("fact", ["model.heads", "model.layers", "data.length", "train.anchors", "model.block_size"])
def test_no_attention_pairs_where_a_size_is_not_known(fact: str) -> None:
    assert attention_pairs(WORK)
    assert attention_pairs({name: v for name, v in WORK.items() if name != f"workload.{fact}"}) is None
    assert attention_pairs({**WORK, f"workload.{fact}": "balanced"}) is None


def test_heads_as_the_target_has_them() -> None:
    tiny = {**WORK, "workload.model.heads": 0, "workload.target.kind": "tiny", "workload.target.heads": 4}
    assert attention_pairs(tiny) == pytest.approx(attention_pairs({**WORK, "workload.model.heads": 4}))
    assert attention_pairs({**tiny, "workload.target.kind": "qwen3.6-27b"}) is None
