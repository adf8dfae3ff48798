"""The sum over drafter threads, held against a plain loop; and what happens where one does not come."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from experiments.dflash.topology.channel import Stopped, WaitingRoom
from experiments.dflash.topology.summing import ThreadSum
from harness.errors import WorkerError

pytestmark = pytest.mark.timeout(60)  # a hang; nothing here takes a second


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
@pytest.mark.parametrize("count", [2, 3, 5])
def test_every_buffer_gets_the_sum_in_the_order_of_the_drafters(count: int, size: int) -> None:
    """Ten rounds, threads that come in any order, numbers whose sum depends on the order of adding."""
    total = ThreadSum(WaitingRoom(30), [f"drafter {index}" for index in range(count)])
    generator = torch.Generator().manual_seed(size)
    rounds = [[torch.randn(size, generator=generator) * 10.0**index for index in range(count)] for _ in range(10)]
    expected = [sum(parts[1:], parts[0].clone()) for parts in rounds]

    def work(index: int) -> list[Tensor]:
        pause, reduce, buffer = random.Random(index), total.of(index), torch.empty(size)
        seen = []
        for parts in rounds:
            buffer.copy_(parts[index])  # the one buffer again and again, as gradients have it
            time.sleep(pause.random() * 0.003)
            reduce(buffer)
            seen.append(buffer.clone())
        return seen

    with ThreadPoolExecutor(count) as pool:
        for seen in pool.map(work, range(count)):
            assert all(torch.equal(one, other) for one, other in zip(seen, expected, strict=True))


def test_a_drafter_that_does_not_come_is_named() -> None:
    total = ThreadSum(WaitingRoom(0.1), ["drafter 0", "drafter 1", "drafter 2"])
    with pytest.raises(WorkerError, match=r"^drafter 1 has waited 0\.1 s for drafter 0 and drafter 2: "):
        total.of(1)(torch.ones(3))


def test_closing_the_room_ends_the_wait() -> None:
    room = WaitingRoom(30)
    total = ThreadSum(room, ["drafter 0", "drafter 1"])
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(total.of(0), torch.ones(3))
        room.close()
        with pytest.raises(Stopped):
            waiting.result(30)
