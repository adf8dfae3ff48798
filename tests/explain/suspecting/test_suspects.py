"""Which changes are suspected: a literal case for each kind of trouble, among changes that did no harm."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.comparison import Change, Contribution, Judgement
from harness.explain.comparing import facts
from harness.explain.suspecting.grown import differs, growth
from harness.explain.suspecting.reasons import Figures, confirmed_by, filled, words_of
from harness.explain.suspecting.rules import rules
from harness.explain.suspecting.suspects import suspects
from harness.records import Interval, Value
from tests.explain.suspecting.asked import COSTS, Answer, Told, ask, side

HARMLESS: Mapping[str, tuple[Value, Value]] = {
    "context.time": ("a", "b"),
    "context.cache.root": ("/a", "/b"),
    "workload.seed": (0, 1),
    "execution.note": ("x", "x"),
    "environment.kernel": ("6.1.0", "6.1.1"),
    "environment.package.certifi": ("2026.1", "2026.2"),
    "environment.package.rich": ("14.0", "14.1"),
    "environment.package.numpy": ("2.3.0", "2.3.1"),
    "environment.variable.HF_HOME": ("/a", "/b"),
    "state.load.1m": (0.1, 3.0),
    "state.memory.available_bytes": (90e9, 80e9),
    "state.doctor.files": (10, 11),
    "observed.gpu.clock_mhz": (2400.0, 2390.0),
    "observed.memory.run_bytes": (9e9, 9.1e9),
}
GPU = ("target", "forward", "backward", "optimizer")


def told(which: int, more: Mapping[str, tuple[Value, Value]]) -> dict[str, Value]:
    return {fact: pair[which] for fact, pair in {**HARMLESS, **more}.items() if pair[which] is not None}


@dataclass(frozen=True)
class Case:
    """What truly changed, what it made longer, and the rule that knows it."""

    rule: str
    changed: Mapping[str, tuple[Value, Value]]
    longer: Mapping[str, float] = field(default_factory=dict)
    first: Mapping[str, float] = field(default_factory=dict)
    new: Mapping[str, float] = field(default_factory=dict)
    padding: float = 0.0
    says: str = ""

    def asked(self, faster: bool = False) -> Answer:
        before, after = (
            Told(told(0, self.changed)),
            Told(told(1, self.changed), self.longer, self.first, self.new, self.padding),
        )
        return ask(after, before) if faster else ask(before, after)


CASES = {
    "cold cache": Case(
        "compile-cache",
        {
            "state.cache.start": ("warm", "cold"),
            "state.cache.entries": (285, 0),
            "state.cache.bytes": (353_000_000, 0),
            "observed.cache_start": ("warm", "cold"),
            "observed.compile_s": (3.0, 63.0),
        },
        first={"compile": 21.0},
        says="the compile cache was cold (0 entries, before: 285): the first step compiled for 1:03 instead of 3.00 s",
    ),
    "partial cache": Case(
        "compile-cache",
        {
            "state.cache.start": ("warm", "partial"),
            "state.cache.entries": (285, 62),
            "state.cache.bytes": (353_000_000, 19_000_000),
        },
        first={"compile": 10.0},
        says="the compile cache held 19.0 MB in 62 entries, before: 353 MB in 285",
    ),
    "recompiles": Case(
        "recompiles",
        {"observed.recompiles": (0, 41)},
        {"unaccounted": 5.0, "forward": 1.3},
        says="code was compiled again 41 times after the first step (before: 0)",
    ),
    "dense attention": Case(
        "dense-attention",
        {"observed.dense_fallback": (False, True), "execution.attention.used": ("flex", "dense")},
        {"forward": 7.0, "backward": 7.0},
        says="attention ran as dense math, not compiled (dense, before: flex)",
    ),
    "another attention": Case(
        "dense-attention",
        {"execution.attention": ("flex", "sdpa")},
        {"forward": 1.5, "backward": 1.5},
        says="attention is computed as sdpa, before: flex",
    ),
    "throttled by heat": Case(
        "gpu-clock",
        {
            "observed.gpu.clock_mhz": (2400.0, 1440.0),
            "observed.gpu.throttled_share": (0.0, 0.8),
            "observed.gpu.throttle_reason": (None, "its temperature"),
        },
        dict.fromkeys(GPU, 1.6),
        says="the GPU's clock fell by 40 % (from 2400 MHz to 1440 MHz) and it was throttled 80 % of the time, "
        "by its temperature",
    ),
    "power limit": Case(
        "gpu-clock",
        {
            "observed.gpu.clock_mhz": (2400.0, 1800.0),
            **{f"environment.gpu.{n}.power.limit_w": (600, 300) for n in (0, 1)},
        },
        dict.fromkeys(GPU, 1.3),
        says="its power limit is 300 W, before: 600 W",
    ),
    "one hot card that the others wait for": Case(
        "slow-card",
        {
            "observed.gpu.clock_min_mhz": (2576.0, 2247.0),
            "observed.gpu.throttled_share": (0.0, 0.9),
            "observed.gpu.throttle_reason": (None, "its temperature"),
        },
        {"communication": 3.0, "backward": 1.02},
        says="one GPU is slower than the others, which wait for it: its clock fell by 13 % (from 2576 MHz to 2247 MHz)",
    ),
    "GPU shared": Case(
        "gpu-shared",
        {"observed.gpu.others_bytes": (5e8, 12e9), "state.gpu.0.processes": (0, 1)},
        dict.fromkeys(GPU, 1.5),
        says="other processes held 12.0 GB of the GPU's memory",
    ),
    "CPU shared": Case(
        "cpu-shared",
        {"observed.cpu.others_pct": (4.0, 390.0)},
        dict.fromkeys(COSTS, 1.4),
        says="other processes took 390 % of a core, before: 4 %",
    ),
    "CPU quota": Case(
        "cpu-quota",
        {"environment.cpu.limit": (16.0, 4.0), "observed.cpu.throttled": (0.0, 0.9)},
        dict.fromkeys(COSTS, 1.5),
        says="the run may use 4 processors' worth of time, before: 16",
    ),
    "a quota where there was none": Case(
        "cpu-quota", {"environment.cpu.limit": (None, 2.0)}, dict.fromkeys(COSTS, 1.5)
    ),
    "threads": Case(
        "cpu-quota", {"environment.variable.OMP_NUM_THREADS": ("8", "1")}, {"forward": 1.8, "backward": 1.9}
    ),
    "data workers": Case(
        "data-pipeline", {"execution.data.workers": (8, 1)}, {"data": 12.0}, says="data.workers went from 8 to 1"
    ),
    "a slow disk that starves the target": Case(
        "data-pipeline",
        {"observed.disk_read_bytes_s": (0.0, 302e6)},
        {"communication": 40.0},
        new={"target.data": 20.0, "target.forward": 6.0},
        says="302 MB/s came from disk, before: 0 bytes, and communication, target.data and target.forward grew",
    ),
    "shorter texts": Case(
        "padding", {"workload.data.digest": ("a" * 64, "b" * 64), "observed.padding_share": (0.0, 0.2)}, padding=0.25
    ),
    "padding": Case(
        "padding",
        {"observed.padding_share": (0.0, 0.2)},
        padding=0.25,
        says="20 % of what was computed is padding, before: 0 %",
    ),
    "heads": Case("model-shape", {"workload.model.heads": (16, 32)}, {"forward": 1.7, "backward": 1.8}),
    "layers": Case(
        "model-shape", {"workload.model.layers": (5, 10)}, {"forward": 1.9, "backward": 1.9, "optimizer": 2.0}
    ),
    "batch": Case("batch-shape", {"workload.train.batch": (8, 2)}, dict.fromkeys([*GPU, "unaccounted"], 1.4)),
    "anchors": Case("batch-shape", {"workload.train.anchors": (256, 512)}, {"forward": 1.9, "backward": 1.9}),
    "torch": Case("torch", {"environment.package.torch": ("2.10.0", "2.11.0")}, {"forward": 1.3, "optimizer": 1.4}),
    "triton": Case("triton", {"environment.package.triton": ("3.5.0", "3.6.0")}, {"forward": 1.3, "backward": 1.4}),
    "cuDNN": Case(
        "cudnn", {"environment.package.nvidia-cudnn-cu12": ("9.10", "9.15")}, {"forward": 1.3, "backward": 1.4}
    ),
    "cuDNN's slow 3D convolutions": Case(
        "cudnn-conv3d",
        {
            "environment.package.torch": ("2.8.0", "2.9.1"),
            "environment.package.nvidia-cudnn-cu12": ("9.10.2", "9.10.2"),
        },
        {"forward": 8.0, "backward": 9.0},
        says="torch 2.9.1 with cuDNN 9.10.2 runs 3D convolutions in bfloat16 10 to 20 times slower",
    ),
    "NCCL": Case("nccl", {"environment.package.nvidia-nccl-cu12": ("2.27.5", "2.28.9")}, {"communication": 6.0}),
    "NCCL's variable": Case(
        "nccl", {"environment.variable.NCCL_P2P_DISABLE": (None, "1")}, {"communication": 6.0, "wait": 2.0}
    ),
    "driver": Case("driver", {"environment.gpu.driver": ("575.51", "580.65")}, dict.fromkeys(GPU, 1.2)),
    "devices": Case(
        "topology", {"execution.devices": ("drafter:cuda:5-7", "drafter:cuda:6-7")}, {"communication": 3.0, "wait": 8.0}
    ),
    "the same devices by threads": Case(
        "topology-kind",
        {
            "execution.topology.kind": ("inline", "threads"),
            "execution.topology.guarded": (None, True),
            "execution.device.used": ("cpu", "cpu:0,cpu:1,cpu:2"),
        },
        dict.fromkeys(COSTS, 1.4),
        says="topology.kind went from inline to threads",
    ),
    "fewer drafters": Case(
        "fewer-devices",
        {"execution.devices": ("drafter:cuda:5-7", "drafter:cuda:6-7"), "observed.devices": (3, 2)},
        dict.fromkeys(COSTS, 1.5),
        says="2 devices share the work, before: 3",
    ),
    "a narrow link": Case(
        "gpu-link", {"state.gpu.6.pcie.width": (16, 4)}, {"communication": 5.0}, says="4 lanes wide, before: 16"
    ),
    "evaluation": Case(
        "evaluation",
        {"observed.evals_per_1000_steps": (1.0, 20.0), "observed.eval_s": (9.0, 9.0)},
        {"unaccounted": 9.0},
    ),
    "checkpoints": Case("checkpoints", {"execution.checkpoint_every": (1000, 20)}, {"unaccounted": 9.0}),
    "logging": Case("logging", {"execution.log_every": (100, 1)}, {"unaccounted": 5.0}),
    "swap": Case(
        "memory",
        {"observed.memory.swap_bytes": (0.0, 9e9)},
        dict.fromkeys(COSTS, 2.0),
        says="9.0 GB of swap were in use, before: 0 bytes",
    ),
    "allocator": Case(
        "memory", {"observed.alloc_retries": (0, 120)}, dict.fromkeys(GPU, 1.4), says="ask again 120 times, before: 0"
    ),
    "code": Case(
        "code",
        {
            "code.patch.sha256": ("e3" * 32, "f4" * 32),
            "observed.patch.files": (None, "train.py"),
            "code.commit": ("a", "a"),
        },
        {"optimizer": 4.0},
        says="the code changed without a commit: its patch touches train.py",
    ),
    "data set": Case("data-set", {"workload.data.digest": ("a" * 64, "b" * 64)}, {"data": 9.0}),
    "precision": Case("precision", {"workload.precision": ("bf16", "fp32")}, dict.fromkeys(GPU, 2.0)),
    "uncompiled": Case(
        "compile-setting", {"execution.compile": ("inductor", "none")}, {"forward": 2.0, "backward": 2.0}
    ),
    "toy's switch": Case(
        "switch",
        {"execution.slow.forward": (0.0, 0.005)},
        {"forward": 1.5},
        says="slow.forward went from 0 to 0.005, which slows forward",
    ),
    "launch blocking": Case(
        "launch-blocking", {"environment.variable.CUDA_LAUNCH_BLOCKING": (None, "1")}, dict.fromkeys(GPU, 1.4)
    ),
}


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


@pytest.mark.parametrize(
    ("files", "longer", "suspected"),
    [
        ("README.md, tests/dflash/test_loss.py", {"forward": 1.5}, False),
        ("experiments/dflash/loss.py", {"forward": 1.5}, True),
        ("README.md, experiments/dflash/loss.py", {"forward": 1.5}, True),
        ("experiments/dflash/loss.py", {"data": 9.0}, False),
        ("experiments/dflash/data.py", {"data": 9.0}, True),
        ("experiments/dflash/train.py", {"data": 9.0}, True),
    ],
)
def test_a_patch_touches_what_its_files_are(files: str, longer: Mapping[str, float], suspected: bool) -> None:
    changed: dict[str, tuple[Value, Value]] = {"code.patch.sha256": ("a", "b"), "observed.patch.files": (None, files)}
    found = ask(Told(told(0, changed)), Told(told(1, changed), longer))
    assert ("code.patch.sha256" in found.names) is suspected


def test_of_two_patches_the_files_that_only_one_has_count() -> None:
    before = {"code.patch.sha256": "a", "observed.patch.files": "README.md, model.py"}
    after = {"code.patch.sha256": "b", "observed.patch.files": "model.py"}
    assert ask(Told(before), Told(after, {"forward": 1.5})).suspects == ()
    same = {**after, "observed.patch.files": "README.md, model.py"}
    assert ask(Told(before), Told(same, {"forward": 1.5})).names == ["code.patch.sha256"]


def test_a_commit_may_have_changed_any_file() -> None:
    changed: dict[str, tuple[Value, Value]] = {
        "code.commit": ("a", "b"),
        "code.patch.sha256": ("a", "b"),
        "observed.patch.files": (None, "README.md"),
    }
    assert ask(Told(told(0, changed)), Told(told(1, changed), {"forward": 1.5})).names[0] == "code.commit"


def test_a_change_is_one_suspect_whatever_rules_name_it() -> None:
    """A clock that fell on all cards fell on the slowest too; memory that dense attention takes is no neighbour's."""
    for case in CASES.values():
        found = case.asked()
        named = [c.fact for s in found.suspects for c in (s.change, *s.also)]
        assert len({s.change.fact for s in found.suspects}) == len(found.suspects)
        assert not {s.change.fact for s in found.suspects[1:]} & {c.fact for c in found.suspects[0].also}, named


