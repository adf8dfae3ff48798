"""Ranks that train together: bounded queues, an orderly end, other machines' steps, and what they must agree on."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
import torch

from experiments.dflash.config import DFlashConfig
from experiments.dflash.data import Dataset
from experiments.dflash.layout import TopologyConfig
from experiments.dflash.loops import GIVE_UP
from experiments.dflash.topology.inline import InlineCrew
from experiments.dflash.topology.processes import ProcessCrew
from experiments.dflash.train import settled
from harness.run.events import Recorder
from tests.dflash.tiny_target import make_dataset, random_target
from tests.dflash.topology.crews import CONFIG
from tests.dflash.topology.ranks import trained, with_processes

NOISY = replace(CONFIG, train=replace(CONFIG.train, feature_noise=0.1))


def alone(folder: Path, config: DFlashConfig = NOISY) -> tuple[list[tuple[float, float]], dict[str, torch.Tensor]]:
    """Losses with gradient norms, and weights, of the specification."""
    folder.mkdir()
    crew = InlineCrew(settled(config)[0], Recorder(folder, 0.0))
    crew.board(random_target(), make_dataset(6))
    assert crew.train() == ""
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    losses = [(e["metrics"]["loss"], e["metrics"]["grad_norm"]) for e in events if e["kind"] == "step"]
    return losses, crew.drafter.state_dict()


def test_one_drafter_is_bit_for_bit_inline_for_any_number_of_targets_and_any_queue(tmp_path: Path) -> None:
    losses, weights = alone(tmp_path / "inline")
    for targets, queue in ((1, 2), (2, 1), (3, 4)):
        ended = trained(tmp_path / f"{targets}", with_processes(targets, 1, NOISY, queue))
        assert ended.codes == [0] * (targets + 1)
        assert list(ended.losses().values()) == [losses]
        assert ended.weights is not None
        assert all(torch.equal(ended.weights[name], weights[name]) for name in weights)
        steps = [event for event in ended.events if event["kind"] == "step" and event["role"] == "target"]
        assert sum(step["metrics"]["shares"] for step in steps) == NOISY.train.steps
        assert len({step["device"] for step in steps}) == targets
        assert all({"wait", "communication", "target"} <= step["phases"].keys() for step in steps)


@pytest.mark.parametrize(("targets", "drafters", "queue"), [(1, 2, 1), (2, 3, 2)])
def test_several_drafters_come_near_inline_with_one_loss_and_one_set_of_weights(
    tmp_path: Path, targets: int, drafters: int, queue: int
) -> None:
    losses, weights = alone(tmp_path / "inline")
    ended = trained(tmp_path / "ranks", with_processes(targets, drafters, NOISY, queue))
    assert ended.codes == [0] * (targets + drafters)  # rank 0 compares the drafters' weights bit for bit
    assert len(ended.losses()) == drafters
    assert len(set(map(tuple, ended.losses().values()))) == 1
    near = next(iter(ended.losses().values()))
    torch.testing.assert_close(torch.tensor(near), torch.tensor(losses), rtol=1e-4, atol=1e-5)
    assert ended.weights is not None
    torch.testing.assert_close(ended.weights, weights, rtol=1e-3, atol=1e-4)


def nothing_to_learn() -> Dataset:
    dataset = make_dataset(6)
    return replace(dataset, loss_mask_NS=torch.zeros_like(dataset.loss_mask_NS))


def another_one_on_rank_2() -> Dataset:
    dataset = make_dataset(6)
    return replace(dataset, ids_NS=dataset.ids_NS.flip(0)) if os.environ["RANK"] == "2" else dataset


def sum_of_its_own(crew: ProcessCrew) -> None:
    """Drafter 1 takes another sum than drafter 0."""
    if os.environ["RANK"] == "2":
        whole = crew._sum
        crew._sum = lambda flat: (whole(flat), flat.mul_(1.001))  # type: ignore[method-assign,assignment]


def test_a_training_that_is_given_up_ends_all_ranks_in_order(tmp_path: Path) -> None:
    config = replace(CONFIG, train=replace(CONFIG.train, steps=500))
    ended = trained(tmp_path / "ranks", with_processes(3, 2, config, queue=2), nothing_to_learn)
    reason = f"{GIVE_UP} steps in a row were skipped, the last because no valid anchor in the batch"
    assert ended.codes == [1, 0, 0, 0, 0]
    assert (ended.words[0]["kind"], ended.words[0]["message"]["message"]) == ("given up", reason)
    assert not any(ended.words[1:])
    drafted = [event["step"] for event in ended.events if event["kind"] == "step" and event["role"] == "drafter"]
    assert sorted(drafted) == sorted([*range(1, GIVE_UP + 1)] * 2)


def test_ranks_that_come_to_unequal_data_refuse_to_train_and_say_which(tmp_path: Path) -> None:
    ended = trained(tmp_path / "ranks", with_processes(2, 1, CONFIG), another_one_on_rank_2)
    assert ended.codes == [1, 1, 1]
    for word in ended.words:
        assert word["kind"] == "line"
        assert word["message"]["message"].startswith("the training data of rank 2 on ")
    assert ended.events == []


def test_drafters_whose_weights_come_apart_are_an_error_and_not_a_drafter(tmp_path: Path) -> None:
    ended = trained(tmp_path / "ranks", with_processes(1, 2, CONFIG), change=sum_of_its_own)
    assert ended.codes[0] == 1
    assert ended.words[0]["message"]["message"].startswith("drafter 0 and drafter 1 ended with different weights")
    assert ended.weights is None


def test_steps_of_another_machine_are_recorded_at_the_end_on_the_first_ones_clock(tmp_path: Path) -> None:
    topology = TopologyConfig("processes", "cpu:0", "cpu:1", nodes=2, rendezvous="localhost:1")
    config = replace(NOISY, topology=topology)
    ended = trained(tmp_path / "two", config, recorded=2)
    one = trained(tmp_path / "one", with_processes(2, 2, NOISY))
    assert ended.codes == one.codes == [0] * 4
    steps = [event for event in ended.events if event["kind"] == "step"]
    assert {step["device"] for step in steps} == {"cpu:0", "cpu:1", "cpu:0@2", "cpu:1@2"}
    assert ended.losses()["cpu:1"] == ended.losses()["cpu:1@2"] == one.losses()["cpu:2"]
    first, last = (min(step["t"] for step in steps), max(step["t"] for step in steps))
    for device in ("cpu:0@2", "cpu:1@2"):  # machines share no clock: started at 0 here, they would be long before
        assert all(first - 60 < step["t"] < last + 60 for step in steps if step["device"] == device)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_compiled_drafter_learns_what_the_plain_one_does(
    tmp_path: Path, backend: Literal["aot_eager", "inductor"]
) -> None:
    losses, _ = alone(tmp_path / "inline")
    ended = trained(tmp_path / "ranks", with_processes(2, 2, replace(NOISY, compile=backend)))
    assert ended.codes == [0] * 4
    for device in ended.losses().values():
        torch.testing.assert_close(torch.tensor(device), torch.tensor(losses), rtol=1e-4, atol=1e-4)
    compiled = [event for event in ended.events if event["kind"] == "compile"]
    assert {event["step"] for event in compiled} == {1}
