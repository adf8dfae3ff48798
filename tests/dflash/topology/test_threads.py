"""Threads that train together, whole: what goes wrong in any of them, at any moment, ends all and is named."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import experiments.dflash.step
from experiments.dflash.data import Dataset
from experiments.dflash.layout import TopologyConfig
from experiments.dflash.loops import GIVE_UP
from experiments.dflash.loss import Loss, block_loss
from experiments.dflash.step import DrafterSide, TargetSide, drafter_side, fresh_drafter
from experiments.dflash.topology import together
from experiments.dflash.topology.channel import Channel
from experiments.dflash.topology.summing import ThreadSum
from experiments.dflash.topology.threads import ThreadCrew
from harness.errors import UsageError, WorkerError
from harness.run import compile_guard
from harness.run.events import Recorder
from harness.run.gate import Gate
from tests.dflash.tiny_target import random_target
from tests.dflash.topology.crews import CONFIG, boarded, with_threads

pytestmark = pytest.mark.timeout(120)  # a hang; each takes a second

SEVERAL = with_threads(3, 2)  # targets on cpu:0 to cpu:2, drafters on cpu:3 and cpu:4
LONG = replace(SEVERAL, train=replace(SEVERAL.train, steps=100_000))


def events(folder: Path, kind: str) -> list[dict[str, Any]]:
    lines = (folder / "events.jsonl").read_text("utf-8").splitlines()
    return [event for event in map(json.loads, lines) if event["kind"] == kind]


def at_work() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(("target ", "drafter "))]


def before(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, thread: str, call: int, act: Callable[[], None]
) -> None:
    """Let ``act`` happen before the n-th call that ``thread`` makes of ``owner.name``."""
    real, calls = getattr(owner, name), 0

    def acting(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        if threading.current_thread().name == thread:
            calls += 1
            if calls == call:
                act()
        return real(*arguments, **named)

    monkeypatch.setattr(owner, name, acting)


def broken() -> None:
    raise ValueError("broken on purpose\nand a second line")


# --- one that dies ---------------------------------------------------------------------------------------

TARGET, DRAFTERS = "target 2 on cpu:2", ("drafter 0 on cpu:3", "drafter 1 on cpu:4")


PLACES = [
    (Dataset, "batch", TARGET),
    (TargetSide, "look", TARGET),
    (Channel, "put", TARGET),
    (Channel, "take", DRAFTERS[1]),
    (experiments.dflash.step, "sample_anchors", DRAFTERS[0]),
    (experiments.dflash.step, "drafter_loss", DRAFTERS[1]),
    (torch.autograd, "backward", DRAFTERS[1]),
    (ThreadSum, "_sum_slice", DRAFTERS[0]),
    (ThreadSum, "_sum_slice", DRAFTERS[1]),
    (experiments.dflash.step, "guarded_step", DRAFTERS[0]),
    (Recorder, "write", TARGET),
    (Recorder, "write", DRAFTERS[1]),
]


@pytest.mark.parametrize(
    ("owner", "name", "thread", "call"),
    [(torch, "set_num_threads", DRAFTERS[0], 1), *((*place, call) for call in (1, 2, 7) for place in PLACES)],
)
def test_whoever_dies_wherever_the_run_ends_and_says_who_it_was(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    owner: Any,
    name: str,
    thread: str,
    call: int,
) -> None:
    crew = boarded(LONG, tmp_path)
    before(monkeypatch, owner, name, thread, call, broken)
    with pytest.raises(WorkerError) as died:
        crew.train()
    assert str(died.value) == f"{thread} failed: ValueError: broken on purpose"
    assert died.value.exit_code == 1
    assert not at_work()
    said = capfd.readouterr().err
    assert "in broken" in said  # the whole traceback
    assert said.count("Traceback") == 1  # those that were only told to end say nothing


@pytest.mark.parametrize("thread", [TARGET, DRAFTERS[0]])
def test_a_worker_that_leaves_is_missed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, thread: str) -> None:
    def leave() -> None:
        raise SystemExit

    crew = boarded(LONG, tmp_path)
    before(monkeypatch, Dataset, "batch", thread, 3, leave)
    with pytest.raises(WorkerError, match=f"^{thread} failed: SystemExit: it says nothing more$"):
        crew.train()
    assert not at_work()


@pytest.mark.parametrize("thread", [TARGET, DRAFTERS[1]])
def test_one_that_hangs_is_named_by_the_one_that_waits_and_keeps_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, thread: str
) -> None:
    release = threading.Event()
    monkeypatch.setattr(together, "GRACE_S", 0.2)
    crew = boarded(replace(LONG, topology=replace(LONG.topology, patience=1.0)), tmp_path)
    before(monkeypatch, Dataset, "batch", thread, 4, lambda: void(release.wait(60)))
    with pytest.raises(WorkerError, match=rf" has waited 1 s for .*{thread}") as waited:
        crew.train()
    assert str(waited.value).endswith(f"; {thread} still had not ended 0.2 s later")
    stuck = [worker for worker in threading.enumerate() if worker.name == thread]
    assert at_work() == [thread]
    release.set()
    for worker in stuck:
        worker.join(60)
    assert not at_work()  # told to end long ago, it does where it waits next


@pytest.mark.parametrize("thread", [TARGET, DRAFTERS[0]])
def test_ctrl_c_ends_all_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, thread: str) -> None:
    main = threading.main_thread().ident
    assert main is not None
    crew = boarded(LONG, tmp_path)
    before(monkeypatch, Dataset, "batch", thread, 5, lambda: signal.pthread_kill(main, signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        crew.train()
    assert not at_work()


# --- a run that goes well, or nowhere --------------------------------------------------------------------


def void(_: object) -> None:
    """Drop a result."""


def test_a_training_that_is_given_up_ends_the_targets_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never_finite(*arguments: Any) -> Loss:
        loss = block_loss(*arguments)
        return replace(loss, total=loss.total * torch.nan)

    monkeypatch.setattr("experiments.dflash.step.block_loss", never_finite)
    crew = boarded(LONG, tmp_path)
    assert crew.train() == (
        f"{GIVE_UP} steps in a row were skipped, the last because the loss or a gradient is not finite"
    )
    assert not at_work()
    steps = [event for event in events(tmp_path, "step") if event["role"] == "drafter"]
    assert sorted(event["step"] for event in steps) == sorted([*range(1, GIVE_UP + 1)] * 2)
    assert len(events(tmp_path, "note")) == GIVE_UP + 1  # of one drafter, and the note on simulated devices


def test_all_drafters_end_with_the_weights_that_are_evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sides: list[DrafterSide] = []

    def kept(*arguments: Any) -> DrafterSide:
        sides.append(drafter_side(*arguments))
        return sides[-1]

    monkeypatch.setattr("experiments.dflash.topology.threads.drafter_side", kept)
    config = with_threads(2, 3)
    crew = boarded(config, tmp_path)
    fresh = fresh_drafter(config, random_target(), torch.device("cpu")).state_dict()
    assert all(torch.equal(weight, fresh[name]) for name, weight in crew.drafter.state_dict().items())
    assert crew.train() == ""
    trained = crew.drafter.state_dict()
    assert any(not torch.equal(weight, fresh[name]) for name, weight in trained.items())
    assert len(sides) == 3
    for side in sides:
        assert all(torch.equal(weight, trained[name]) for name, weight in side.drafter.state_dict().items())


def test_no_two_threads_share_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers hooks modules while they run: what two threads called at once would give either the other's."""
    seen: dict[int, set[str]] = {}
    real = torch.nn.Module.__call__

    def noted(module: torch.nn.Module, *arguments: Any, **named: Any) -> Any:
        seen.setdefault(id(module), set()).add(threading.current_thread().name)
        return real(module, *arguments, **named)

    crew = boarded(SEVERAL, tmp_path)
    monkeypatch.setattr(torch.nn.Module, "__call__", noted)
    assert crew.train() == ""
    assert len({name for names in seen.values() for name in names}) == 5
    assert all(len(names) == 1 for names in seen.values())


