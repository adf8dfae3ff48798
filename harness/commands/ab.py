"""``harness ab``: new runs of two sides in turns, and then what explains the difference between them."""

from __future__ import annotations

import os
import select
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import click

from harness import figures
from harness.commands.compare import as_html, explain_sides, within
from harness.commands.running import cold_start, no_verify
from harness.commands.terminal import as_json, err, hashing, say
from harness.errors import INTERRUPTED, HarnessError, UsageError
from harness.explained import Group
from harness.launch import reap_dead, start
from harness.pin.code import Code
from harness.places import Places, places, program
from harness.records import Run
from harness.run import tags
from harness.run.guard import verified
from harness.run.interleaved import (
    ENOUGH,
    Contender,
    Turn,
    code_of,
    contender,
    seconds_left,
    smallest_p,
    turns,
    usual_seconds,
    with_code,
)
from harness.run.runner import Order

SIDES: tuple[Turn, Turn] = ("A", "B")


@click.command()
@click.argument("spec_a")
@click.argument("spec_b")
@click.option(
    "--repeat", default=ENOUGH, show_default=True, type=click.IntRange(1, 1000), help="Runs a side, fixed beforehand."
)
@click.option("--name", default="", metavar="NAME", help="The runs are tagged NAME-a and NAME-b.")
@cold_start
@no_verify
@as_html
@within
@as_json
def ab(
    spec_a: str,
    spec_b: str,
    repeat: int,
    name: str,
    cold: bool,
    no_verify: bool,
    html: Path | None,
    margin: float,
    json_: bool,
) -> int:
    """Run A and B in turns (ABBA BAAB ...), and then explain B against A.

    A and B are each a recipe or a recorded RUN, with settings after it, in quotes.

    \b
    Exit code: as harness explain; 1 where a run failed, which ends it.
    Examples:
      harness ab toy "toy slow.forward=0.01"
      harness ab @1 "@1 train.batch=16" --repeat 6 --name batch
    """
    where = places()
    name = _free(name or f"ab-{time.strftime('%m%d-%H%M%S')}", where)
    reap_dead(where)
    sides = {turn: contender(spec, where, cold, say) for turn, spec in zip(SIDES, (spec_a, spec_b), strict=True)}
    with hashing(disable=json_) as progress:
        for each in sides.values():
            verified(each.order, where, say, no_verify, progress)
    sides = {turn: _tagged(each, _tag(name, turn)) for turn, each in sides.items()}
    match = Match(sides, turns(repeat), where, {turn: code_of(each.order, where) for turn, each in sides.items()})
    _show_plan(match, repeat, name, cold)
    try:
        with _ctrl_c() as pressed:
            code = _play(match, no_verify, pressed)
    except BaseException:
        _say_kept(name, where)
        raise
    if code:
        _say_kept(name, where)
        return code
    _say_caches(match)
    before, after = (Group(f"@{_tag(name, turn)}", tags.tagged(where.runs, _tag(name, turn))) for turn in SIDES)
    say(f"the same again: {_explain(name)}")
    return explain_sides(before, after, where, json_, html, margin / 100)


@dataclass
class Match:
    """The runs to make, and those that are made."""

    sides: dict[Turn, Contender]
    turns: tuple[Turn, ...]
    where: Places
    code: dict[Turn, Code | None]
    made: dict[Turn, list[Run]] = field(default_factory=lambda: {"A": [], "B": []})
    took: dict[Turn, list[float]] = field(default_factory=lambda: {"A": [], "B": []})  # with all that is around a run

    def seconds(self, turn: Turn) -> float | None:
        """How long a run of this side takes: as those made so far, or else as history has it."""
        took = self.took[turn]
        return statistics.mean(took) if took else usual_seconds(self.where.runs, self.sides[turn].order.spec.id)

    def order(self, turn: Turn) -> Order:
        """The next run of this side, with the code as it was when all began."""
        order = self.sides[turn].order
        same = with_code(order, self.code[turn], self.where)
        if same.code_folder != order.code_folder:
            say(f"the code has changed since the first run: it runs from {same.code_folder}, which has it as it was")
        return same

    def left(self, done: int) -> str:
        """``, about 2:10 left``; empty where nobody knows."""
        seconds = seconds_left(self.turns[done:], {turn: self.seconds(turn) for turn in SIDES})
        return "" if seconds is None else f", about {figures.duration(seconds)} left"

    def so_far(self) -> str:
        """``; so far A 21.5 Ktok/s (2 runs), B 12.8 Ktok/s (1 run)``."""
        parts = []
        for turn in SIDES:
            rates = [s.value for run in self.made[turn] if (s := run.result.summary.throughput_tok_s)]
            if rates:
                count = figures.counted_text(len(rates), "run")
                parts.append(f"{turn} {figures.digits(statistics.geometric_mean(rates) / 1000)} Ktok/s ({count})")
        return f"; so far {', '.join(parts)}" if parts else ""