def test_words_are_of_suspicion_and_never_of_cause() -> None:
    for case in CASES.values():
        for suspect in case.asked().suspects:
            assert suspect.reason
            assert not re.search(
                r"\bcaus|\bbecause|[{}]", " ".join((suspect.reason, suspect.confirm, *suspect.evidence))
            )


def test_no_difference_names_no_suspect() -> None:
    changed = {fact: pair for case in CASES.values() for fact, pair in case.changed.items()}
    found = ask(Told(told(0, changed)), Told(told(1, changed)))
    assert found.suspects == ()
    assert found.unexplained == ()
    assert len(found.also_changed) > 40


def test_two_true_changes_come_first_and_second() -> None:
    changed: dict[str, tuple[Value, Value]] = {
        "observed.gpu.clock_mhz": (2400.0, 1900.0),
        "execution.data.workers": (8, 1),
        "environment.package.torch": ("2.10.0", "2.11.0"),
        "code.commit": ("a", "b"),
    }
    found = ask(Told(told(0, changed)), Told(told(1, changed), {**dict.fromkeys(GPU, 1.27), "data": 25.0}))
    assert set(found.names[:2]) == {"observed.gpu.clock_mhz", "execution.data.workers"}


def test_a_slower_start_and_a_slower_step_have_each_their_suspect() -> None:
    changed: dict[str, tuple[Value, Value]] = {
        "state.cache.start": ("warm", "cold"),
        "state.cache.entries": (285, 0),
        "execution.slow.forward": (0.0, 0.01),
        "code.commit": ("a", "b"),
    }
    found = ask(Told(told(0, changed)), Told(told(1, changed), {"forward": 1.5}, {"compile": 20.0}))
    assert {s.rule for s in found.suspects[:2]} == {"compile-cache", "switch"}
    assert {s.phases for s in found.suspects[:2]} == {("first step: compile",), ("forward",)}