def test_every_device_records_its_steps_and_what_it_waited_for(tmp_path: Path) -> None:
    crew = boarded(SEVERAL, tmp_path)
    assert crew.train() == ""
    by_role: dict[str, dict[str, set[str]]] = {"target": {}, "drafter": {}}
    for event in events(tmp_path, "step"):
        by_role[event["role"]].setdefault(event["device"], set()).update(event["phases"])
        assert sum(event["phases"].values()) == pytest.approx(event["seconds"], abs=1e-6)
        assert (event["tokens"] == 30) == (event["role"] == "drafter")  # three rows of ten, counted once
    assert by_role["target"] == {f"cpu:{number}": {"data", "target", "wait", "other"} for number in range(3)}
    drafting = {"data", "wait", "communication", "forward", "backward", "optimizer", "other"}
    assert by_role["drafter"] == {f"cpu:{number}": drafting for number in (3, 4)}
    shares = [event["metrics"]["shares"] for event in events(tmp_path, "step") if event["role"] == "target"]
    assert sum(shares) == 10  # five steps of two drafters


def test_more_devices_than_cores_are_said_to_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(5)))
    boarded(SEVERAL, tmp_path / "enough")
    assert not events(tmp_path / "enough", "note")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(4)))
    boarded(SEVERAL, tmp_path / "few")
    (note,) = events(tmp_path / "few", "note")
    assert note["text"].startswith("5 devices are simulated on 4 cores and take turns on them")