@contextmanager
def _ctrl_c() -> Iterator[Callable[[], bool]]:
    """Asks whether Ctrl-C came since it was last asked, whoever took it.

    A run that has ended, and the wait for its mirror, take a Ctrl-C for themselves so that the record is whole.
    """
    read, write = os.pipe()
    os.set_blocking(write, False)
    before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    try:
        yield lambda: bool(select.select([read], [], [], 0)[0]) and signal.SIGINT in os.read(read, 4096)
    finally:
        signal.set_wakeup_fd(before)
        os.close(read)
        os.close(write)


def _play(match: Match, no_verify: bool, pressed: Callable[[], bool]) -> int:
    """Make the runs; 0, or INTERRUPTED where Ctrl-C was pressed in one. Raises HarnessError where one failed."""
    total = len(match.turns)
    for number, turn in enumerate(match.turns, 1):
        say(f"run {number} of {total}: {turn}, {match.sides[turn].asked}{match.left(number - 1)}{match.so_far()}")
        began = time.monotonic()
        order = verified(match.order(turn), match.where, lambda _: None, no_verify)
        run, mirrored, _ = start(order, match.where, err, quiet_stdout=True, against=False)
        match.made[turn].append(run)
        match.took[turn].append(time.monotonic() - began)
        if mirrored.startswith("warning"):
            say(mirrored)
        if pressed() or (run.result.status == "killed" and run.result.signal == signal.SIGINT):
            say(f"stopped by Ctrl-C in run {number} of {total}")
            return INTERRUPTED
        if run.result.status != "finished":
            reason = run.result.reason or "it did not say why"
            raise HarnessError(f"run {number} of {total} ({turn}) {run.result.status}, so no more are made: {reason}")
    say(f"{total} runs made{match.so_far()}")
    return 0


def _free(name: str, where: Places) -> str:
    """``name``, checked. Raises UsageError where its tags have runs: more of them would be looking twice."""
    for tag in tags.checked(_tag(name, turn) for turn in SIDES):
        if there := tags.tagged(where.runs, tag):
            raise UsageError(
                f"--name {name}: {len(there)} runs have the tag {tag} already, and runs that are added after a look "
                "are no test; take another name"
            )
    return name


def _tag(name: str, turn: Turn) -> str:
    return f"{name}-{turn.lower()}"


def _tagged(each: Contender, tag: str) -> Contender:
    return replace(each, order=replace(each.order, tags=(tag,)))


def _show_plan(match: Match, repeat: int, name: str, cold: bool) -> None:
    """What will happen, before anything does."""
    for turn, each in match.sides.items():
        say(f"{turn}: {each.asked}, tagged {_tag(name, turn)}")
        for remark in each.remarks:
            say(f"   {remark}")
    order = "".join(match.turns)
    grouped = " ".join(order[start : start + 4] for start in range(0, len(order), 4))
    seconds = seconds_left(match.turns, {turn: match.seconds(turn) for turn in SIDES})
    about = (
        f"about {figures.duration(seconds)}" if seconds is not None else "how long is not known: none was made before"
    )
    shown = grouped if len(grouped) < 60 else f"{grouped[:59]} ..."
    say(f"{len(order)} runs, {shown}: {about}")
    first, second = (each.order for each in match.sides.values())
    if (first.spec, first.environment, first.code_folder) == (second.spec, second.environment, second.code_folder):
        say("A and B are the same: what differs will be how much runs vary here")
    if repeat < ENOUGH:
        say(
            f"{repeat} a side are no test by themselves (the smallest p they can give is {smallest_p(repeat):.2g}): "
            f"how much such runs vary judges them; from --repeat {ENOUGH} on it is a test"
        )
    if cold:
        say("every run starts with an empty compile cache of its own")
    else:
        say(
            "a first run that finds the compile cache cold fills it for the others: that shows in its time to the "
            "first step, and not in steady state"
        )


def _say_caches(match: Match) -> None:
    """Where a side's runs did not all start with the same cache, its times to the first step are of two kinds."""
    for turn, runs in match.made.items():
        starts = [run.result.summary.cache_start for run in runs]
        if len(set(starts)) > 1:
            say(
                f"the runs of {turn} started with the compile cache {', '.join(starts)}: their times to the first step "
                "are of different kinds; ask again for warm starts alone, or with --cold"
            )


def _say_kept(name: str, where: Places) -> None:
    """What is there when it ends early, and how to compare it."""
    groups = [tags.tagged(where.runs, _tag(name, turn)) for turn in SIDES]
    for turn, folders in zip(SIDES, groups, strict=True):
        if folders:
            say(f"kept, {turn}: {', '.join(folder.id for folder in folders)}")
    if all(groups):
        say(f"compare what is there: {_explain(name)}")


def _explain(name: str) -> str:
    return f"{program()} explain @{_tag(name, 'A')} @{_tag(name, 'B')}"
