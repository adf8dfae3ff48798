"""Composes an explanation: run folders in, one at a time, and the answer out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from harness.comparison import Explanation, History, Measured, Side
from harness.errors import UsageError
from harness.explain.comparing.comparable import work
from harness.explain.explain import explain
from harness.explain.judging.judge import MARGIN
from harness.explain.measuring.measure import measure
from harness.figures import counted_text
from harness.run.folder import RunFolder
from harness.run.gather import gather
from harness.run.history import Past, baseline_of, earlier, way_of

MOST_BEFORE = 20
"""Earlier runs of a workload that stand for "before", where no baseline is chosen."""

Say = Callable[[str], None]


class Group(NamedTuple):
    """One side, before it is read."""

    name: str
    folders: tuple[RunFolder, ...]


def measured(group: Group, say: Say = lambda _: None) -> Side:
    """The runs of ``group``, each read and reduced before the next one is read."""
    runs: list[Measured] = []
    for folder in group.folders:
        say(f"reading {folder.id} ...")
        runs.append(measure(gather(folder)))
    return Side(group.name, tuple(runs))


def answer(before: Group, after: Group, runs: Path, margin: float = MARGIN, say: Say = lambda _: None) -> Explanation:
    """The explanation of ``after`` against ``before``; ``runs`` holds the history that single runs are judged by.

    Raises UsageError where a run stands on both sides.
    """
    twice = {f.path.resolve() for f in before.folders} & {f.path.resolve() for f in after.folders}
    if twice:
        raise UsageError(f"{next(iter(twice)).name} is on both sides; name two different runs: harness runs lists them")
    first, second = measured(before, say), measured(after, say)
    return explain(first, second, _history(runs, (*before.folders, *after.folders)), margin)


def before_of(folder: RunFolder, runs: Path) -> Group | None:
    """What a run is held against: its workload's baseline, else runs of the same workload before it, else None.

    Of those, the ones that were executed alike, in one environment; else the latest, and what was executed as it was:
    runs of several ways together would hide what each of them does.
    """
    chosen = baseline_of(runs, folder, work)
    if chosen is not None and chosen.path.resolve() != folder.path.resolve():
        return Group(f"baseline {chosen.id}", (chosen,))
    past = earlier(runs, folder, work)
    if not past:
        return None
    ways = [e.way for e in past]
    way = mine if (mine := way_of(folder, work)) in ways else ways[0]
    alike = [RunFolder(e.folder) for e in past if e.way == way][:MOST_BEFORE]
    how = "executed alike" if way == mine else "the latest"
    return Group(f"{counted_text(len(alike), 'earlier run')} of it, {how}", tuple(alike))


def _history(runs: Path, taken: Sequence[RunFolder]) -> History:
    """The figures of the other runs of the workload of the first run that is there, by how they were executed."""
    sides = {folder.path.resolve() for folder in taken}
    others = [e for e in earlier(runs, taken[0], work, whenever=True) if e.folder.resolve() not in sides]
    groups: defaultdict[str, list[Past]] = defaultdict(list)
    for e in others:
        groups[e.way].append(e)
    return History(
        tuple(tuple(e.rate for e in group if e.rate is not None) for group in groups.values()),
        tuple(tuple(e.first_step_s for e in group if e.first_step_s is not None) for group in groups.values()),
    )


def keep(explanation: Explanation, folder: RunFolder) -> None:
    """Write the explanation of a run into its folder: the page for people, the JSON for programs."""
    from harness.view.report.page import report  # jinja2 is loaded only for a page

    page = report(explanation)
    folder.write_json("explanation.json", explanation.to_json())
    folder.write_text("explanation.html", page)
