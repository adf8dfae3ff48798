"""``harness explain`` on the terminal: the sentence, then what it rests on, then where the time went and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from harness import figures
from harness.comparison import Comparability, Contribution, Explanation, Judgement, Measured, Suspect, Verdict
from harness.view import words
from harness.view.sparkline import over_time
from harness.view.waterfall import NEGLIGIBLE, Fall, falls
from harness.view.words import plain

VERDICTS: Mapping[Verdict, str] = {"FASTER": "green", "SLOWER": "red", "SAME": "green", "UNKNOWN": "yellow"}
WORK: Mapping[Comparability, str] = {
    "COMPARABLE": "green",
    "CONFOUNDED": "yellow",
    "NOT_COMPARABLE": "red",
    "UNKNOWN": "yellow",
}
COSTS_FROM = 100
"""Columns of a terminal from which on the waterfall shows what each phase costs on either side."""

LEAST_BAR, MOST_BAR = 10, 60
"""Columns of the waterfall's bars; where there are fewer left it has none."""

MOST_NAME = 28
"""Columns of a cell of the waterfall; a longer name is folded."""


def explanation_view(e: Explanation, width: int) -> RenderableType:
    """Everything that a terminal of ``width`` columns is told. Nothing is cut off: what does not fit is folded."""
    parts: list[RenderableType] = [Text(plain(e.sentence), style="bold"), _pair(e)]
    parts += [_failure(run) for side in (e.before, e.after) for run in side.failed]
    parts += [*_work(e), _verdicts(e)]
    parts += _where(e, width)
    curve = over_time(e, width)
    parts += [curve] if curve is not None else []
    parts += [_suspects(e), *_also(e)]
    if e.notes:
        parts.append(_lines("Notes", e.notes))
    return Group(*(piece for part in parts for piece in (part, Text())))


def _pair(e: Explanation) -> RenderableType:
    """Which runs are held against each other."""
    sides = (("before", e.before), ("after", e.after))
    return _grid((Text(label, style="dim"), Text(words.side_name(side))) for label, side in sides)


def _work(e: Explanation) -> Iterable[RenderableType]:
    """Whether it is the same work, why, what a fair pair would be, and what can be said in spite of it."""
    name = e.comparability.replace("_", " ")
    head = Text.assemble((name, f"bold {WORK[e.comparability]}"), f"  {words.WORK[e.comparability]}")
    lines = [Text(plain(reason)) for reason in e.reasons]
    if e.fair_pair:
        lines.append(Text(plain(e.fair_pair), style="bold"))
    yield Group(head, *(Padding(line, (0, 0, 0, 2), expand=False) for line in lines))
    if e.normalised:
        table = Table.grid(padding=(0, 2))
        table.add_column(overflow="fold")
        for _ in range(3):
            table.add_column(justify="right", no_wrap=True)
        table.add_row("", *(Text(name, style="dim") for name in ("before", "after", "after / before")))
        for figure, before, after in e.normalised:
            ratio = figures.digits(after / before) if before else "-"
            table.add_row(Text(plain(figure)), figures.digits(before), figures.digits(after), ratio)
        yield Group(Text("What can be compared all the same", style="bold"), table)


def _verdicts(e: Explanation) -> RenderableType:
    """Throughput and time to the first step, each with what its verdict rests on."""
    rows = []
    for figure in (e.throughput, e.first_step):
        before, after = (words.amount(figure, value, e.unit) for value in (figure.before, figure.after))
        verdict = (words.verdict_of(e, figure), f"bold {VERDICTS[figure.verdict]}")
        text = Text.assemble(verdict, f"  {before} → {after}")
        if figure.ratio:
            text.append(f", {figures.times(figure.ratio)}")
        if figure.verdict == "SAME" and words.absolute(e, figure):
            text.append(f", {words.same_within(e, figure)}")
        if said := words.rests_on(figure):
            text.append(f"\n{said}", style="dim")
        rows.append((Text(figure.figure), text))
    return _grid(rows)


def _failure(run: Measured) -> RenderableType:
    failure = run.failure
    assert failure is not None
    head = f"{plain(run.run.id)} {failure.verb}: {plain(failure.sentence)}"
    lines: list[RenderableType] = [Text(head, style="bold red")]
    named = (("last", failure.last), ("see", failure.reference), ("advice", failure.advice))
    lines.append(_grid((Text(name, style="dim"), Text(plain(text))) for name, text in named if text))
    lines += [Padding(Text(plain(line), style="dim"), (0, 0, 0, 2), expand=False) for line in failure.lines]
    return Group(*lines)


def _where(e: Explanation, width: int) -> Iterable[RenderableType]:
    """Both waterfalls, as far as there are splits."""
    if e.contributions:
        unit = figures.rate_unit(e.unit)
        yield _waterfall(f"Where the time went, {unit}", e.throughput, e.contributions, e.unit, width)
    if e.bottleneck:
        yield Text(plain(e.bottleneck))
    if e.interruptions:
        yield _lines("What interrupted training", words.interrupted(e))
    if e.first_step_contributions:
        yield _waterfall("The time to the first step", e.first_step, e.first_step_contributions, e.unit, width)