def test_one_figure_slower_and_the_other_faster_turn_each_on_its_own() -> None:
    changed: dict[str, tuple[Value, Value]] = {
        "state.cache.start": ("cold", "warm"),
        "execution.slow.forward": (0.0, 0.01),
    }
    found = ask(Told(told(0, changed), {}, {"compile": 20.0}), Told(told(1, changed), {"forward": 1.5}))
    assert {s.rule for s in found.suspects} == {"compile-cache", "switch"}


def test_an_observation_outranks_what_could_be_and_that_comes_first_where_nothing_else_can() -> None:
    package: dict[str, tuple[Value, Value]] = {"environment.package.torch": ("2.10.0", "2.11.0")}
    clock: dict[str, tuple[Value, Value]] = {"observed.gpu.clock_mhz": (2400.0, 1600.0)}
    slow = dict.fromkeys(GPU, 1.5)
    both = ask(Told(told(0, {**package, **clock})), Told(told(1, {**package, **clock}), slow))
    alone = ask(Told(told(0, package)), Told(told(1, package), slow))
    assert both.names[0] == "observed.gpu.clock_mhz"
    assert alone.names[0] == "environment.package.torch"


def test_a_change_carries_no_further_than_its_figure() -> None:
    """A clock that fell by 4 % does not make a run half as fast."""
    changed: dict[str, tuple[Value, Value]] = {
        "observed.gpu.clock_mhz": (2400.0, 2300.0),
        "environment.package.torch": ("2.10.0", "2.11.0"),
    }
    found = ask(Told(told(0, changed)), Told(told(1, changed), dict.fromkeys(GPU, 2.0)))
    assert found.names[0] == "environment.package.torch"


