"""The gate by itself: plain Python stands in for compiled functions, and a watchdog for patience with a deadlock."""

from __future__ import annotations

import re
import sys
import threading
import time
import weakref

import pytest

from harness.run.gate import Gate, Stats
from harness.run.halls import Seat
from tests.run.gate_crew import WATCHDOG_S, Crew, Place, until, wants_to_write


def test_readers_run_together_and_their_results_errors_and_names_are_their_own(crew: Crew) -> None:
    gate = Gate()
    both = threading.Barrier(2, timeout=WATCHDOG_S)

    def double(x: int, *, more: int = 0) -> int:
        """Twice."""
        both.wait()
        return 2 * x + more

    call = gate.reads(double)
    results: list[int] = []
    crew.start(lambda: results.append(call(1)), "a")
    crew.start(lambda: results.append(call(2, more=3)), "b")
    crew.join()
    assert sorted(results) == [2, 7]
    assert (call.__name__, call.__doc__) == ("double", "Twice.")
    with pytest.raises(ZeroDivisionError):
        gate.reads(lambda: 1 / 0)()
    with gate.writing():  # the failed read gave its place back, or this waits for ever
        pass
    assert gate.stats().compiles == 1


def test_a_writer_waits_for_readers_and_new_readers_wait_for_it(crew: Crew) -> None:
    gate = Gate()
    order: list[str] = []
    go = threading.Event()

    def slow() -> None:
        go.wait(WATCHDOG_S)
        order.append("first read")

    def write() -> None:
        with gate.writing():
            order.append("write")
            time.sleep(0.01)
            order.append("written")

    crew.start(gate.reads(slow), "reader")
    until(lambda: bool(gate.everybody.reading()))
    crew.start(write, "writer")
    until(lambda: wants_to_write(gate))
    crew.start(gate.reads(lambda: order.append("second read")), "late reader")
    time.sleep(0.02)
    assert order == []
    go.set()
    crew.join()
    assert order == ["first read", "write", "written", "second read"]
    stats = gate.stats()
    assert stats.compiles == 1
    assert stats.writers_waited_s > 0
    assert stats.readers_waited_s > 0
    assert 0 < stats.longest_wait_s <= stats.writers_waited_s + stats.readers_waited_s


def test_a_reader_that_compiles_gives_up_its_place_and_has_it_again(crew: Crew) -> None:
    gate = Gate()
    place = Place()
    both = threading.Barrier(2, timeout=WATCHDOG_S)

    def first_call() -> None:
        both.wait()  # both are readers now, and both must compile
        with gate.writing(), place.write(threading.current_thread().name):
            time.sleep(0.005)
        with place.read(threading.current_thread().name):
            assert gate.everybody.reading()

    for name in ("a", "b"):
        crew.start(gate.reads(first_call), name)
    crew.join()
    assert gate.stats().compiles == 2


def test_a_read_within_a_read_is_let_in_while_a_writer_waits(crew: Crew) -> None:
    gate = Gate()
    results: list[str] = []

    def inner() -> None:
        results.append("inner")

    def outer() -> None:
        until(lambda: wants_to_write(gate))
        gate.reads(inner)()

    crew.start(gate.reads(outer), "reader")
    until(lambda: bool(gate.everybody.reading()))

    def write() -> None:
        with gate.writing():
            results.append("write")

    crew.start(write, "writer")
    crew.join()
    assert results == ["inner", "write"]


def test_a_compile_calls_and_compiles_in_turn() -> None:
    gate = Gate()
    place = Place()

    def count(depth: int) -> int:
        with place.read("a"):
            if depth:
                with gate.writing(), place.write("a"):
                    return call(depth - 1) + 1
            return 0

    call = gate.reads(count)
    with gate.writing(), place.write("a"):
        assert call(3) == 3
    assert not gate.busy
    assert gate.stats() == Stats(compiles=1)


def test_an_error_while_compiling_leaves_the_gate_as_it_was(crew: Crew) -> None:
    gate = Gate()

    def fails() -> object:
        with gate.writing():
            raise RuntimeError("the compiler is at a loss")

    for _ in range(3):
        with pytest.raises(RuntimeError, match="at a loss"):
            gate.reads(fails)()
    assert not gate.busy
    assert not gate.everybody.reading()
    crew.start(gate.reads(lambda: None), "another")
    crew.join()


