"""Facts that a person or a tracker gives: their kinds are checked, and nothing else is known."""

from __future__ import annotations

import pytest

from harness.errors import UsageError
from harness.records import CacheState, Value
from harness.run.imported.facts import asked_for, cache_of, given, of_params


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("902000", 902_000),
        ("1.1e6", 1_100_000.0),
        ("-3", -3),
        ("true", True),
        ("False", False),
        ("balanced", "balanced"),
        ('"8"', "8"),
        ("007", "007"),
        ("902K", "902K"),
        ("NaN", "NaN"),
        ("[1, 2]", "[1, 2]"),
        ("a=b", "a=b"),
        ("two words", "two words"),
    ],
)
def test_a_value_is_what_it_looks_like(text: str, value: Value) -> None:
    (found,) = given([f"workload.x={text}"]).values()
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("workload.x", "write fact=value"),
        ("samples=3", "a fact begins with its kind, one of workload, execution, environment, code, state, context"),
        ("observed.dense_fallback=true", "say what ran instead, for example --set execution.attention.used=dense"),
        ("=3", "a fact begins with its kind"),
        ("workload=3", "is not a fact's name"),
        ("workload.=3", "is not a fact's name"),
        ("workload.a b=3", "is not a fact's name"),
        ("workload.a.=3", "is not a fact's name"),
        ("workload.x=", "leave it out instead"),
        ("workload.x=null", "leave it out instead"),
    ],
)
def test_what_is_no_fact_is_said_in_one_line(assignment: str, message: str) -> None:
    with pytest.raises(UsageError, match=r"^--set ") as raised:
        given([assignment])
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_workload_and_execution_facts_are_what_was_asked_for() -> None:
    spec = asked_for(given(["workload.data.samples=9", "execution.attention=flex", "state.cache.bytes=5"]))
    assert spec.config == {"data.samples": 9, "attention": "flex"}
    assert spec.kinds == {"data.samples": "workload", "attention": "execution"}
    assert spec.id == asked_for(given(["execution.attention=flex", "workload.data.samples=9"])).id


def test_a_cache_is_known_where_both_of_its_sizes_are() -> None:
    assert cache_of({"state.cache.bytes": 353e6, "state.cache.entries": 285}) == CacheState(353_000_000, 285)
    assert cache_of({"state.cache.bytes": 353e6}) is None
    assert cache_of({"state.cache.bytes": "much", "state.cache.entries": 3}) is None


def test_params_are_facts_where_their_kind_is_known_and_else_context() -> None:
    params = {
        "per_device_train_batch_size": "8",
        "model/hidden_size": "1024",
        "attn_implementation": "sdpa",
        "torch_compile": "True",
        "workload.data.samples": "902000",
        "my_own_switch": "on",
        "run name": "x",
        "resume_from_checkpoint": "None",
        "seq_len": "4096",
    }
    assert of_params(params, {"execution.my_own_switch": "off", "workload.seq_len": 2048}) == {
        "workload.per_device_train_batch_size": 8,
        "workload.model/hidden_size": 1024,
        "execution.attn_implementation": "sdpa",
        "execution.torch_compile": True,
        "workload.data.samples": 902_000,
        "context.param.run_name": "x",
    }
