"""Which suspect comes first where several changes can have done it, and none where none can."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from harness.comparison import Change
from harness.records import Value
from tests.explain.suspecting.asked import Told, ask
from tests.explain.suspecting.troubles import GPU, told


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


def test_time_between_the_steps_has_suspects_of_its_own() -> None:
    """Only what is known to stop training between two steps: a package could lengthen a phase, and no pause."""
    changed: dict[str, tuple[Value, Value]] = {
        "observed.between_steps_share": (0.0, 0.4),
        "observed.evals_per_1000_steps": (2.0, 100.0),
        "execution.eval.every": (500, 10),
        "environment.package.tokenizers": ("0.21.0", "0.22.0"),
        "execution.slow.forward": (0.0, 0.01),
    }
    found = ask(Told(told(0, changed)), Told(told(1, changed), {"forward": 1.5}))
    assert {s.rule: s.phases for s in found.suspects} == {
        "switch": ("forward",),
        "evaluation": ("between the steps",),
    }
    alone = ask(Told(told(0, changed)), Told(told(1, changed)))
    assert [s.rule for s in alone.suspects] == ["evaluation"]
    pause = {"observed.between_steps_share": changed["observed.between_steps_share"]}
    unknown = ask(Told(told(0, pause)), Told(told(1, pause)))
    assert unknown.unexplained == ("nothing recorded explains the growth of the time between the steps",)


@pytest.mark.parametrize("setting", ["train.checkpoint_every", "trainer.save_steps", "eval.every", "train.eval_steps"])
def test_a_longer_interval_cannot_lengthen_pauses(setting: str) -> None:
    shorter: dict[str, tuple[Value, Value]] = {
        "observed.between_steps_share": (0.1, 0.5),
        f"execution.{setting}": (500, 25),
    }
    longer = {**shorter, f"execution.{setting}": (25, 500)}
    assert ask(Told(told(0, shorter)), Told(told(1, shorter))).names == [f"execution.{setting}"]
    assert ask(Told(told(0, longer)), Told(told(1, longer))).names == []


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


@pytest.mark.parametrize("fact", ["execution.train.eval_every", "execution.train.checkpoint_every"])
def test_a_tenth_more_often_is_no_reason_for_twenty_times_the_time_between(fact: str) -> None:
    changed: dict[str, tuple[Value, Value]] = {fact: (5000, 4500), "execution.train.log_every": (100, 1)}
    found = ask(Told(told(0, changed)), Told(told(1, changed), {"unaccounted": 20.0}))
    assert found.names[0] == "execution.train.log_every"
    alone = ask(Told(told(0, {fact: (5000, 250)})), Told(told(1, {fact: (5000, 250)}), {"unaccounted": 20.0}))
    assert alone.names[0] == fact


@pytest.mark.parametrize("name", ["NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_DMABUF_ENABLE", "NCCL_ALGO"])
def test_what_nccl_does_is_named_before_what_it_logs(name: str) -> None:
    fact = f"environment.variable.{name}"
    changed: dict[str, tuple[Value, Value]] = {
        fact: (None, "1"),
        "environment.variable.NCCL_DEBUG": ("WARN", "INFO"),
        "environment.variable.NCCL_DEBUG_SUBSYS": (None, "INIT"),
    }
    found = ask(Told(told(0, changed)), Told(told(1, changed), {"communication": 9.0}))
    assert found.names[0] == fact
    assert "it moves data" in found.suspects[0].reason


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


def test_a_setting_of_some_runs_of_a_side_is_suspected_and_weighs_less_than_one_of_all() -> None:
    """One run with slow.backward and one with slow.forward, against runs without either."""
    longer = Told({}, {"forward": 1.3, "backward": 1.3})
    phases = ("forward", "backward")
    every = ask(Told(), longer, [Change(f"execution.slow.{phase}", 0.0, 0.01) for phase in phases])
    some = ask(Told(), longer, [Change(f"execution.slow.{phase}", 0.0, 0.01, varies=True) for phase in phases])
    assert set(every.names) == set(some.names) == {"execution.slow.forward", "execution.slow.backward"}
    for one, part in zip(every.suspects, some.suspects, strict=True):
        assert 0 < part.score < one.score
