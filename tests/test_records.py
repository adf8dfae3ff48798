"""Records survive the trip through JSON, and a later writer's extra fields are passed over."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.records import (
    EVENTS,
    Compile,
    Eval,
    Fingerprint,
    Interval,
    Result,
    RunSpec,
    Step,
    Summary,
    digest,
    event_from_json,
    event_to_json,
)

numbers = st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(max_size=20)
steps = st.builds(
    Step,
    t=numbers,
    step=st.integers(1),
    role=texts,
    device=texts,
    seconds=numbers,
    tokens=st.integers(0),
    padding=st.integers(0),
    phases=st.dictionaries(texts, numbers),
    metrics=st.dictionaries(texts, numbers),
)
evals = st.builds(
    Eval, t=numbers, name=texts, metrics=st.dictionaries(texts, numbers), lossless=st.none() | st.booleans()
)
compiles = st.builds(Compile, t=numbers, name=texts, seconds=numbers, hits=st.integers(0), reason=texts)


@given(steps | evals | compiles)
def test_an_event_comes_back_from_its_line(event: Step | Eval | Compile) -> None:
    assert event_from_json(json.loads(json.dumps(event_to_json(event)))) == event


@pytest.mark.parametrize("kind", sorted(EVENTS))
def test_fields_of_a_later_version_are_passed_over(kind: str) -> None:
    line = {
        "kind": kind,
        "t": 1.0,
        "pid": 2,
        "name": "n",
        "seconds": 0.5,
        "step": 3,
        "role": "drafter",
        "device": "cpu",
    }
    line |= {"tokens": 4, "path": "p", "text": "x", "from_the_future": [1]}
    event = event_from_json(line)
    assert event is not None
    assert (event.kind, event.t) == (kind, 1.0)


def test_a_kind_of_a_later_version_is_no_event() -> None:
    assert event_from_json({"kind": "hologram", "t": 0.0}) is None


def test_spec_and_result_survive_json() -> None:
    spec = RunSpec(
        "tiny", "cpu", ("python", "-m", "x"), {"train.lr": 1e-3}, {"train.lr": "workload"}, devices=("drafter:cpu",)
    )
    assert RunSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec
    result = Result("finished", 0, summary=Summary(steps=3, throughput_tok_s=Interval(2.0, 1.0, 3.0)))
    assert Result.from_json(json.loads(json.dumps(result.to_json()))) == result


def test_the_spec_id_is_what_was_asked_and_nothing_else() -> None:
    spec = RunSpec("tiny", "cpu", ("python",), {"a": 1, "b": 2})
    assert spec.id == RunSpec("tiny", "cpu", ("python",), {"b": 2, "a": 1}).id
    assert spec.id != RunSpec("tiny", "cpu", ("python",), {"a": 1, "b": 3}).id


def test_the_fingerprint_digest_is_the_place_and_not_its_load() -> None:
    here = Fingerprint({"environment.package.torch": "2.13.0+cpu", "state.load.1m": 0.1, "context.hostname": "a"})
    busy = Fingerprint({"environment.package.torch": "2.13.0+cpu", "state.load.1m": 9.9, "context.hostname": "b"})
    other = Fingerprint({"environment.package.torch": "2.14.1", "state.load.1m": 0.1, "context.hostname": "a"})
    assert here.digest == busy.digest != other.digest


def test_a_digest_does_not_depend_on_the_order_of_keys() -> None:
    assert digest({"a": 1, "b": [1, 2]}) == digest({"b": [1, 2], "a": 1})
    # sha256 from a tool that is not ours: printf '{"a":1}' | sha256sum
    assert digest({"a": 1}) == "015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862"
