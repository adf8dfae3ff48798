"""Explanations made by hand, with series as runs have them: the seeds' three comparisons, groups, and hostile text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from harness.comparison import (
    Change,
    Contribution,
    Explanation,
    Failure,
    Judgement,
    Lane,
    Measured,
    Profile,
    Role,
    Shift,
    Side,
    Steady,
    Suspect,
)
from harness.records import Interval, Result, Run, RunSpec, Status, Value

GOOD = {
    "data": 0.4,
    "target.forward": 10.0,
    "wait": 1.1,
    "forward": 14.8,
    "backward": 16.9,
    "optimizer": 1.6,
    "communication": 1.2,
    "unaccounted": 0.51,
}
"""ms per Ktok: 46.5, so 21.5 Ktok/s."""
BLOCKS = 240
FULL = {
    **GOOD,
    "target.forward": 11.2,
    "wait": 0.9,
    "forward": 30.1,
    "backward": 31.5,
    "optimizer": 2.0,
    "communication": 1.5,
}
DENSE = {**GOOD, "forward": 105.4, "backward": 113.25, "wait": 0.2}

FACTS: Mapping[str, Value] = {
    "workload.data.sequences": 902_000,
    "workload.data.digest": "a1" * 32,
    "workload.model.heads": "balanced",
    "workload.train.batch": 8,
    "workload.train.anchors": 512,
    "execution.attention": "flex",
    "execution.compile": "inductor",
    "execution.devices": "target:cuda:0-4 drafter:cuda:5-7",
    "execution.topology": "threads",
    "environment.python": "3.12.3",
    "environment.package.torch": "2.11.0+cu128",
    "environment.gpu.0.name": "NVIDIA RTX PRO 6000 Blackwell",
    "environment.gpu.driver": "580.65.06",
    "environment.lock": "ab" * 32,
    "code.commit": "9ff1230" + "0" * 33,
    "code.patch.sha256": "e3" * 32,
    "state.cache.bytes": 353_000_000,
    "state.cache.entries": 285,
    "state.cache.start": "warm",
    "context.host": "box",
    **{f"environment.package.module-{n}": f"1.{n % 9}.0" for n in range(150)},
}


def noise(seed: int, count: int = BLOCKS, size: float = 0.015) -> np.ndarray:
    """Around 1, each value like the one before it, with a rare outlier."""
    rng = np.random.default_rng(seed)
    level, values = 0.0, []
    for _ in range(count):
        level = 0.7 * level + size * rng.standard_normal()
        values.append(1 + level - (0.15 * rng.random() if rng.random() < 0.01 else 0.0))
    return np.array(values)


def profile(costs: Mapping[str, float], start: float, seed: int, speed: np.ndarray | None = None) -> Profile:
    """A run whose steady blocks cost ``costs`` ms per Ktok; its first blocks are slower. 60 Ktok a block."""
    factor = noise(seed) * (1.0 if speed is None else speed)
    factor[:4] *= (0.5, 0.8, 0.95, 0.98)
    ktok = 60.0
    phases = {name: tuple(float(ktok * cost / 1000 / f) for f in factor) for name, cost in costs.items()}
    seconds = np.array([sum(column) for column in zip(*phases.values(), strict=True)])
    ends = start + np.cumsum(seconds) + 6.0 * (np.arange(len(seconds)) >= len(seconds) // 2)  # an evaluation
    middle = float(ends[len(ends) // 2])
    return Profile(
        t=tuple(float(t) for t in ends),
        rate=tuple(float(1000 * ktok / s) for s in seconds),
        phases=phases,
        steady=tuple(n >= 4 for n in range(len(ends))),
        marks=((start, "compile", "compiled the drafter"), (middle, "eval", "evaluation of 6 s")),
    )


def lanes(end: float, seed: int, clock: float = 2280.0) -> tuple[Lane, ...]:
    count = 300
    t = tuple(float(x) for x in np.linspace(0, end, count))
    shapes = {
        **{f"gpu.{g}.clock_sm_mhz": clock * noise(seed + g, count, 0.004) for g in range(8)},
        **{f"gpu.{g}.power_w": 410 * noise(seed + 10 + g, count) for g in range(8)},
        **{f"gpu.{g}.memory_used_bytes": 71e9 * noise(seed + 20 + g, count, 0.001) for g in range(8)},
        "cpu.use_pct": 34 * noise(seed + 30, count, 0.1),
        "memory.available_bytes": 812e9 * noise(seed + 31, count, 0.002),
        "run.disk_read_bytes_s": 41e6 * noise(seed + 32, count, 0.2),
    }
    return tuple(Lane(name, t, tuple(float(v) for v in values)) for name, values in shapes.items())


def measured(
    run_id: str,
    costs: Mapping[str, float] = GOOD,
    first_step: Mapping[str, float] | None = None,
    seed: int = 1,
    padding: float = 0.02,
    facts: Mapping[str, Value] = FACTS,
    observed: Mapping[str, Value] | None = None,
    status: Status = "finished",
) -> Measured:
    """A finished run: ``costs`` are ms per useful Ktok, the computing of padding among them."""
    first = {"import": 21.0, "model": 64.0, "compile": 9.0, "step": 2.0} if first_step is None else first_step
    start = sum(first.values())
    done = profile(costs, start, seed)
    cost = sum(costs.values())
    ktok = 60.0 * (BLOCKS - 4)
    steady = Steady(
        role="drafter",
        steps=2360,
        seconds=ktok * cost / 1000,
        tokens=round(1000 * ktok),
        padding=round(1000 * ktok * padding),
        phases={name: ktok * value / 1000 for name, value in costs.items()},
        throughput=Interval(1e6 / cost, 0.991e6 / cost, 1.009e6 / cost),
        left_out={"warm-up": 40, "evaluation": 1},
    )
    spec = RunSpec("dflash", "cu128", ("python", "-m", "experiments.dflash.train"))
    result = Result(status, 0 if status == "finished" else 1, started_at=1_795_000_000.0)
    return Measured(
        run=Run(run_id, f"runs/{run_id}", spec, result, None, None, None),
        facts=facts,
        observed={"observed.padding_share": padding / (1 + padding), **(observed or {})},
        steady=steady,
        first_step_s=start,
        first_step=first,
        roles={"drafter": Role(480.0, 12.0, 3), "target": Role(480.0, 201.0, 5)},
        profile=done,
        lanes=lanes(done.t[-1], seed),
    )


def split(before: Steady, after: Steady, share: bool = True) -> tuple[Contribution, ...]:
    """The additive log-mean split (Ang 2004), written again for the tests."""
    p0, p1 = (1 + s.padding / s.tokens for s in (before, after))
    units0, units1 = (s.tokens + s.padding for s in (before, after))
    c0 = {name: seconds / units0 for name, seconds in before.phases.items()}
    c1 = {name: seconds / units1 for name, seconds in after.phases.items()}
    total0, total1 = sum(c0.values()), sum(c1.values())
    mean = total0 if math.isclose(total0, total1) else (total1 - total0) / math.log(total1 / total0)
    whole = -math.log(p1 / p0) - math.log(total1 / total0)
    parts = [("padding", -math.log(p1 / p0), p0, p1)]
    for name in dict.fromkeys([*c0, *c1]):
        old, new = c0.get(name, 0.0), c1.get(name, 0.0)
        parts.append((name, -(new - old) / mean, old, new))
    return tuple(Contribution(n, log, log / whole if share and whole else None, old, new) for n, log, old, new in parts)


def split_seconds(before: Mapping[str, float], after: Mapping[str, float]) -> tuple[Contribution, ...]:
    """The same of the time to the first step: the log ratio is of seconds, so more is slower."""
    total0, total1 = sum(before.values()), sum(after.values())
    mean = (total1 - total0) / math.log(total1 / total0)
    whole = math.log(total1 / total0)
    gained = {n: (after.get(n, 0.0) - before.get(n, 0.0)) / mean for n in dict.fromkeys([*before, *after])}
    return tuple(Contribution(n, log, log / whole, before.get(n, 0.0), after.get(n, 0.0)) for n, log in gained.items())


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
    """21.5 against 12.8 Ktok/s, which was no regression: 902 K samples and balanced heads against 1.1 M and full ones."""
    more = {
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
        fair_pair="both with workload.data.sequences=902000 and workload.model.heads=balanced",
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
    changes = {"code.patch.sha256": "f4" * 32, "environment.package.torch": "2.11.0+cu130", "context.host": "box-2"}
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
            "step 84, 2 s before the end",
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
        sentence="20261110-080000-dflash-0bad failed at step 84: an FX tracing race between three threads that compile. "
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


ALL = {
    "different work": different_work,
    "dense fallback": dense_fallback,
    "crashed": crashed,
    "groups": groups,
    "slower groups": lambda: groups(1.3),
    "slower start": slower_start,
    "hostile": hostile,
    "nothing": nothing,
}
