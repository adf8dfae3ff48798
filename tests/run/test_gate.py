"""The gate by itself: plain Python stands in for compiled functions, and a watchdog for patience with a deadlock."""

from __future__ import annotations

import contextlib
import random
import re
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.run.gate import Gate, Hall, Seat, Stats

WATCHDOG_S = 30.0
"""No test waits for this long unless something hangs; then the test fails and says who."""


class Crew:
    """Threads of one test, which must all end, and whose errors are the test's."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        self.threads: list[threading.Thread] = []

    def start(self, work: Callable[[], object], name: str) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                self.errors.append(error)

        thread = threading.Thread(target=run, name=name, daemon=True)  # a hung one must not hold pytest
        self.threads.append(thread)
        thread.start()
        return thread

    def join(self) -> None:
        until = time.monotonic() + WATCHDOG_S
        for thread in self.threads:
            thread.join(max(0.0, until - time.monotonic()))
        hung = [thread.name for thread in self.threads if thread.is_alive()]
        assert not hung, f"deadlock: {', '.join(hung)}"
        if self.errors:
            raise self.errors[0]


@pytest.fixture
def crew() -> Iterator[Crew]:
    crew = Crew()
    yield crew
    crew.join()


class Helpers:
    """Stands for autograd's threads: each works for the hall that its caller lent, as ThreadLocalState hands it on."""

    def __init__(self) -> None:
        self._local = threading.local()
        self.gate = Gate(lambda: getattr(self._local, "hall", None), patience_s=WATCHDOG_S)

    def work(self, crew: Crew, work: Callable[[], object], name: str) -> None:
        """Let another thread do ``work`` and wait for it, as a caller of ``backward`` waits in the engine."""
        inherited = getattr(self._local, "hall", None)  # a helper's helper is of the same work
        with self.gate.lending() as hall:
            done = threading.Event()

            def help_out() -> None:
                self._local.hall = hall or inherited
                try:
                    work()
                finally:
                    del self._local.hall
                    done.set()

            crew.start(help_out, name)
            assert done.wait(WATCHDOG_S), f"deadlock: {name} works for one who waits for it"


