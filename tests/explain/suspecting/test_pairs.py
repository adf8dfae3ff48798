"""The labelled pairs: each is what it says it is, so that a score over them is of the rules."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.pairs import gauges, write
from benchmarks.pairs.bases import base, with_spec
from benchmarks.pairs.harmless import HARMLESS, Harmless
from benchmarks.pairs.pair import HARMLESS_CHANGES, KINDS, NONE, Pair, fresh_seeds, least_visible, pair, seeds
from benchmarks.pairs.plan import Noise, Plan, cost
from benchmarks.pairs.series import draw
from benchmarks.pairs.ways import Way
from benchmarks.suspects import Score, main, rates, score
from harness.comparison import Change, Explanation, Judgement, Suspect
from harness.pin import gpus
from harness.pin.fingerprint import spec_facts
from harness.records import PHASES, Compile, Step, Value
from harness.run.folder import RunFolder
from harness.run.summary import summarise
from harness.run.telemetry import Machine, RunProcesses

WAYS = [(kind, way, name) for kind, ways in KINDS.items() for way in ways for name in way.bases]


def way_id(value: object) -> str:
    return value.name if isinstance(value, Way | Harmless) else str(value)


def quiet(plan: Plan) -> Plan:
    """The plan without luck: what is left is what it costs."""
    plan.noise = Noise(0, 0, 0, 0)
    return plan


def facts(plan: Plan) -> dict[str, Value]:
    plan = with_spec(plan)
    state: dict[str, Value] = {
        "state.cache.bytes": plan.cache_before.bytes,
        "state.swap.used_bytes": plan.gauges["swap"].value,
        "code.patch.sha256": plan.patch,
    }
    return {**spec_facts(plan.spec), **plan.facts, **plan.told, **state}


def changed_facts(good: Plan, bad: Plan) -> set[str]:
    before, after = facts(good.copy()), facts(bad.copy())
    return {name for name in {*before, *after} if before.get(name) != after.get(name)}


def drawn_cost(plan: Plan) -> float:
    """Seconds of wall time of a useful token after the first step, of steps that were drawn."""
    steps = [e for e in draw(quiet(plan), np.random.default_rng(0)).events if isinstance(e, Step) and e.tokens]
    begin = max(step.t for step in steps if step.step == 1)
    later = [step for step in steps if step.step > 1]
    return (max(step.t for step in later) - begin) / sum(step.tokens for step in later)


@pytest.mark.parametrize(("kind", "way", "name"), WAYS, ids=way_id)
def test_a_true_change_slows_as_much_as_it_says_and_has_a_label_that_is_true(kind: str, way: Way, name: str) -> None:
    dice = random.Random(f"{kind} {way.name} {name}")
    good = base(name, dice)
    good.steps = 200
    bad, size = good.copy(), (way.least * way.most) ** 0.5
    truth = way.apply(bad, size, dice)
    if way.first:
        first = [
            next(
                e.t for e in draw(quiet(p.copy()), np.random.default_rng(0)).events if isinstance(e, Step) and e.tokens
            )
            for p in (good, bad)
        ]
        assert first[1] / first[0] == pytest.approx(size, rel=0.08)
        assert cost(bad) == pytest.approx(cost(good))
    else:
        # Devices can only be given away whole: at least as slow, then.
        assert cost(bad) >= cost(good) * min(size, 1.4) * 0.999
        assert drawn_cost(bad.copy()) / drawn_cost(good.copy()) == pytest.approx(cost(bad) / cost(good), rel=0.08)
    changed = changed_facts(good, bad)
    recorded = [pattern for pattern in truth if not pattern.startswith(("observed.", "state.gpu.", "state.load."))]
    assert not recorded or any(fnmatchcase(fact, p) for fact in changed for p in recorded)
    unnamed = [f for f in changed if not any(fnmatchcase(f, p) for p in truth) and not f.startswith("context.")]
    assert all(_comes_along(fact) for fact in unnamed), unnamed


def _comes_along(fact: str) -> bool:
    """Facts that change because another one did, and say nothing by themselves."""
    return fact in ("workload.data.digest", "workload.model.kv_heads", "execution.attention.used", "code.patch.sha256",
                    "state.cache.bytes", "state.swap.used_bytes")  # fmt: skip


@pytest.mark.parametrize("change", HARMLESS, ids=way_id)
def test_a_harmless_change_changes_something_and_costs_nothing(change: Harmless) -> None:
    for name in change.bases:
        good = base(name, random.Random(1))
        bad = good.copy()
        change.apply(bad, random.Random(2))
        assert cost(bad) == pytest.approx(cost(good))
        assert bad.roles == good.roles
        assert (bad.tokens, bad.padding, bad.compiles, bad.pulses) == (
            good.tokens,
            good.padding,
            good.compiles,
            good.pulses,
        )
        assert changed_facts(good, bad) or bad.gauges != good.gauges


def test_the_halves_are_as_large_and_share_nothing() -> None:
    for kind in (*KINDS, NONE):
        dev, held = set(seeds(kind, "dev")), set(seeds(kind, "held"))
        assert len(dev) == len(held)
        assert not dev & held
        assert not (dev | held) & set(fresh_seeds(kind, 1000))
    assert 2 * sum(len(seeds(kind, "held")) for kind in KINDS) >= 320
    assert 2 * len(seeds(NONE, "held")) >= 100


def test_a_seed_gives_the_same_pair_and_another_one_another(tmp_path: Path) -> None:
    first, again, other = (pair("padding", seed, tmp_path / name) for name, seed in (("a", 6), ("b", 6), ("c", 14)))
    assert files(first) == files(again)
    assert (first.truth, first.size) == (again.truth, again.size)
    assert files(first) != files(other)


def files(of: Pair) -> list[tuple[str, bytes]]:
    names = ("events.jsonl", "fingerprint.json", "telemetry.jsonl", "spec.json")
    return [(f"{run.name}/{name}", (run / name).read_bytes()) for run in (*of.before, *of.after) for name in names]


@pytest.mark.parametrize("name", ["toy", "tiny", "box"])
def test_a_written_run_is_one_that_the_harness_reads(name: str, tmp_path: Path) -> None:
    plan = base(name, random.Random(3))
    plan.steps = 200
    path = write.write_run(plan, tmp_path, 1.79e9, np.random.default_rng(1), columns=True)
    folder = RunFolder(path)
    run, events = folder.load(), list(folder.events())
    assert run.result.status == "finished"
    assert run.result.summary == summarise(events, run.cache_before)
    assert run.fingerprint is not None
    assert run.fingerprint.facts["context.recipe"] == plan.spec.recipe
    steps = [event for event in events if isinstance(event, Step)]
    assert {step.role for step in steps} == set(plan.roles)
    for step in steps:
        assert sum(step.phases.values()) == pytest.approx(step.seconds, abs=1e-9)
        assert min(step.phases.values()) >= 0
        assert set(step.phases) <= set(PHASES)
    assert [event.t for event in events] == sorted(event.t for event in events)
    recorded = json.loads((path / "fingerprint.json").read_text("utf-8"))
    assert recorded["digest"] == run.fingerprint.digest
    assert (path / "steps.parquet").exists()


def test_the_queue_makes_the_faster_role_wait() -> None:
    plan = quiet(base("box", random.Random(0)))
    plan.steps = 200

    def waited(role: str) -> float:
        steps = [e for e in draw(plan, np.random.default_rng(0)).events if isinstance(e, Step) and e.step > 50]
        mine = [step for step in steps if step.role == role]
        return sum(s.phases["wait"] for s in mine) / sum(s.seconds for s in mine)

    plan.roles["target"].phases["forward"] *= 0.5
    assert waited("drafter") < 0.01
    assert waited("target") > 0.2
    plan.roles["target"].phases["forward"] *= 6
    assert waited("drafter") > 0.2
    assert waited("target") < 0.01


def test_devices_of_one_step_leave_it_together() -> None:
    plan = base("box", random.Random(0))
    plan.steps = 200
    steps = [e for e in draw(plan, np.random.default_rng(0)).events if isinstance(e, Step) and e.role == "drafter"]
    ends: dict[int, set[float]] = {}
    for step in steps:
        ends.setdefault(step.step, set()).add(step.t)
    assert all(len(found) == 1 for found in ends.values())


def test_compilations_lie_in_their_steps() -> None:
    plan = base("tiny", random.Random(0))
    events = draw(plan, np.random.default_rng(0)).events
    first = next(e for e in events if isinstance(e, Step))
    for compiled in (e for e in events if isinstance(e, Compile)):
        assert first.t - first.seconds <= compiled.t - compiled.seconds + 1e-9
        assert compiled.t <= first.t


def test_synthetic_facts_have_the_names_that_are_recorded_of_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: dict[str, Any] = {
        "nvmlDeviceGetCudaComputeCapability": (12, 0),
        "nvmlDeviceGetEccMode": (1, 1),
        "nvmlDeviceGetMigMode": (0, 0),
    }

    def ask(question: Callable[..., Any], *_: Any) -> Any:
        parts = ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetPciInfo")
        whole = SimpleNamespace(total=1, used=1, gpu=1, memory=1, busId="0")
        return answers.get(question.__name__, whole if question.__name__ in parts else 1)

    monkeypatch.setattr(gpus, "_ask", ask)
    card = gpus.Gpu(0, None)
    plan = base("box", random.Random(0))
    mine = {**plan.facts, **write._cards(plan, np.random.default_rng(0))}
    for kind, names in (("environment", card.constants()), ("context", card.names())):
        assert {n for n in mine if n.startswith(f"{kind}.gpu.0.") and ".link." not in n} == {
            f"{kind}.gpu.0.{name}" for name in names
        }
    state = {*card.state(), *card.link(), "processes"}
    assert {n for n in mine if n.startswith("state.gpu.0.")} == {f"state.gpu.0.{name}" for name in state}
    (line,) = list(gauges.lines(plan, draw(plan, np.random.default_rng(0)), np.random.default_rng(0)))[-1:]
    assert set(json.loads(line)["gpus"][0]) == {"index", *card.state()}


def test_telemetry_has_the_keys_of_the_sampler() -> None:
    plan = base("tiny", random.Random(0))
    lines = [
        json.loads(line) for line in gauges.lines(plan, draw(plan, np.random.default_rng(0)), np.random.default_rng(0))
    ]
    real: dict[str, dict[str, float]] = {"disk": {"read_bytes_s": 0, "write_bytes_s": 0}, **Machine().sample()}
    real["run"] = RunProcesses(1).sample()
    for line in lines:
        assert {key: set(line[key]) for key in real} == {key: set(values) for key, values in real.items()}
    assert all(later["t"] > earlier["t"] for earlier, later in pairwise(lines))


def test_fewer_runs_must_show_more() -> None:
    plan = base("tiny", random.Random(0))
    plan.noise = Noise(0.01, 0.02, 0.5, 0)
    alone, with_history, many = least_visible(plan, 1, 0), least_visible(plan, 1, 4), least_visible(plan, 4, 0)
    assert alone > with_history > many > 1.02


def test_ten_harmless_changes_beside_the_true_ones(tmp_path: Path) -> None:
    found = pair("shape", 8, tmp_path)
    before, after = (
        json.loads((side[0] / "fingerprint.json").read_text("utf-8"))["facts"] for side in (found.before, found.after)
    )
    changed = {n for n in {*before, *after} if before.get(n) != after.get(n)}
    drifting = {n for n in changed if n.startswith(("state.load.", "state.memory.", "context.time", "state.gpu."))}
    assert len(changed - drifting) >= HARMLESS_CHANGES


# --- the score -------------------------------------------------------------------------------------------


def explained(*named: str) -> Explanation:
    nothing = Judgement("throughput", "UNKNOWN", "none")
    suspects = tuple(
        Suspect(Change(fact, 1, 2), "rule", "reason", rank, 1.0, also=(Change("code.commit", 1, 2),))
        for rank, fact in enumerate(named, 1)
    )
    return Explanation("", "COMPARABLE", (), "UNKNOWN", nothing, nothing, suspects=suspects)


def truth(*patterns: tuple[str, ...]) -> Pair:
    return Pair("patch", 0, "", "toy", (), (), (), patterns, synthetic=False)


def test_a_rank_is_that_of_the_fact_that_a_suspect_names() -> None:
    both = truth(("code.*",), ("environment.gpu.*.power.limit_w", "observed.gpu.*clock*"))
    found = score(explained("workload.seed", "observed.gpu.clock_mhz", "code.commit"), both)
    assert (found.ranks, found.first, found.three) == ((3, 2), False, True)
    found = score(explained("code.commit", "a", "b", "observed.gpu.clock_mhz"), both)
    assert (found.ranks, found.first, found.three) == ((1, 4), True, False)
    found = score(explained("workload.seed"), both)  # what a suspect lists beside is not what it names
    assert (found.ranks, found.first, found.three) == ((None, None), False, False)


def test_only_pairs_without_a_change_are_to_be_silent() -> None:
    scores: list[Score] = [
        score(explained(), truth()),
        score(explained("a"), truth()),
        score(explained("a"), truth(("a",))),
        score(explained(), truth(("a",))),
    ]
    found = rates(scores)
    assert {name: (rate.hits, rate.of) for name, rate in found.items()} == {
        "first": (1, 2),
        "three": (1, 2),
        "silent": (1, 2),
    }
    # Wilson's interval of 1 in 2 (Wilson 1927; Brown, Cai and DasGupta 2001): centre 0.5, half width 0.4055.
    assert (found["first"].low, found["first"].high) == pytest.approx((0.0945, 0.9055), abs=1e-4)


@pytest.mark.parametrize("asked", [("--half", "held", "--fresh", "5000"), ("--half", "dev", "--real", "1")])
def test_pairs_are_asked_for_in_one_way(asked: tuple[str, ...]) -> None:
    answered = CliRunner().invoke(main, asked)
    assert answered.exit_code == 2
    assert "give one of them" in answered.output