# --- what is refused, or made safe, before anything is loaded --------------------------------------------


def nowhere() -> Recorder:
    return Recorder(None, 0.0)


def test_devices_that_are_not_there_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    topology = TopologyConfig("threads", "cuda:0", "cuda:1")
    with pytest.raises(UsageError, match=r"topology\.drafters: cuda:1 is not here: torch sees 1 GPUs"):
        ThreadCrew(replace(CONFIG, topology=topology), nowhere())


def test_compiling_under_a_torch_that_the_guard_was_not_shown_on_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.12.0+cpu")
    monkeypatch.setattr(compile_guard, "install", broken)
    with pytest.raises(UsageError, match=r"torch 2\.12\.0\+cpu, .* on torch 2\.10\.0, .*topology.kind=processes, or "):
        ThreadCrew(replace(SEVERAL, compile="aot_eager"), nowhere())
    ThreadCrew(SEVERAL, nowhere())  # nothing is compiled, nothing is guarded


def guarded_by(monkeypatch: pytest.MonkeyPatch, done: list[str]) -> Gate:
    """A guard that patches nothing of this process; ``done`` tells what was done in which order."""
    gate = Gate()

    def install() -> compile_guard.Guard:
        done.append("guard")
        return compile_guard.Guard(gate, torch.__version__)

    def compiled(function: Callable[..., Any], **_: Any) -> Callable[..., Any]:
        done.append("compile")
        return function

    monkeypatch.setattr(compile_guard, "install", install)
    monkeypatch.setattr(torch, "compile", compiled)
    return gate


def test_the_guard_is_there_before_anything_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    guarded_by(monkeypatch, done)
    crew = boarded(replace(SEVERAL, compile="aot_eager"), tmp_path)
    assert done == ["guard", "compile", "compile"]  # a function for each drafter's thread
    assert crew.facts()["execution.topology.guarded"] is True


def test_while_one_compiles_nobody_else_computes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers, told that it is being traced, mixes the hidden states of all threads: real runs lost theirs so."""
    gate, compiling, seen = guarded_by(monkeypatch, []), threading.Event(), []
    real_loss, real_look = experiments.dflash.step.drafter_loss, TargetSide.look

    def compiles(*arguments: Any) -> Any:
        with gate.writing():
            compiling.set()
            time.sleep(0.01)
            compiling.clear()
        return real_loss(*arguments)

    def look(*arguments: Any) -> Any:
        before_it = compiling.is_set()
        features = real_look(*arguments)
        seen.append(before_it or compiling.is_set())
        return features

    monkeypatch.setattr(experiments.dflash.step, "drafter_loss", compiles)
    monkeypatch.setattr(TargetSide, "look", look)
    assert boarded(replace(SEVERAL, compile="aot_eager"), tmp_path).train() == ""
    assert seen == [False] * 10
