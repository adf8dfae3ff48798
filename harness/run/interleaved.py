"""New runs of two sides, taken in turns: what each side runs, in which order, and about how long it will take.

All of A and then all of B would lay the machine's drift (heat, other people's load, a cache that fills) at one side's
door. Here every pair of runs has one of each side, and which comes first follows the Thue-Morse sequence: AB BA, BA AB,
... So a steady drift falls on both sides alike with 2, 4, 6 runs a side, and one that speeds up with 4, 8, 12. How many
there are is fixed before the first one: whoever looks, and goes on until something shows, finds what is not there.
"""

from __future__ import annotations

import math
import shlex
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from harness.errors import RecordError, UsageError
from harness.pin.aside import Say, say_on_stderr
from harness.pin.code import Code, read_code
from harness.pin.restore import restored
from harness.places import Places
from harness.records import Result
from harness.run.folder import RunFolder, run_folders
from harness.run.orders import recipe_order
from harness.run.prepare import command
from harness.run.references import side
from harness.run.rerun import plan_rerun, recorded_image
from harness.run.resolve import resolve
from harness.run.runner import Order

Turn = Literal["A", "B"]

ENOUGH = 4
"""Runs a side from which on a permutation test can say 0.05: 4 against 4 fall into two halves in 70 ways."""

REMEMBERED = 200
"""The latest runs that are asked how long such a run takes."""


def turns(repeat: int) -> tuple[Turn, ...]:
    """``repeat`` runs of each side, in the order in which they are made: ABBA BAAB ..."""
    pairs: tuple[tuple[Turn, Turn], ...] = (("A", "B"), ("B", "A"))
    return tuple(turn for number in range(repeat) for turn in pairs[number.bit_count() % 2])


def smallest_p(repeat: int) -> float:
    """The least that a two-sided permutation test can say of so many runs a side: both halvings that are extreme."""
    return 2 / math.comb(2 * repeat, repeat)


@dataclass(frozen=True)
class Contender:
    """One side: what a person asked for, the order that makes one run of it, and what to know of that."""

    asked: str
    order: Order
    remarks: tuple[str, ...] = ()


def contender(asked: str, where: Places, cold: bool = False, say: Say = say_on_stderr) -> Contender:
    """What ``asked`` means, with its environment built: a recipe or a recorded run, and ``key=value`` after it.

    Raises UsageError for what is neither, HarnessError and EnvironmentFault where it cannot be had (again).
    """
    try:
        first, *overrides = shlex.split(asked)
    except ValueError as error:
        raise UsageError(
            f'{asked!r} is not a recipe with its settings; write it in quotes: "toy steps=9" ({error})'
        ) from None
    if first[:1] in ("@", ".", "/") or first[:1].isdecimal():
        found = _again(asked, first, overrides, where, cold, say)
    else:
        found = Contender(asked, recipe_order(resolve(first, overrides), where, cold, say))
    command(found.order.spec, found.order.environment)  # a program that is not there is said now
    return found


def _again(asked: str, name: str, overrides: Sequence[str], where: Places, cold: bool, say: Say) -> Contender:
    folders = side(where.runs, name).folders
    if len(folders) > 1:
        raise UsageError(f"{name} is {len(folders)} runs: name the one to run again, or a recipe")
    run = folders[0].load()
    image = recorded_image(run)
    if image is not None and not image.is_here:
        raise UsageError(f"run {run.id} was made in the image {image.tag}: ask the harness in that image")
    again = plan_rerun(run, overrides, where, cold, say)
    return Contender(asked, again.order, again.remarks)


def code_of(order: Order, where: Places) -> Code | None:
    """The code that a run of ``order`` would have now; None where it is not in git."""
    return read_code(order.code_folder, (where.runs, where.state))


def with_code(order: Order, begun: Code | None, where: Places) -> Order:
    """``order`` with the code ``begun``: in a worktree of it, where somebody has changed the code since.

    A run of an hour is time enough to edit a file; then the sides would differ by more than they were asked to.
    """
    now = code_of(order, where)
    if begun is None or now is None or (now.commit, now.patch) == (begun.commit, begun.patch):
        return order
    tree = restored(begun.root, begun.commit, begun.patch, where.state / "worktrees")
    return replace(order, code_folder=tree / order.code_folder.resolve().relative_to(begun.root.resolve()))


def usual_seconds(runs: Path, spec_id: str) -> float | None:
    """How long a run of this spec takes: the median of the finished ones among the latest; None where there is none."""
    took = [seconds for folder in run_folders(runs)[:REMEMBERED] if (seconds := _took(folder, spec_id)) is not None]
    return statistics.median(took) if took else None


def _took(folder: RunFolder, spec_id: str) -> float | None:
    try:
        if (folder.read_json("spec.json") or {}).get("id") != spec_id:
            return None
        result = Result.from_json(folder.read_json("result.json") or {})
    except (RecordError, TypeError):  # a record that cannot be read tells no time
        return None
    return None if result.status != "finished" or result.ended_at is None else result.ended_at - result.started_at


def seconds_left(left: Sequence[Turn], seconds: Mapping[Turn, float | None]) -> float | None:
    """How long the turns that are left will take; None where nobody knows how long one of them takes."""
    known = [seconds[turn] for turn in left]
    return None if None in known else sum(value for value in known if value is not None)