def test_what_slows_all_alike_does_not_slow_one_alone() -> None:
    changed: dict[str, tuple[Value, Value]] = {
        "observed.gpu.others_bytes": (5e8, 2e9),
        "execution.fused_optimizer": (True, False),
    }
    found = ask(Told(told(0, changed)), Told(told(1, changed), {"optimizer": 4.0}))
    assert found.names[0] == "execution.fused_optimizer"


@pytest.mark.parametrize(
    ("fact", "pair", "longer"),
    [
        ("observed.gpu.clock_mhz", (1440.0, 2400.0), dict.fromkeys(GPU, 1.5)),  # it rose
        ("execution.slow.data", (0.0, 0.01), {"forward": 1.5}),  # another phase
        ("environment.package.nvidia-nccl-cu12", ("2.27", "2.28"), {"forward": 1.5}),
        ("state.cache.start", ("warm", "cold"), {"optimizer": 2.0}),
        ("execution.data.workers", (1, 8), {"forward": 1.5}),
        ("workload.seed", (0, 7), {"forward": 1.5}),
        ("environment.package.pytest", ("8", "9"), {"forward": 1.5}),
        ("state.cache.start", ("cold", "warm"), {}),
    ],
)
def test_what_cannot_touch_it_is_only_listed(fact: str, pair: tuple[Value, Value], longer: Mapping[str, float]) -> None:
    first = {} if longer else {"compile": 9.0}
    found = ask(Told({fact: pair[0]}), Told({fact: pair[1]}, longer, first))
    assert found.suspects == ()
    assert [c.fact for c in found.also_changed] == [fact]
    assert found.unexplained
    assert found.unexplained[0].startswith("nothing recorded explains the growth of")