class Place:
    """Who is where, as the work itself sees it; a read beside a foreign write is an error, as are two writes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reading: dict[str, int] = {}
        self._writing: list[str] = []
        self.most_readers = 0

    @contextlib.contextmanager
    def read(self, chain: str) -> Iterator[None]:
        with self._lock:
            assert set(self._writing) <= {chain}, f"{chain} calls while {self._writing} compile"
            self._reading[chain] = self._reading.get(chain, 0) + 1
            self.most_readers = max(self.most_readers, sum(count > 0 for count in self._reading.values()))
        try:
            yield
        finally:
            with self._lock:
                self._reading[chain] -= 1

    @contextlib.contextmanager
    def write(self, chain: str) -> Iterator[None]:
        with self._lock:
            others = {name for name, count in self._reading.items() if count and name != chain}
            assert not others, f"{chain} compiles while {others} call"
            assert set(self._writing) <= {chain}, f"{chain} compiles while {self._writing} compile"
            self._writing.append(chain)
        try:
            yield
        finally:
            with self._lock:
                self._writing.remove(chain)


def until(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + WATCHDOG_S
    while not condition():
        assert time.monotonic() < limit, "what the test waits for does not come"
        time.sleep(0.001)


def wants_to_write(gate: Gate) -> bool:
    return bool(gate.everybody.wanting)


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


def test_a_reader_waits_in_the_engine_for_a_helper_that_compiles(crew: Crew) -> None:
    """``backward`` called within compiled code: on CUDA another thread compiles it, and its caller holds a read."""
    helpers = Helpers()
    gate, place = helpers.gate, Place()

    def compiled_backward() -> None:
        with gate.writing(), place.write("chain"):
            pass

    @gate.reads
    def call() -> str:
        helpers.work(crew, gate.reads(compiled_backward), "autograd")
        with place.read("chain"):
            return "done"

    crew.start(lambda: call() == "done" or pytest.fail("no result"), "caller")
    crew.join()
    assert not gate.busy


@pytest.mark.parametrize("helper_does", ["read", "write", "read, then write", "write, then read"])
def test_a_writer_waits_in_the_engine_for_a_helper_of_its_own(helper_does: str, crew: Crew) -> None:
    helpers = Helpers()
    gate, place = helpers.gate, Place()
    stranger = gate.reads(lambda: place.read("stranger").__enter__())

    def read() -> None:
        with place.read("chain"):
            if helper_does == "read, then write":
                write()

    def write() -> None:
        with gate.writing(), place.write("chain"):
            if helper_does == "write, then read":
                gate.reads(lambda: place.read("chain").__enter__())()

    def compile_it() -> None:
        with gate.writing(), place.write("chain"):
            crew.start(stranger, "stranger")
            helpers.work(crew, write if helper_does.startswith("write") else gate.reads(read), "autograd")

    crew.start(compile_it, "caller")
    crew.join()
    assert not gate.busy


def test_chains_of_helpers_nest_and_two_helpers_of_one_chain_compile_one_after_the_other(crew: Crew) -> None:
    helpers = Helpers()
    gate = helpers.gate
    compiling: list[str] = []

    def compile_part(name: str) -> None:
        with gate.writing():
            compiling.append(name)
            assert len(compiling) == 1, f"{compiling} at once"
            time.sleep(0.005)
            compiling.remove(name)

    def compile_it() -> None:
        with gate.writing(), gate.lending() as hall:
            devices = [threading.Event(), threading.Event()]
            for number, done in enumerate(devices):

                def device(number: int = number, done: threading.Event = done) -> None:
                    helpers._local.hall = hall
                    for _ in range(3):
                        compile_part(f"cuda:{number}")
                        with gate.writing():
                            helpers.work(crew, gate.reads(lambda: None), f"deep {number}")
                    done.set()

                crew.start(device, f"cuda:{number}")
            for done in devices:
                assert done.wait(WATCHDOG_S)

    crew.start(compile_it, "caller")
    crew.join()
    assert gate.stats().compiles == 1  # the helpers' are part of it


def test_a_helper_that_outlives_its_writer_is_waited_for_and_then_sits_outside(crew: Crew) -> None:
    """The engine gives up at the first error, while its other threads still run what they had begun."""
    helpers = Helpers()
    gate, place = helpers.gate, Place()
    began, go, ended = threading.Event(), threading.Event(), threading.Event()

    def late(hall: Hall | None) -> None:
        helpers._local.hall = hall

        @gate.reads
        def node() -> None:
            with place.read("chain"):
                began.set()
                go.wait(WATCHDOG_S)

        node()
        ended.wait(WATCHDOG_S)
        assert hall is not None
        assert hall.over
        gate.reads(lambda: place.read("helper").__enter__())()

    def compile_it() -> None:
        with gate.writing(), place.write("chain"), gate.lending() as hall:
            crew.start(lambda: late(hall), "late")
            assert began.wait(WATCHDOG_S)
            threading.Timer(0.01, go.set).start()
            raise ValueError("elsewhere in the graph")

    def caller() -> None:
        with pytest.raises(ValueError, match="elsewhere"):
            compile_it()
        ended.set()

    crew.start(caller, "caller")
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


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), threads=st.integers(2, 4))
def test_no_interleaving_lets_a_reader_beside_a_foreign_writer_or_two_writers_in(seed: int, threads: int) -> None:
    """Random programs of calls, compiles, errors and helpers, switched between threads as often as Python allows."""
    helpers, crew, place = Helpers(), Crew(), Place()
    gate = helpers.gate

    def act(random: random.Random, chain: str, depth: int) -> None:
        for _ in range(random.randrange(1, 4)):
            kind = random.choice(["read", "read", "read", "write", "help", "error"]) if depth < 4 else "nothing"
            if kind == "read":
                gate.reads(lambda: inside(random, chain, depth))()
            elif kind == "write":
                with gate.writing(), place.write(chain):
                    act(random, chain, depth + 1)
            elif kind == "help":
                helpers.work(crew, lambda: act(random, chain, depth + 1), f"helper of {chain}")
            elif kind == "error":
                with contextlib.suppress(LookupError), gate.writing(), place.write(chain):
                    raise LookupError

    def inside(random: random.Random, chain: str, depth: int) -> None:
        with place.read(chain):
            time.sleep(0)
        act(random, chain, depth + 1)  # a compile or a helper of a reader's own: it gave up its place for that

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for number in range(threads):
            chain = f"chain {number}"
            crew.start(lambda c=chain, n=number: act(random.Random(seed + n), c, 0), chain)  # type: ignore[misc]
        crew.join()
    finally:
        sys.setswitchinterval(interval)
    assert not gate.busy
    assert not gate.everybody.reading()


def test_a_thread_without_a_place_has_nothing_to_lend() -> None:
    gate = Gate()
    assert gate.only_waits()
    assert gate.reads(gate.only_waits)() is False
    with gate.writing():
        assert not gate.only_waits()
    assert gate.only_waits()
