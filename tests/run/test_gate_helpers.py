"""The gate where a thread waits for others that work for it, as a caller of backward waits for autograd's threads."""

from __future__ import annotations

import contextlib
import random
import sys
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.run.halls import Hall
from tests.run.gate_crew import WATCHDOG_S, Crew, Helpers, Place


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
