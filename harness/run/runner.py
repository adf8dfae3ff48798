"""A run from its order to its record: prepare, start, follow, judge, write down."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from harness.findings import Diagnosis
from harness.pin import caches
from harness.pin.doctor.memory import known_sha256
from harness.pin.secrets import redacted
from harness.places import Places
from harness.records import (
    BuiltEnvironment,
    CacheState,
    Event,
    Fingerprint,
    Finished,
    Result,
    Run,
    RunSpec,
    Started,
    Status,
    Step,
    Summary,
    Value,
)
from harness.run import process, tags, telemetry
from harness.run.folder import RunFolder
from harness.run.follow import Follower
from harness.run.loaded import LoadedWatch, owners
from harness.run.logsteps import LogSteps, compiled
from harness.run.prepare import Prepared, check_startable, command, prepare, variables
from harness.run.verdict import Verdict, judge, kills_for_memory, outcome


class Observer(Protocol):
    """What is told of a run while it goes, for a person to see."""

    def started(self, folder: RunFolder, fingerprint: Fingerprint) -> None:
        """The folder is there and the child is about to start."""

    def event(self, event: Event) -> None:
        """The child did something; told within half a second."""

    def output(self, stream: str, text: str) -> None:
        """A command that is not ours wrote ``text`` to "stdout" or "stderr"."""


Mirror = Callable[[Path], AbstractContextManager[object]]
"""Given the run folder: a context entered before the child starts and left when the folder is complete."""


@dataclass(frozen=True)
class Order:
    """One run to make: what (``spec``), in what (``environment``), and from which code.

    code_folder  the child's working directory: the code's root, or wherever a command was given
    data         what HARNESS_DATA says, or None
    cold         start with an empty compile cache
    diagnosis    what the doctor found in the environment; None where it was not asked
    tags         names for the run
    """

    spec: RunSpec
    environment: BuiltEnvironment
    code_folder: Path
    data: Path | None = None
    cold: bool = False
    grace: float = process.GRACE_S
    diagnosis: Diagnosis | None = None
    tags: tuple[str, ...] = ()


def execute(order: Order, where: Places, observer: Observer, mirror: Mirror | None = None) -> Run:
    """Make the run and return its record, whatever its status is.

    Raises UsageError, with nothing started and no folder made, for a command, a GPU or an expression that is not
    there; an error of the harness itself ends the child, is written into the record, and is raised.
    """
    check_startable(order.spec)
    argv = command(order.spec, order.environment)
    log_steps = LogSteps(compiled(order.spec.tokens_regex)) if order.spec.tokens_regex else None
    folder = RunFolder.create(where.runs, order.spec.recipe or Path(order.spec.argv[0]).name)
    run = _Running(order, where, folder, observer, argv, log_steps)
    with folder.held():
        folder.write_json("result.json", Result("running", None, started_at=run.started_at).to_json())
        stored = order.spec if order.spec.recipe else dataclasses.replace(order.spec, argv=redacted(order.spec.argv))
        folder.write_json("spec.json", stored.to_json())
        tags.add(folder, order.tags)
        with ExitStack() as beside:
            try:
                run.prepare()
                beside.enter_context(mirror(folder.path) if mirror else nullcontext())
                run.go()
            except BaseException as error:
                run.give_up(error)
                raise
    return folder.load()


@dataclass
class _Running:
    """One run while it goes."""

    order: Order
    where: Places
    folder: RunFolder
    observer: Observer
    argv: tuple[str, ...]
    log_steps: LogSteps | None
    started_at: float = field(default_factory=time.time)
    fingerprint: Fingerprint = field(default_factory=lambda: Fingerprint({}))
    prepared: Prepared | None = None
    finished: list[Finished] = field(default_factory=list)  # of the child and of its workers, in order
    first_step: bool | None = None  # True between the first step and the look that it asks for: it has loaded much
    ended_at: float | None = None  # when the child did; writing the record down comes after

    def prepare(self) -> None:
        """Write down the place: fingerprint, code, lock and caches, before the child can change any of it."""
        spec, environment = self.order.spec, self.order.environment
        self.prepared = prepare(spec, environment, self.where, self.order.code_folder, self.order.cold)
        found = self.order.diagnosis.facts() if self.order.diagnosis else {}
        self._add_facts({**self.prepared.fingerprint.facts, **found})
        if self.prepared.code is not None:
            (self.folder.path / "code.patch").write_bytes(self.prepared.code.patch)
        if environment.lock is not None:
            shutil.copyfile(environment.lock.path, self.folder.path / "lock.txt")
        self._write_caches(self.prepared, None)

    def go(self) -> None:
        """Start the child, follow it to its end, end what it leaves behind, and write down how it ended."""
        assert self.prepared is not None
        order, folder, cache = self.order, self.folder.path, self.prepared.cache
        foreign = not order.spec.recipe
        child_variables = {
            **variables(order.spec, order.environment, self.where, order.code_folder, order.data),
            **cache.variables,
            "HARNESS_RUN": str(folder),
        }
        with caches.in_use(cache) as shared:
            self._add_facts({"state.cache.shared": shared})
            self.observer.started(self.folder, self.fingerprint)
            t0, kills = time.monotonic(), kills_for_memory()
            on_output = self.observer.output if foreign else None
            follower = Follower(folder, t0, self._on_event, on_output, self.log_steps)
            self._warn_of_environment(follower)
            if shared:
                follower.note(f"another run uses the compile cache {cache.path} at this time")
            child_variables["HARNESS_T0"] = repr(t0)
            stdin = None if foreign else subprocess.DEVNULL
            child = process.spawn(self.argv, order.code_folder, child_variables, folder, order.grace, stdin)
            # An impatient second Ctrl-C must not tear the record of a run that has already ended.
            with process.signals_taken(child.interrupt):
                self._follow(child, follower, t0)
                memory_ran_out = kills_for_memory() > kills
                stderr = folder / "stderr.log"
                code = child.process.returncode
                told = outcome(self.finished)
                self._conclude(judge(code, child.signals, told, not foreign, stderr, memory_ran_out))

    def _warn_of_environment(self, follower: Follower) -> None:
        """What makes a run's figures doubtful stands in its record and its summary, not only in its facts."""
        for finding in self.order.diagnosis.findings if self.order.diagnosis else ():
            if finding.severity in ("broken", "dangerous"):
                follower.note(f"the environment is {finding.severity}: {finding.summary}")

    def _follow(self, child: process.Child, follower: Follower, t0: float) -> None:
        known = known_sha256(self.order.diagnosis, self.where) if self.order.diagnosis else {}
        libraries = LoadedWatch([str(self.order.environment.site_packages.resolve())], known)

        def ended(seconds: float) -> bool:
            now = time.monotonic() - t0
            if libraries.due(now) or self.first_step:
                self.first_step = False
                libraries.sample(child.pids(), now)
            return child.wait(seconds) is not None

        try:
            with telemetry.running(self.folder.path, child.pid, t0):
                follower.until(ended)
        finally:
            killed = child.close()
        self.ended_at = time.time()
        self._add_facts(libraries.facts(owners(self.order.environment.python)))
        libraries.close()
        if killed and not child.signals:
            follower.note(f"{len(killed)} of its processes outlived the run, ignored SIGTERM and were killed")
        follower.poll()
        if self.log_steps is not None and not self.log_steps.found:
            follower.note(f"--tokens-regex {self.log_steps.expression.pattern!r} matched no line: no step was counted")
            follower.poll()

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Started) and event.facts:
            self._add_facts(event.facts)
        elif isinstance(event, Finished):
            self.finished.append(event)
        elif isinstance(event, Step):
            self.first_step = self.first_step is None or self.first_step
        self.observer.event(event)

    def _conclude(self, verdict: Verdict) -> None:
        """``result.json`` comes last: whoever follows the folder takes it for the end."""
        from harness.run.columns import write_columns  # pyarrow and scipy take a second to load: not before the child

        assert self.prepared is not None
        after = caches.inventory(self.prepared.cache.variables)
        self._write_caches(self.prepared, after)
        summary = _summary(self.folder, self.prepared.cache_before)
        self._add_facts({"state.cache.start": summary.cache_start})
        write_columns(self.folder.path)
        self._end(verdict.status, verdict.exit_code, verdict.signal, verdict.reason, summary)

    def give_up(self, error: BaseException) -> None:
        """The harness itself failed or was interrupted: the record says so as far as it got."""
        status: Status
        if isinstance(error, KeyboardInterrupt):
            status, reason = "killed", "stopped by Ctrl-C before the child ran"
        else:
            status, reason = "failed", f"the harness failed: {type(error).__name__}: {error}"
        before = self.prepared.cache_before if self.prepared else None
        self._end(status, None, None, reason, _summary(self.folder, before))

    def _end(self, status: Status, exit_code: int | None, number: int | None, reason: str, summary: Summary) -> None:
        result = Result(status, exit_code, number, reason, self.started_at, self.ended_at or time.time(), summary)
        self.folder.write_json("result.json", result.to_json())

    def _write_caches(self, prepared: Prepared, after: CacheState | None) -> None:
        states = {"before": prepared.cache_before, "after": after}
        data = {name: dataclasses.asdict(state) if state else None for name, state in states.items()}
        self.folder.write_json("caches.json", {"root": str(prepared.cache.path), **data})

    def _add_facts(self, facts: Mapping[str, Value]) -> None:
        self.fingerprint = Fingerprint({**self.fingerprint.facts, **facts})
        self.folder.write_json("fingerprint.json", self.fingerprint.to_json())


def _summary(folder: RunFolder, before: CacheState | None) -> Summary:
    from harness.run.summary import summarise

    return summarise(folder.events(), before)


def reap(folder: RunFolder) -> Result | None:
    """Write down the end of a run whose harness died, and end what is left of it; None for any other run.

    Raises RecordError where the folder is no run.
    """
    run = folder.load()
    data = folder.read_json("result.json")
    if folder.alive or (data is not None and data["status"] != "running"):
        return None
    with folder.held():
        process.end_left_over(folder.path)
        ended = max((path.stat().st_mtime for path in folder.path.glob("*.jsonl")), default=None)
        result = dataclasses.replace(run.result, ended_at=ended, summary=_summary(folder, run.cache_before))
        folder.write_json("result.json", result.to_json())
    return result