def test_nothing_recorded_explains_it() -> None:
    found = ask(Told(), Told({}, {"forward": 1.5}))
    assert found.suspects == ()
    assert found.unexplained == ("nothing recorded explains the growth of forward",)
    start = ask(Told(), Told({}, {}, {"set-up": 3.0}))
    assert start.unexplained == ("nothing recorded explains the growth of set-up of the time to the first step",)


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


# --- what grew -------------------------------------------------------------------------------------------


def judgement(ratio: float, width: float, verdict: str = "SLOWER", figure: str = "throughput") -> Judgement:
    interval = Interval(ratio, ratio * (1 - width), ratio * (1 + width))
    return Judgement(figure, verdict, "assumed", interval, 1.0, ratio)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("judged", "expected"),
    [
        (judgement(0.5, 0.1), True),
        (judgement(0.97, 0.1, "UNKNOWN"), False),
        (judgement(0.97, 0.01, "UNKNOWN"), True),
        (judgement(0.995, 0.001, "SAME"), False),
        (Judgement("throughput", "UNKNOWN", "none"), False),
    ],
)
def test_only_a_real_difference_is_looked_into(judged: Judgement, expected: bool) -> None:
    assert differs(judged) is expected


def test_growth_is_what_moved_with_the_whole() -> None:
    parts = (
        Contribution("forward", -0.6, None, 1.0, 2.0),
        Contribution("backward", -0.2, None, 1.0, 1.3),
        Contribution("data", 0.1, None, 0.5, 0.3),
    )
    found = growth(judgement(math.exp(-0.7), 0.01), parts)
    assert found
    assert found.slower
    assert [(p.phase, round(p.share, 2)) for p in found.grown] == [("forward", 0.75), ("backward", 0.25)]
    assert found.parts[0].growth == pytest.approx(math.log(2))
    assert found.parts[2].growth == 0.0