def _waterfall(
    title: str, figure: Judgement, contributions: Sequence[Contribution], unit: str, width: int
) -> RenderableType:
    """A row a phase: what it takes away or gives, and where that leaves the figure, down to the measured one."""
    steps = falls(figure, contributions, unit)
    if not steps or figure.before is None or figure.after is None:
        return Text(f"{title}: not split, for a side has no figure", style="dim")
    ends = [("before", figure.before), ("after", figure.after)]
    first, last = (_Row(name, "", "", words.number(figure, value, unit), "", 0.0, value) for name, value in ends)
    rows = [first, *(_row(step, figure, unit) for step in steps), last]
    shown = ["name", "change", *(["share"] if any(row.share for row in rows) else []), "level"]
    shown += ["cost"] if width >= COSTS_FROM else []
    heads = {"name": "", "change": "change", "share": "share", "level": "leaves", "cost": words.cost_name(figure, unit)}
    table = Table.grid(padding=(0, 2))
    used = 0
    for name in shown:
        widest = min(MOST_NAME, max(len(heads[name]), *(len(getattr(row, name)) for row in rows)))
        table.add_column(justify="left" if name == "name" else "right", overflow="fold", min_width=widest)
        used += widest + 2
    table.add_row(*(Text(heads[name], style="dim") for name in shown))
    room = min(MOST_BAR, width - used)
    top = max(max(row.start, row.end) for row in rows)
    for row in rows:
        bar = [_bar(row, top, room, figure.figure == "first step")] if room >= LEAST_BAR else []
        table.add_row(*(Text(getattr(row, name)) for name in shown), *bar)
    return Group(Text(title, style="bold"), table)


class _Row(NamedTuple):
    """A row of the waterfall, spelled; the piece of bar is from ``start`` to ``end``, for a total from 0."""

    name: str
    change: str
    share: str
    level: str
    cost: str
    start: float
    end: float


def _row(step: Fall, figure: Judgement, unit: str) -> _Row:
    share = "" if step.share is None else figures.percent(step.share)
    cost = f"{figures.digits(step.cost_before)} → {figures.digits(step.cost_after)}"
    change, level = words.change_of(figure, step.change, unit), words.number(figure, step.end, unit)
    return _Row(plain(step.name), change, share, level, cost, step.start, step.end)


def _bar(row: _Row, top: float, room: int, more_is_slower: bool) -> Text:
    """The row's piece of a bar of ``room`` characters for [0, ``top``]."""
    first, last = (round(value / top * room) for value in sorted((row.start, row.end)))
    if row.start == 0:
        return Text("█" * last, style="dim")
    up = row.end > row.start
    piece = ("▓" if up else "▒") * max(last - first, int(abs(row.end - row.start) > NEGLIGIBLE * top))
    return Text.assemble(" " * min(first, room - 1), (piece, "red" if up == more_is_slower else "green"))


def _suspects(e: Explanation) -> RenderableType:
    title = Text("Suspects, the likeliest first" if len(e.suspects) > 1 else "Suspects", style="bold")
    if not e.suspects:
        return Group(title, Text(f"  {words.no_suspect(e)}"))
    return Group(title, *(_suspect(suspect) for suspect in e.suspects))


def _suspect(suspect: Suspect) -> RenderableType:
    """A suspect: why, what changed, what speaks for it, and what would confirm it."""
    changed = f"{plain(suspect.change.fact)}: {words.arrow(suspect.change)}"
    rows = [("changed", changed)] + [("with it", f"{plain(c.fact)}: {words.arrow(c)}") for c in suspect.also]
    rows += [("phases", ", ".join(map(plain, suspect.phases)))] if suspect.phases else []
    rows += [("evidence", plain(line)) for line in suspect.evidence]
    rows += [("to confirm", plain(suspect.confirm))] if suspect.confirm else []
    head = Text.assemble((f"{suspect.rank}. ", "bold yellow"), (plain(suspect.reason), "yellow"))
    grid = _grid((Text(name, style="dim"), Text(text)) for name, text in rows)
    return Group(head, Padding(grid, (0, 0, 0, 3), expand=False))


def _also(e: Explanation) -> Iterable[RenderableType]:
    if e.also_changed:
        yield Group(
            Text.assemble(("Also changed, ", "bold"), words.also_changed(e.also_changed)),
            Text.assemble("  all of it: ", (words.command(e), "bold")),
        )


def _lines(title: str, lines: Sequence[str]) -> RenderableType:
    return Group(Text(title, style="bold"), *(Padding(Text(plain(line)), (0, 0, 0, 2), expand=False) for line in lines))


def _grid(rows: Iterable[tuple[RenderableType, RenderableType]]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table
