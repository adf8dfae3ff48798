"""Real threads that wait for each other: nothing is lost, nothing overtakes, nobody waits for ever."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from experiments.dflash.topology.channel import Channel, Stopped, WaitingRoom
from harness.errors import WorkerError

pytestmark = pytest.mark.timeout(60)  # a hang; nothing here takes a second


def in_thread(work: Callable[[], None]) -> Future[None]:
    with_one = ThreadPoolExecutor(1)
    future = with_one.submit(work)
    with_one.shutdown(wait=False)
    return future


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("senders", [1, 2, 5])
def test_items_come_in_the_order_of_their_numbers_whoever_sends_them(size: int, senders: int) -> None:
    channel = Channel[int](WaitingRoom(30), "receiver", size)

    def send(first: int) -> None:
        for number in range(first, 101, senders):
            channel.put(number, -number, f"sender {first}")

    firsts = list(range(1, senders + 1))
    random.Random(senders).shuffle(firsts)
    sent = [in_thread(lambda first=first: send(first)) for first in firsts]  # type: ignore[misc]
    assert [channel.take("sender") for _ in range(100)] == [-number for number in range(1, 101)]
    for future in sent:
        future.result(30)


def test_a_late_item_finds_its_place_when_those_after_it_came_first() -> None:
    """A queue in the order of arrival would be full of 2 and 3 here, and 1 would never get in."""
    channel = Channel[str](WaitingRoom(30), "receiver", 2)
    channel.put(2, "two", "a")
    later = in_thread(lambda: channel.put(3, "three", "b"))
    channel.put(1, "one", "c")
    assert [channel.take("a"), channel.take("b"), channel.take("c")] == ["one", "two", "three"]
    later.result(30)


def test_who_sends_too_far_ahead_waits_and_no_more_than_size_are_held() -> None:
    channel = Channel[int](WaitingRoom(0.05), "drafter 0 on cpu:1", 2)
    channel.put(1, 1, "target 0 on cpu:0")
    channel.put(2, 2, "target 0 on cpu:0")
    with pytest.raises(WorkerError, match=r"^target 0 on cpu:0 has waited 0\.05 s for drafter 0 on cpu:1: see "):
        channel.put(3, 3, "target 0 on cpu:0")
    assert channel.take("target 0 on cpu:0") == 1
    channel.put(3, 3, "target 0 on cpu:0")  # now there is room


def test_who_waits_too_long_says_for_whom_the_others_wait() -> None:
    room = WaitingRoom(30)  # of the other, who must outlast the one that gives up
    channel = Channel[int](room, "drafter 1", 1)
    other = in_thread(lambda: void(channel.take("drafter 0")))
    while not room._waits:
        threading.Event().wait(0.001)
    room._patience = 0.2
    with pytest.raises(WorkerError) as waited, room.changed:
        room.wait(lambda: False, "drafter 0", lambda: "target 3")
    expected = "drafter 0 has waited 0.2 s for target 3 (drafter 1 waits for drafter 0): see what keeps it"
    assert str(waited.value).startswith(expected)
    room.close()
    with pytest.raises(Stopped):
        other.result(30)


def test_one_that_waits_too_long_alone_says_for_whom() -> None:
    channel = Channel[int](WaitingRoom(0.2), "drafter 1", 1)
    with pytest.raises(WorkerError, match=r"^drafter 1 has waited 0\.2 s for drafter 0: "):
        channel.take("drafter 0")


@pytest.mark.parametrize("repeat", range(5))
def test_closing_ends_waits_on_both_ends_and_those_that_come_later(repeat: int) -> None:
    room = WaitingRoom(30)
    full, empty = Channel[int](room, "a", 1), Channel[int](room, "b", 1)
    full.put(1, 1, "c")
    waiting = [in_thread(lambda: full.put(2, 2, "c")), in_thread(lambda: void(empty.take("c")))]
    assert not room.closed()
    threading.Event().wait(0.002 * repeat)  # whether they wait already or are about to must not matter
    room.close()
    for future in waiting:
        with pytest.raises(Stopped):
            future.result(30)
    with pytest.raises(Stopped):
        full.take("c")  # also where something lies ready: nobody wants it any more
    assert room.closed()


def void(_: object) -> None:
    """Drop a result."""
