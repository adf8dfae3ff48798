"""A good side against a crashed one: the first sentence, the suspects, and what a warm cache may have hidden."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from harness.comparison import Change, Measured, Side
from harness.explain.comparing import facts
from harness.explain.failing.crashed import Crash, crashed
from harness.explain.failing.failures import recognise
from harness.records import CacheState, Result, Value
from tests.explain.failing.logbook import FIXTURES, a_run, failed, read

WARM = CacheState(353_000_000, 285)
COLD = CacheState(19_000_000, 62)
BY_NAME = {path.stem: path for path in FIXTURES}


def good(cache: CacheState | None = WARM, given: Mapping[str, Value] | None = None) -> Measured:
    return Measured(a_run(Result("finished", 0), before=cache, run_id="a"), given or {})


def bad(
    signature: str = "fx-tracing-race", cache: CacheState | None = COLD, given: Mapping[str, Value] | None = None
) -> Measured:
    """A crashed run: how it failed is recognised from the fixture, and nothing of it is made up here."""
    evidence, _ = read(BY_NAME[signature])
    run = replace(evidence.run, cache_before=cache)
    return Measured(run, given or {}, failure=recognise(evidence))


def compared(before: Measured | Side, after: Measured | Side) -> Crash:
    first = before if isinstance(before, Side) else Side("A", (before,))
    second = after if isinstance(after, Side) else Side("B", (after,))
    return crashed(first, second, facts.changes(first, second))


def cache_facts(state: CacheState, start: str) -> dict[str, Value]:
    return {"state.cache.start": start, "state.cache.bytes": state.bytes, "state.cache.entries": state.entries}


def test_the_week_that_the_seeds_lost() -> None:
    """353 MB in 285 entries before the clean-up, 19 MB in 62 after it, and the race in three threads."""
    same: dict[str, Value] = {"environment.package.torch": "2.11.0+cu128", "context.time": "t"}
    crash = compared(
        good(given={**same, "environment.package.sglang": "0.5.5", **cache_facts(WARM, "warm")}),
        bad(given={**same, "context.time": "u", **cache_facts(COLD, "cold")}),
    )
    sentence = crash.sentence
    assert sentence.startswith("B failed: torch refused to run a compiled function in 3 threads")
    assert "a race between threads" in sentence
    assert "the last thing that happened: compiling flex_attention, before the first step" in sentence
    assert "since A, which went well" in sentence
    assert "from warm (353 MB in 285 entries) to cold (19.0 MB in 62 entries)" in sentence
    assert sentence.endswith("and the warm cache may have hidden the fault")
    (suspect,) = crash.suspects  # sglang is gone, and cannot race
    assert suspect.change.fact.startswith("state.cache.")
    assert {change.fact for change in (suspect.change, *suspect.also)} == set(cache_facts(WARM, ""))
    assert suspect.confirm == "harness rerun a --cold"
    assert "126024" in suspect.evidence[0]
    assert any("does not come each time" in note for note in crash.notes)
    assert any("does not mend it" in note for note in crash.notes)


def test_what_the_failure_points_at_comes_first_and_the_rest_not_at_all() -> None:
    before = {"environment.package.numpy": "2.0", "environment.package.torch": "2.13.0", "execution.compile": "none"}
    after = {"environment.package.numpy": "2.1", "environment.package.torch": "2.11.0", "execution.compile": "inductor"}
    crash = compared(good(COLD, before), bad(given=after))
    assert [s.change.fact for s in crash.suspects] == ["environment.package.torch", "execution.compile"]
    assert [s.rank for s in crash.suspects] == [1, 2]
    assert crash.suspects[0].score > crash.suspects[1].score > 0
    assert crash.suspects[0].confirm == "harness doctor cu130"
    assert "torch went from 2.13.0 to 2.11.0 and compile went from none to inductor" in crash.sentence
    assert "cache" not in crash.sentence
    assert "numpy" not in crash.sentence


def test_the_sides_may_come_in_either_order() -> None:
    changed: dict[str, Value] = {"environment.package.torch": "2.11.0"}
    crash = compared(bad(given=changed), good(given={"environment.package.torch": "2.13.0"}))
    assert crash.sentence.startswith("A failed: ")
    assert "B went well, after torch went from 2.11.0 to 2.13.0" in crash.sentence
    assert "from cold (19.0 MB in 62 entries) to warm (353 MB in 285 entries)" in crash.sentence
    assert "may have hidden" in crash.sentence
    assert {s.change.fact for s in crash.suspects} == {"state.cache.bytes", "environment.package.torch"}


@pytest.mark.parametrize(
    ("cache_before", "cache_after"), [(WARM, WARM), (COLD, WARM), (None, COLD), (WARM, None), (CacheState(0, 0), COLD)]
)
def test_a_cache_that_did_not_go_cold_hides_nothing(
    cache_before: CacheState | None, cache_after: CacheState | None
) -> None:
    crash = compared(good(cache_before), bad(cache=cache_after))
    assert "hidden" not in crash.sentence
    assert crash.suspects == ()
    assert "no change that was recorded is known to bring it" in crash.sentence
    assert any("Nothing that is known to bring this failure" in note for note in crash.notes)


@pytest.mark.parametrize("signature", ["disk-full", "file-missing", "nan-loss", "python-exception"])
def test_a_failure_that_no_cache_can_hide_says_nothing_of_one(signature: str) -> None:
    assert "hidden" not in compared(good(), bad(signature)).sentence


@pytest.mark.parametrize("signature", ["segfault-compiling", "segfault", "no-compiler", "dense-attention", "unknown"])
def test_a_failure_of_compiling_and_one_that_nobody_knows_may_have_been_hidden(signature: str) -> None:
    crash = compared(good(), bad(signature))
    assert crash.sentence.endswith("and the warm cache may have hidden the fault")
    assert crash.suspects[0].change == Change("state.cache.bytes", WARM.bytes, COLD.bytes)


def test_a_cache_that_was_filled_brought_no_race() -> None:
    crash = compared(good(COLD, cache_facts(COLD, "cold")), bad(cache=WARM, given=cache_facts(WARM, "warm")))
    assert crash.suspects == ()


def test_a_setting_is_set_back_in_the_crashed_run() -> None:
    first, second = good(given={"workload.train.batch": 4}), bad("cuda-oom", given={"workload.train.batch": 64})
    spec = replace(second.run.spec, recipe="tiny", config={"train.batch": 64})
    crash = compared(first, replace(second, run=replace(second.run, spec=spec)))
    assert crash.suspects[0].confirm == "harness rerun b train.batch=4"
    assert "memory grows with the batch" in crash.suspects[0].reason


def test_of_another_environment_only_the_likeliest_are_suspected() -> None:
    packages = [
        {f"environment.package.{name}": version for name in ("torch", *(f"p{n}" for n in range(50)))}
        for version in ("1", "2")
    ]
    crash = compared(good(given=packages[0]), bad("library-missing", given=packages[1]))
    assert crash.suspects[0].change.fact == "environment.package.torch"
    assert [suspect.rank for suspect in crash.suspects] == list(range(1, 9))
    assert crash.sentence.count(" went from ") == 3


def test_the_missing_library_names_the_doctor() -> None:
    before = {"environment.package.nvidia-cudnn-cu13": "9.20.0.48"}
    crash = compared(good(given=before), bad("library-missing", given={"environment.package.torch": "2.11.0"}))
    assert "libcudnn.so.9 is missing" in crash.sentence
    assert crash.suspects[0].change == Change(
        "environment.package.nvidia-cudnn-cu13", "9.20.0.48", None, missing="after"
    )
    assert any("harness doctor cu130 --fix" in note for note in crash.notes)


def test_of_several_runs_the_commonest_failure_is_told_and_the_others_named() -> None:
    side = Side("@new", (good(), bad(), bad("segfault"), bad()))
    crash = compared(Side("@old", (good(), good())), side)
    assert crash.sentence.startswith("3 of the 4 runs of @new failed: torch refused to run a compiled function")
    assert any("Other runs of @new failed otherwise: segfault." in note for note in crash.notes)


def test_two_sides_that_failed_alike_have_no_suspect() -> None:
    crash = compared(bad(given={"environment.package.torch": "1"}), bad(given={"environment.package.torch": "2"}))
    assert crash.sentence.startswith("both sides failed, and in the same way: torch refused")
    assert crash.suspects == ()
    assert any("126024" in note for note in crash.notes)


def test_two_sides_that_failed_otherwise_are_both_told() -> None:
    crash = compared(
        bad("cuda-oom", given={"code.commit": "a" * 40}), bad("disk-full", given={"code.commit": "b" * 40})
    )
    assert crash.sentence.startswith("both sides failed, and not in the same way: A failed: the GPU's memory ran out")
    assert "B failed: the disk is full" in crash.sentence
    assert "commit went from aaaaaaaaaaaa to bbbbbbbbbbbb" in crash.sentence


def test_two_different_exceptions_are_not_the_same_failure() -> None:
    one = failed('Traceback (most recent call last):\n  File "t.py", line 1, in f\nKeyError: 1')
    two = failed('Traceback (most recent call last):\n  File "t.py", line 2, in f\nValueError: 2')
    sides = [Side(name, (Measured(e.run, {}, failure=recognise(e)),)) for name, e in (("A", one), ("B", two))]
    assert "not in the same way" in crashed(sides[0], sides[1], ()).sentence
    assert "in the same way: a Python exception" in crashed(sides[0], sides[0], ()).sentence


def test_two_sides_that_went_well_are_no_crash() -> None:
    with pytest.raises(ValueError, match="no run of either side failed"):
        compared(good(), good())


@pytest.mark.parametrize("signature", ["killed-for-memory", "killed-from-outside", "cuda-oom", "host-oom"])
def test_the_length_of_training_holds_no_memory(signature: str) -> None:
    before: dict[str, Value] = {"workload.steps": 150, "workload.seed": 0, "workload.vocabulary": 1000}
    after: dict[str, Value] = {"workload.steps": 800, "workload.seed": 1, "workload.vocabulary": 9000}
    crash = compared(good(given=before), bad(signature, given=after))
    assert [s.change.fact for s in crash.suspects] == ["workload.vocabulary"]
    assert "steps" not in crash.sentence.partition("since A")[2]


def test_the_length_of_training_is_not_named_where_nothing_else_changed_either() -> None:
    crash = compared(good(given={"workload.steps": 150}), bad("killed-from-outside", given={"workload.steps": 800}))
    assert crash.suspects == ()
    assert "no change that was recorded is known to bring it" in crash.sentence


def test_the_length_of_training_can_bring_what_is_no_matter_of_size() -> None:
    crash = compared(
        good(given={"workload.train.steps": 150}), bad("python-exception", given={"workload.train.steps": 800})
    )
    assert [s.change.fact for s in crash.suspects] == ["workload.train.steps"]


def test_what_one_side_did_not_record_is_no_change_in_the_sentence() -> None:
    libc: dict[str, Value] = {"state.loaded.libc.so.6": "system sha256:6b4a45352fd0"}
    both = compared(bad("cuda-oom", given=libc), bad("segfault"))
    assert "libc" not in both.sentence
    one = compared(good(given={**libc, "code.commit": "a" * 40}), bad("segfault", given={"code.commit": "b" * 40}))
    assert "libc" not in one.sentence
    assert "commit went from" in one.sentence


def test_a_variable_that_is_not_there_was_not_set_and_that_is_a_change() -> None:
    crash = compared(good(), bad("cuda-oom", given={"environment.variable.PYTORCH_CUDA_ALLOC_CONF": "x"}))
    assert "PYTORCH_CUDA_ALLOC_CONF went from not set to x" in crash.sentence
