"""Explanations made by hand: the seeds' three comparisons, groups, a late start, hostile text, and almost nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from harness.comparison import (
    Change,
    Contribution,
    Explanation,
    Failure,
    Interruption,
    Judgement,
    Lane,
    Measured,
    Profile,
    Shift,
    Side,
    Suspect,
)
from harness.records import Interval, Result, Run, RunSpec, Value
from tests.measurements import BLOCKS, DENSE, FACTS, FULL, GOOD, measured, profile, split, split_seconds


def geometric(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def judged(before: Side, after: Side, **changes: object) -> Judgement:
    old, new = (geometric([m.steady.throughput.value for m in side.runs if m.steady]) for side in (before, after))
    ratio = new / old
    given: dict[str, object] = {
        "verdict": "SLOWER" if ratio < 0.98 else "SAME",
        "basis": "assumed",
        "ratio": Interval(ratio, 0.93 * ratio, 1.07 * ratio),
        "runs": (len(before.runs), len(after.runs)),
        "margin": 0.02,
        "spread": 0.05,
        "words": "One run a side, and no other runs of this workload: runs are assumed to differ by 5 % of themselves.",
    }
    return Judgement("throughput", before=old, after=new, **{**given, **changes})  # type: ignore[arg-type]


def judged_first(before: Side, after: Side, **changes: object) -> Judgement:
    old, new = (geometric([m.first_step_s for m in side.runs if m.first_step_s]) for side in (before, after))
    ratio = new / old
    verdict = "SLOWER" if ratio > 1.1 else "SAME"
    given = {"verdict": verdict, "basis": "assumed", "ratio": Interval(ratio, 0.9 * ratio, 1.1 * ratio), "margin": 0.02}
    return Judgement("first step", before=old, after=new, **{**given, **changes})  # type: ignore[arg-type]


def different_work() -> Explanation:
    """21.5 against 12.8 Ktok/s, no regression: 902 K samples with balanced heads against 1.1 M with full ones."""
    more: dict[str, Value] = {
        "workload.data.sequences": 1_100_000,
        "workload.data.digest": "b2" * 32,
        "workload.model.heads": "full",
        "state.cache.bytes": 401_000_000,
        "state.cache.entries": 301,
    }
    before = Side("20261101-090000-dflash-a1b2", (measured("20261101-090000-dflash-a1b2"),))
    full = measured("20261108-141500-dflash-c3d4", FULL, seed=7, padding=0.045, facts={**FACTS, **more})
    after = Side(full.run.id, (full,))
    assert before.runs[0].steady
    assert full.steady
    return Explanation(
        sentence="This is not the same work, so 21.5 Ktok/s against 12.8 Ktok/s is no regression: another data set "
        "(902,000 sequences against 1,100,000); other attention heads (balanced against full).",
        comparability="NOT_COMPARABLE",
        reasons=(
            "another data set: workload.data.sequences 902,000 against 1,100,000",
            "other attention heads: workload.model.heads balanced against full",
        ),
        verdict="UNKNOWN",
        throughput=judged(before, after, verdict="UNKNOWN", basis="none", words="not judged: it is not the same work"),
        first_step=judged_first(before, after, verdict="UNKNOWN", basis="none"),
        contributions=split(before.runs[0].steady, full.steady),
        first_step_contributions=(),
        also_changed=tuple(Change(name, FACTS[name], value) for name, value in more.items()),
        fair_pair="a fair pair has the same work on both sides: harness rerun 20261108-141500-dflash-c3d4 "
        "data.sequences=902000 model.heads=balanced",
        normalised=(
            ("ms per useful Ktok: target.forward", 10.0, 11.2),
            ("ns per attention pair: forward", 3.61, 3.66),
        ),
        bottleneck="The drafter held it up in both runs: it waited 2 % of its time.",
        before=before,
        after=after,
    )


def dense_fallback() -> Explanation:
    """21.5 against 4.3 Ktok/s: attention fell back to dense math after a check was patched away."""
    changes: dict[str, Value] = {
        "code.patch.sha256": "f4" * 32,
        "environment.package.torch": "2.11.0+cu130",
        "context.host": "box-2",
    }
    good = measured("20261101-090000-dflash-a1b2", observed={"observed.dense_fallback": False})
    bad = measured(
        "20261109-101010-dflash-e5f6",
        DENSE,
        seed=9,
        facts={**FACTS, **changes},
        observed={"observed.dense_fallback": True},
    )
    before, after = Side("@good", (good,)), Side(bad.run.id, (bad,))
    fell = Change("observed.dense_fallback", False, True)
    patched = Change("code.patch.sha256", FACTS["code.patch.sha256"], changes["code.patch.sha256"])
    assert good.steady
    assert bad.steady
    return Explanation(
        sentence="5.0 times slower: 4.30 Ktok/s instead of 21.5 Ktok/s, 49 % of it in backward; "
        "first suspect: compiled attention fell back to dense math.",
        comparability="COMPARABLE",
        reasons=("every workload fact is the same",),
        verdict="SLOWER",
        throughput=judged(before, after),
        first_step=judged_first(before, after),
        contributions=split(good.steady, bad.steady),
        suspects=(
            Suspect(
                fell,
                "dense-fallback",
                "compiled attention fell back to dense math, which costs forward and backward alike",
                1,
                0.95,
                ("forward took 6.5 times as long for a token", "the log says: falling back to eager"),
                "harness run dflash attention=flex compile=inductor",
                ("forward", "backward"),
                (Change("observed.recompiles", 0, 41),),
            ),
            Suspect(
                patched,
                "code",
                "the code differs, and what differs is in the step",
                2,
                0.4,
                ("code.patch touches torch/_dynamo/eval_frame.py",),
                "harness rerun 20261109-101010-dflash-e5f6, with the patch taken back",
                ("forward", "backward"),
            ),
        ),
        also_changed=(
            Change("environment.package.torch", "2.11.0+cu128", "2.11.0+cu130"),
            Change("context.host", "box", "box-2"),
            Change("environment.package.sglang", None, "0.5.3", missing="before"),
        ),
        bottleneck="The drafter held it up in both runs.",
        interruptions=(Interruption("between the steps", 0.004, 0.312), Interruption("compile", 0.2, 0.1)),
        before=before,
        after=after,
    )


def crashed() -> Explanation:
    """Good with a warm cache (353 MB in 285 entries), crashed with a cold one (19 MB in 62)."""
    changes: dict[str, Value] = {
        "state.cache.bytes": 19_000_000,
        "state.cache.entries": 62,
        "state.cache.start": "cold",
        "environment.package.sglang": "0.5.3",
    }
    good = measured("20261101-090000-dflash-a1b2")
    base = measured("20261110-080000-dflash-0bad", seed=11, facts={**FACTS, **changes}, status="failed")
    cut = 9
    short = Profile(
        t=base.profile.t[:cut],
        rate=base.profile.rate[:cut],
        phases={name: values[:cut] for name, values in base.profile.phases.items()},
        steady=base.profile.steady[:cut],
        marks=(*base.profile.marks[:1], (base.profile.t[cut - 1] + 2, "warning", "thread drafter-2 died")),
    )
    end = base.profile.t[cut - 1] + 2
    bad = replace(
        base,
        steady=None,
        profile=short,
        lanes=tuple(
            Lane(lane.name, lane.t[:n], lane.values[:n]) for lane in base.lanes if (n := sum(t <= end for t in lane.t))
        ),
        failure=Failure(
            "fx-race",
            "Three threads compiled at once, and one traced a function that another had compiled (an FX tracing race)",
            "step 84, 2 s before it ended",
            (
                "Exception in thread drafter-2:",
                "RuntimeError: Detected that you are using FX to symbolically trace a dynamo-optimized function. "
                "This is not supported at the moment.",
            ),
            "https://github.com/pytorch/pytorch/issues/126024",
            "harness run dflash topology=processes",
            ("state.cache.*",),
        ),
        gaps=("no steady state: 84 steps are too few",),
    )
    before, after = Side("@good", (good,)), Side(bad.run.id, (bad,))
    cold = Change("state.cache.start", "warm", "cold")
    return Explanation(
        sentence="20261110-080000-dflash-0bad failed at step 84: an FX tracing race between three threads. "
        "Since @good the compile cache went from warm (353 MB in 285 entries) to cold (19.0 MB in 62), which may have "
        "hidden the fault until now.",
        comparability="COMPARABLE",
        reasons=("every workload fact is the same",),
        verdict="UNKNOWN",
        throughput=Judgement("throughput", "UNKNOWN", "none", before=21_500.0, runs=(1, 0), words="one side crashed"),
        first_step=judged_first(before, after),
        suspects=(
            Suspect(
                cold,
                "cold-cache",
                "a cold cache makes every thread compile, and a fault in compiling shows only then",
                1,
                0.9,
                ("353 MB in 285 entries before, 19.0 MB in 62 after",),
                "harness run dflash topology=processes",
                (),
                (Change("state.cache.entries", 285, 62), Change("state.cache.bytes", 353_000_000, 19_000_000)),
            ),
        ),
        also_changed=(Change("environment.package.sglang", None, "0.5.3", missing="before"),),
        notes=("20261110-080000-dflash-0bad: no steady state: 84 steps are too few",),
        before=before,
        after=after,
    )


def groups(factor: float = 1.0) -> Explanation:
    """Four runs a side. ``factor`` is how much longer B's forward takes; one run of B slows down half-way."""
    slow = {**GOOD, "forward": GOOD["forward"] * factor}
    before = Side("@before", tuple(measured(f"a{n}", seed=20 + n) for n in range(4)))
    runs = [measured(f"b{n}", slow, seed=40 + n) for n in range(4)]
    half = np.where(np.arange(BLOCKS) < BLOCKS // 2, 1.0, 0.8)
    bent = profile(slow, 96.0, 43, half)
    at = BLOCKS // 2
    shift = Shift(bent.t[at], 10 * at, bent.rate[at - 5], bent.rate[at + 5], None, ("GPU 3 began to throttle",))
    runs[3] = replace(runs[3], profile=bent, shifts=(shift,))
    after = Side("@after", tuple(runs))
    first, last = before.runs[0].steady, after.runs[0].steady
    assert first
    assert last
    same = factor == 1.0
    ratio = last.throughput.value / first.throughput.value
    return Explanation(
        sentence="The speed is the same within 2 %." if same else "It is slower.",
        comparability="CONFOUNDED",
        reasons=("the two sides ran on different machines",),
        verdict="SAME" if same else "SLOWER",
        throughput=judged(
            before, after, basis="tested", p=0.43 if same else 0.029, ratio=Interval(ratio, 0.99 * ratio, 1.01 * ratio)
        ),
        first_step=judged_first(before, after, basis="tested"),
        contributions=split(first, last, share=not same),
        before=before,
        after=after,
    )


def slower_start() -> Explanation:
    """The same speed; the first step came late, for the cache was cold."""
    cold = {"import": 21.0, "model": 64.0, "compile": 463.0, "step": 2.0}
    before = Side("warm", (measured("warm"),))
    after = Side("cold", (measured("cold", first_step=cold, seed=3),))
    return replace(
        groups(),
        sentence="The speed is the same; the first step came later, after 9:10 instead of 1:36.",
        before=before,
        after=after,
        first_step=judged_first(before, after),
        first_step_contributions=split_seconds(before.runs[0].first_step, cold),
    )


def hostile() -> Explanation:
    """Facts, names and log lines that try to be markup or script, in every place where text goes."""
    bad = "</script><script>document.title='pwned'</script><img src=x onerror=\"document.title='pwned'\">[bold]{{7*7}}"
    base = crashed()
    failed = base.after.runs[0]
    assert failed.failure
    text = f"x{bad}"
    poisoned = replace(
        failed,
        run=replace(failed.run, id=bad, folder=bad),
        facts={**failed.facts, f"workload.{bad}": bad, f"execution.{bad}": "javascript:alert(1)"},
        lanes=(*failed.lanes, Lane(f"gpu.0.{bad}", (0.0, 50.0), (1.0, 2.0))),
        profile=replace(
            failed.profile,
            phases={**failed.profile.phases, bad: failed.profile.phases["forward"]},
            marks=((50.0, bad, bad),),
        ),
        shifts=(Shift(60.0, 12, 20_000.0, 10_000.0, None, (bad,)),),
        failure=Failure(bad, text, bad, (bad,), "javascript:document.title='pwned'", bad),
    )
    change = Change(f"workload.{bad}", None, bad, missing="before")
    return replace(
        base,
        sentence=text,
        reasons=(bad,),
        fair_pair=bad,
        bottleneck=bad,
        interruptions=(Interruption(bad, 0.0, 1.0),),
        normalised=((bad, 1.0, 2.0),),
        notes=(bad,),
        suspects=(Suspect(change, bad, bad, 1, 1.0, (bad,), bad, (bad,), (change,)),),
        also_changed=(change,),
        before=replace(base.before, name=bad),
        after=Side(bad, (poisoned,)),
        throughput=replace(base.throughput, words=bad),
        contributions=(Contribution(bad, 0.0, None, 1.0, 1.0),),
    )


def nothing() -> Explanation:
    """Two runs of which almost nothing is known."""
    bare = Measured(Run("x", "runs/x", RunSpec("", "", ("true",)), Result("finished", 0), None, None, None), {})
    none = Judgement("throughput", "UNKNOWN", "none", words="neither run has steps")
    return Explanation(
        "There is nothing to compare: neither run has steps.",
        "UNKNOWN",
        ("neither run says what it computed",),
        "UNKNOWN",
        none,
        replace(none, figure="first step"),
        before=Side("x", (bare,)),
        after=Side("y", (replace(bare, run=replace(bare.run, id="y")),)),
    )


Make = Callable[[], Explanation]

ALL: Mapping[str, Make] = {
    "different work": different_work,
    "dense fallback": dense_fallback,
    "crashed": crashed,
    "groups": groups,
    "slower groups": lambda: groups(1.3),
    "slower start": slower_start,
    "hostile": hostile,
    "nothing": nothing,
}

every = pytest.mark.parametrize("make", ALL.values(), ids=list(ALL))
"""A test of each of them, as its ``make``."""
