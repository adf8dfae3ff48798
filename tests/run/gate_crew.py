"""What the tests of the gate share: threads under a watchdog, helpers as autograd has them, and who is where."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from harness.run.gate import Gate

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
