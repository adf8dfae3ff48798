"""Commands that hold runs against each other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from harness import explained
from harness.commands.terminal import as_json, err, out, print_json
from harness.comparison import Explanation
from harness.errors import RecordError, UsageError
from harness.explain.comparing import facts
from harness.explain.comparing.comparable import work
from harness.explain.judging.interruptions import in_all
from harness.explain.judging.judge import MARGIN
from harness.explained import Group, Say
from harness.places import Places, places
from harness.run import history
from harness.run.folder import find
from harness.run.references import side
from harness.view.difference import diff_view
from harness.view.explanation import explanation_view

UNKNOWN = 125
"""The exit code of an answer that nobody can give: what ``git bisect run`` takes for "cannot be tested"."""


def _in_a_folder(_ctx: click.Context, _option: click.Parameter, html: Path | None) -> Path | None:
    """Said before anything is read, or run: ``harness ab`` takes hours to the page."""
    if html is not None and not html.absolute().parent.is_dir():
        raise UsageError(f"--html {html}: there is no folder {html.absolute().parent}")
    return html


as_html = click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=_in_a_folder,
    help="Write the answer as a page.",
)
within = click.option(
    "--margin",
    default=100 * MARGIN,
    show_default=True,
    type=click.FloatRange(0, 50, min_open=True),
    help="Per cent of difference that still count as the same.",
)


@click.command()
@click.argument("a", metavar="A")
@click.argument("b", metavar="[B]", required=False)
@as_html
@within
@as_json
def explain(a: str, b: str | None, html: Path | None, margin: float, json_: bool) -> int:
    """Is B slower than A, is it the same work, where did the time go, and what can have done it?

    A and B are runs (@1 is the latest), groups (@TAG, several ids with commas, a recipe), folders or MLflow run ids.
    One alone is held against its baseline, or else the runs of the same workload before it.

    \b
    Exit code: 0 same or faster, 1 slower or failed, 125 not decided or not the same work.
    Examples:
      harness explain @2 @1
      harness explain @1 --html why.html
      harness explain @before @after --json
    """
    where = places()
    after = Group(*side(where.runs, b or a))
    before = Group(*side(where.runs, a)) if b else _before(after, where)
    return explain_sides(before, after, where, json_, html, margin / 100)


def explain_sides(
    before: Group,
    after: Group,
    where: Places,
    json_: bool = False,
    html: Path | None = None,
    margin: float = MARGIN,
) -> int:
    """Print the answer, and write the page; the exit code that it deserves."""
    with _reading() as say:
        found = explained.answer(before, after, where.runs, margin, say)
    if html is not None:
        from harness.view.report.page import report  # jinja2 is loaded only for a page

        try:
            html.write_text(report(found), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"--html {html} cannot be written: {error.strerror}") from None
    if json_:
        print_json(found.to_json())
    else:
        out.print(explanation_view(found, out.width))
        if html is not None:
            out.print(f"page: {html}", style="dim", soft_wrap=True)
    return exit_code(found)


def exit_code(found: Explanation) -> int:
    """0 same or faster, 1 slower or failed, 125 where nobody can say.

    Steps that are no slower, with so much more time between them that the run was, are no "good" of a bisection.
    """
    if found.after.failed or found.verdict == "SLOWER":
        return 1
    if found.comparability == "NOT_COMPARABLE" or found.verdict == "UNKNOWN":
        return UNKNOWN
    if (ratio := in_all(found.throughput, found.interruptions)) is not None and ratio < 1:
        return UNKNOWN
    return 0


@click.command()
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option("--all", "everything", is_flag=True, help="The facts that are equal too.")
@as_json
def diff(a: str, b: str, everything: bool, json_: bool) -> int:
    """What is different between A and B, grouped by kind. Example: harness diff @2 @1"""
    where = places()
    with _reading() as say:
        before, after = (explained.measured(Group(*side(where.runs, reference)), say) for reference in (a, b))
    changes = facts.changes(before, after, everything)
    if json_:
        print_json({"before": before.name, "after": after.name, "changes": [vars(c) for c in changes]})
    else:
        out.print(diff_view(before, after, changes, out.width))
    return 0


@click.group()
def baseline() -> None:
    """What later runs of a workload are held against. Example: harness baseline set @1"""


@baseline.command("set")
@click.argument("run_", metavar="RUN")
def set_(run_: str) -> int:
    """Hold later runs of RUN's workload against RUN. Example: harness baseline set @1"""
    where = places()
    folder = find(where.runs, run_)
    before = history.set_baseline(where.runs, folder, work)
    instead = f" instead of {before}" if before and before != folder.id else ""
    out.print(f"later runs of this workload are held against {folder.id}{instead}: harness explain RUN", soft_wrap=True)
    return 0


def _before(after: Group, where: Places) -> Group:
    """What a run named alone is held against. Raises UsageError where there is nothing."""
    if len(after.folders) > 1:
        raise UsageError(
            f"{after.name} is {len(after.folders)} runs: name what to hold them against: harness explain A B"
        )
    before = explained.before_of(after.folders[0], where.runs)
    if before is None:
        raise UsageError(
            f"no run of the same workload is older than {after.folders[0].id}, and no baseline is set; "
            "name a run to hold it against: harness explain A B (harness runs lists them)"
        )
    return before


@contextmanager
def _reading() -> Iterator[Say]:
    """Progress while runs are read: a long run takes seconds."""
    with err.status("reading ...") as status:
        try:
            yield status.update
        except RecordError as error:  # a run that cannot be read is a wrong request, not a slow run
            raise UsageError(str(error)) from None