@pytest.mark.parametrize("waits_to", ["read", "write", "read again"])
def test_an_interrupt_while_waiting_leaves_the_gate_as_it_was(
    waits_to: str, crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    go, inside = threading.Event(), threading.Event()

    def holds_it() -> None:
        with gate.writing():
            inside.set()
            go.wait(WATCHDOG_S)

    def interrupted(_: float) -> bool:
        raise KeyboardInterrupt

    def wait() -> None:
        if waits_to == "write":
            with gate.writing():
                pass
        elif waits_to == "read":
            gate.reads(lambda: None)()
        else:
            gate.reads(lends)()

    def lends() -> None:
        with gate.lending():
            start_writer()

    def start_writer() -> None:
        crew.start(holds_it, "writer")
        assert inside.wait(WATCHDOG_S)
        monkeypatch.setattr(gate.changed, "wait", interrupted)

    if waits_to != "read again":
        start_writer()
    with pytest.raises(KeyboardInterrupt):
        wait()
    monkeypatch.undo()
    go.set()
    crew.join()
    assert not gate.busy
    assert not gate.everybody.reading()
    with gate.writing():
        pass


def test_a_thread_that_dies_gives_its_place_back(crew: Crew) -> None:
    gate = Gate()

    def dies_reading() -> None:
        gate.begin_read()

    def dies_writing() -> None:
        gate.begin_write()
        gate.begin_read()

    crew.start(dies_reading, "reader").join(WATCHDOG_S)
    crew.start(dies_writing, "writer").join(WATCHDOG_S)
    assert gate.busy
    crew.start(gate.reads(lambda: None), "another reader").join(WATCHDOG_S)

    def write() -> None:
        with gate.writing():
            pass

    crew.start(write, "another writer")
    crew.join()
    assert not gate.busy


def test_a_long_wait_says_once_who_waits_for_whom(crew: Crew) -> None:
    lines: list[str] = []
    gate = Gate(say=lines.append, patience_s=0.0)
    go = threading.Event()

    def write() -> None:
        with gate.writing():
            pass

    crew.start(gate.reads(lambda: go.wait(WATCHDOG_S)), "drafter-1")
    until(lambda: bool(gate.everybody.reading()))
    crew.start(write, "drafter-2")
    until(lambda: bool(lines))
    crew.start(gate.reads(lambda: None), "drafter-3")
    until(lambda: len(lines) == 2)
    go.set()
    crew.join()
    assert [re.sub(r"waited \d+ s", "waited 0 s", line) for line in lines] == [
        "compile guard: drafter-2 has waited 0 s to compile; calling compiled code: drafter-1",
        "compile guard: drafter-3 has waited 0 s to call compiled code; "
        "calling compiled code: drafter-1; waiting to compile: drafter-2",
    ]


def test_the_child_of_a_fork_is_not_kept_out_by_threads_that_it_has_not_got(crew: Crew) -> None:
    gate = Gate()
    go = threading.Event()

    def write() -> None:
        with gate.writing():
            go.wait(WATCHDOG_S)

    crew.start(gate.reads(lambda: go.wait(WATCHDOG_S)), "reader")
    until(lambda: bool(gate.everybody.reading()))
    crew.start(write, "writer")
    until(lambda: wants_to_write(gate))
    # The moment of a fork, seen from the child: a foreign thread has the lock, and no foreign thread has a seat.
    with gate.changed:
        seats, gate.everybody.seats = gate.everybody.seats, weakref.WeakSet()
        old, wanting = gate.changed, list(gate.everybody.wanting)
        gate.forget_others()
        assert gate.changed is not old
        assert not gate.busy
        with gate.writing():
            pass
        # The parent goes on with what it had.
        gate.changed, gate.everybody.seats, gate.everybody.wanting[:] = old, seats, wanting
        gate.busy = True
    go.set()


def test_without_a_gil_every_reader_takes_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    gate = Gate()
    assert gate.busy
    taken: list[Seat] = []

    def admit(seat: Seat) -> Seat:
        taken.append(seat)
        return seat

    monkeypatch.setattr(gate, "_admit", admit)
    assert gate.reads(lambda: 5)() == 5
    assert len(taken) == 1
    with gate.writing():
        pass
    assert gate.busy


def test_a_thread_without_a_place_has_nothing_to_lend() -> None:
    gate = Gate()
    assert gate.only_waits()
    assert gate.reads(gate.only_waits)() is False
    with gate.writing():
        assert not gate.only_waits()
    assert gate.only_waits()
