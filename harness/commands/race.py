"""``harness race``: compile from several threads in child processes, many times over, and count how that ends."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import click
from rich.console import Console

from harness.commands.terminal import as_json, err, out, print_json, say
from harness.errors import INTERRUPTED, UsageError
from harness.figures import counted_text
from harness.mirror.race import RECORD, TABLE, mirror_race
from harness.pin import environments, gpus
from harness.pin.code import read_code
from harness.pin.machine import gpu_facts, machine_facts
from harness.places import Places, places
from harness.records import BuiltEnvironment, Value
from harness.run.folder import RunFolder
from harness.run.orders import built
from harness.run.race.attempt import Runner
from harness.run.race.grid import BACKENDS, GUARDS, SHAPES, Grid, Place, unique
from harness.run.race.record import Race, Tally, Try
from harness.view import race as view

Show = Callable[[str], None]


@click.command()
@click.option(
    "--env", "envs", multiple=True, default=("cpu",), show_default=True, help="An environment; may be repeated."
)
@click.option(
    "--guard",
    "guards",
    multiple=True,
    type=click.Choice(GUARDS),
    default=("none", "compile_guard"),
    show_default=True,
    help="What is done against it; may be repeated.",
)
@click.option(
    "--backend",
    "backends",
    multiple=True,
    type=click.Choice(BACKENDS),
    default=BACKENDS,
    show_default=True,
    help="May be repeated.",
)
@click.option(
    "--shapes",
    multiple=True,
    type=click.Choice(SHAPES),
    default=SHAPES,
    show_default=True,
    help="changing: lengths change on the way, so that threads compile again; may be repeated.",
)
@click.option("--backward", is_flag=True, help="With backward: on the CPU, where flex_attention has none, of an MLP.")
@click.option("--threads", default=3, show_default=True, type=click.IntRange(1, 64), help="Threads in a child.")
@click.option("--tries", default=3, show_default=True, type=click.IntRange(1, 10_000), help="Children a cell.")
@click.option(
    "--timeout", default=300, show_default=True, type=click.IntRange(1), help="Seconds after which one hangs."
)
@as_json
def race(
    envs: Sequence[str],
    guards: Sequence[str],
    backends: Sequence[str],
    shapes: Sequence[str],
    backward: bool,
    threads: int,
    tries: int,
    timeout: int,
    json_: bool,
) -> int:  # fmt: skip
    """Show whether compiling from threads holds here: each way of doing it, in children that may die of it.

    Every child compiles anew: it has a compile cache of the race's own, in which only what the C++ compiler made is
    kept from one try to the next. Your own caches are not touched. What does not pass is a tracing error (the
    RuntimeError "... FX to symbolically trace a dynamo-optimized function"), a segfault, a hang, a wrong result, or
    another error; each is told with the first lines of its stack.

    \b
    Guards:
      none            every thread calls its compiled function, and compiles when it has to
      flag            the flag that a tracing thread sets is one of each thread, as in torch 2.14
      first-call      a lock around each thread's first call
      both            flag and first-call
      shim            the check of that flag always says no
      warm-up         one thread makes everybody's first call, before the others start
      compile_guard   nobody calls while anybody compiles: python -m harness.run.compile_guard

    \b
    Exit code: 0 where every try passed, 1 otherwise.
    Examples:
      harness race
      harness race --env cu130-race --guard none --backend aot_eager --tries 10
    """
    where = places()
    found = [environments.environment(name, where) for name in unique(envs)]  # all of them, before one is built
    for env in found:
        if _torch(env.name, where) is None:
            raise UsageError(
                f"{env.name} has no torch to compile with: harness envs shows which have; nothing was started"
            )
    homes = {env.name: built(env.name, where, say=say) for env in found}
    grid = Grid(
        tuple(_place(home, where) for home in homes.values()),
        unique(backends), unique(guards), unique(shapes), backward, threads, tries, timeout,
    )  # fmt: skip
    made = Race.begin(where.state / "races", grid, _facts(where))
    runner = Runner(grid, {name: home.python for name, home in homes.items()}, made.folder, where.root)
    cells, each = counted_text(len(grid.cells()), "cell"), counted_text(tries, "try", "tries")
    say(f"{cells}, {each} each, in {made.folder}")
    try:
        _play(made, runner)
    except KeyboardInterrupt:
        made.interrupted = True
        say("stopped by Ctrl-C: this is what was done")
    try:
        return _report(made, where, json_)
    finally:
        runner.remove_cache()


def _torch(name: str, where: Places) -> str | None:
    """The version of torch in the environment's lock."""
    env = environments.environment(name, where)
    lock = environments.lock_for(env, environments.by_preference(env)[0], where)
    return next((pin.version for pin in lock.pins if pin.name == "torch"), None)


def _place(home: BuiltEnvironment, where: Places) -> Place:
    """On a machine with a GPU, an environment with CUDA is tried on it: there flex_attention has a backward."""
    with gpus.opened() as cards:
        cuda = bool(cards.cards) and environments.environment(home.name, where).cuda is not None
    return Place(home.name, _torch(home.name, where) or "", "cuda" if cuda else "cpu")


def _facts(where: Places) -> dict[str, Value]:
    """The machine, and the code that was tried."""
    with gpus.opened() as cards:
        facts = {**machine_facts(), **gpu_facts(cards)}
    code = read_code(where.root, (where.runs, where.state))
    return facts | (code.facts() if code else {})


def _play(made: Race, runner: Runner) -> None:
    """Make every try, in order, shown while it goes."""
    cells = made.grid.cells()
    with _progress() as show:
        for index, cell in enumerate(cells, 1):
            tally = Tally(cell)
            show(view.so_far(tally, made.grid.tries, index, len(cells)))
            for number, (verdict, seconds) in enumerate(runner.attempts(cell), 1):
                each = Try(cell, number, verdict, seconds, time.time() - seconds)
                made.add(each)
                tally.add(each)
                if verdict.outcome != "passed":
                    err.print(view.failure(each), soft_wrap=True)
                show(view.so_far(tally, made.grid.tries, index, len(cells)))
            say(view.so_far(tally, made.grid.tries, index, len(cells)))


@contextmanager
def _progress() -> Iterator[Show]:
    """A line that changes in place in a terminal; elsewhere what fails and the end of each cell are enough."""
    if not err.is_terminal:
        yield lambda _: None
        return
    with err.status("") as status:
        yield lambda text: status.update(text)


def _report(made: Race, where: Places, json_: bool) -> int:
    """Write the record, send it to MLflow, and print what came of it; the exit code."""
    drawn = view.table(made.tallies(), made.grid.tries)
    text = Console(file=io.StringIO(), width=160)
    text.print(drawn)
    record = RunFolder(made.folder)
    record.write_text(TABLE, text.file.getvalue())  # type: ignore[attr-defined]  # a StringIO
    record.write_json(RECORD, made.to_json())
    mirrored = mirror_race(made.folder, where)
    if json_:
        print_json({**made.to_json(), "mlflow_run_id": mirrored.mlflow_run_id})
    else:
        out.print(drawn)
    if mirrored.status == "failed":
        say(f"warning: not in MLflow: {mirrored.reason}")
    say(f"kept: {made.folder}")
    if made.interrupted:
        return INTERRUPTED
    return 0 if made.passed else 1