def test_a_phase_that_was_not_there_before_grew_without_bound() -> None:
    found = growth(judgement(0.5, 0.01), (Contribution("wait", -0.7, None, 0.0, 1.0),))
    assert found
    assert math.isinf(found.parts[0].growth)


# --- the rules themselves --------------------------------------------------------------------------------


def test_every_rule_can_be_followed() -> None:
    ids = [rule.id for rule in rules()]
    assert len(ids) == len(set(ids))
    for rule in rules():
        assert 0 <= rule.prior <= 1
        assert rule.spread in ("alike", "each", "any")
        assert rule.effect in ("", "inverse", "proportional", "square", "useful")
        assert rule.facts
        assert bool(rule.prior) == bool(rule.reason), rule.id
        assert not rule.reference or rule.reference.startswith("https://")


def test_directions_are_words_that_exist() -> None:
    for rule in rules():
        for condition in (*rule.facts, *rule.signs):
            assert condition.direction in ("", "up", "down", "to"), rule.id
            assert bool(condition.values) == (condition.direction == "to"), rule.id


@pytest.mark.parametrize("fact", ["execution.topology", "execution.log_every", "execution.devices", "execution.device"])
def test_a_setting_is_not_taken_for_another(fact: str) -> None:
    """ "topology" ends in "logy", and "devices" begins with "device"."""
    wanted = {
        "execution.topology": {"topology"},
        "execution.log_every": {"logging"},
        "execution.devices": {"topology", "fewer-devices"},
        "execution.device": {"device"},
    }
    assert {rule.id for rule in rules() if rule.names(fact) and not rule.otherwise} == wanted[fact]


def test_sides_without_runs_or_splits_are_no_trouble() -> None:
    nothing = Judgement("throughput", "UNKNOWN", "none")
    first = Judgement("first step", "UNKNOWN", "none")
    changes = (Change("execution.x", 1, 2),)
    assert suspects(changes, nothing, first, (), (), side("a"), side("b")) == ((), changes)
    assert suspects(changes, judgement(0.5, 0.01), first, (), (), side("a"), side("b")) == ((), changes)


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


def test_a_setting_of_some_runs_of_a_side_is_suspected_and_weighs_less_than_one_of_all() -> None:
    """One run with slow.backward and one with slow.forward, against runs without either."""
    longer = Told({}, {"forward": 1.3, "backward": 1.3})
    phases = ("forward", "backward")
    every = ask(Told(), longer, [Change(f"execution.slow.{phase}", 0.0, 0.01) for phase in phases])
    some = ask(Told(), longer, [Change(f"execution.slow.{phase}", 0.0, 0.01, varies=True) for phase in phases])
    assert set(every.names) == set(some.names) == {"execution.slow.forward", "execution.slow.backward"}
    for one, part in zip(every.suspects, some.suspects, strict=True):
        assert 0 < part.score < one.score


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
