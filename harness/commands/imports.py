"""Runs that happened elsewhere."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from harness import figures
from harness.commands.terminal import as_json, out, print_json, say
from harness.errors import UsageError
from harness.mirror.logged import fetch
from harness.places import Places, places
from harness.records import Value
from harness.run.imported.facts import given
from harness.run.imported.folder import Imported
from harness.run.imported.from_log import import_log
from harness.run.imported.from_tracker import import_tracked
from harness.run.references import MLFLOW_ID, mirrored
from harness.view import display
from harness.view.listing import to_json


@click.command("import")
@click.argument("source", metavar="LOG|MLFLOW_RUN")
@click.option("--set", "facts", multiple=True, metavar="FACT=VALUE", help="What is known of it: kind.name=value.")
@click.option(
    "--tokens-regex", metavar="R", help="What to read beside what is understood: named groups, as for harness run."
)
@click.option(
    "--tokens-per-step", type=click.IntRange(min=1), metavar="N", help="Tokens of one step, where the log has none."
)
@click.option("--name", default="", metavar="N", help="What to call it; the log's or MLflow's name otherwise.")
@as_json
def import_(
    source: str, facts: tuple[str, ...], tokens_regex: str | None, tokens_per_step: int | None, name: str, json_: bool
) -> int:
    """Make a run that happened elsewhere one that can be shown and explained: from its log, or by its id in MLflow.

    A fact that nobody gives is unknown. The same again is the same run; more facts are added to it.

    \b
    Examples:
      harness import good.log --set workload.data.samples=902000 --set workload.model.heads=balanced
      harness import train.log --tokens-regex 'it (?P<step>\\d+) .* (?P<ktok_s>[\\d.]+) kt/s'
      MLFLOW_TRACKING_URI=http://server:5000 harness import 0123456789abcdef0123456789abcdef
    """
    where = places()
    known = given(facts)
    if MLFLOW_ID.fullmatch(source) and not Path(source).exists():
        if tokens_regex or tokens_per_step:
            raise UsageError("--tokens-regex and --tokens-per-step go with a log; an MLflow run has metrics")
        found = _from_mlflow(source, where, known, name)
    else:
        found = import_log(Path(source), where.runs, known, tokens_regex, name, tokens_per_step)
    run = found.folder.load()
    if json_:
        outcome = "imported" if found.new else "changed" if found.changed else "unchanged"
        details = {"outcome": outcome, "understood": found.understood, "not_understood": found.not_understood}
        print_json({**to_json(run), "import": details})
        return 0
    _tell(source, found)
    out.print(display.summary_panel(run))
    return 0


def _from_mlflow(run_id: str, where: Places, known: dict[str, Value], name: str) -> Imported:
    there = mirrored(where.runs, run_id)
    if there is not None and not known:
        return Imported(there, False, False, ("it is here",))
    say("asking MLflow ...")
    with tempfile.TemporaryDirectory() as folder:
        return import_tracked(fetch(run_id, where, Path(folder)), where.runs, known, name)


def _tell(source: str, found: Imported) -> None:
    """What was understood, for a person to check, and what came of it."""
    out.print(f"{source}: {', '.join(found.understood)}", soft_wrap=True, markup=False)
    if found.not_understood:
        lines = ", ".join(map(str, found.not_understood[:10])) + (" ..." if len(found.not_understood) > 10 else "")
        count = len(found.not_understood)
        out.print(f"{figures.counted_text(count, 'line')} not understood: {lines}", soft_wrap=True, style="yellow")
    outcome = "imported as" if found.new else "its facts are changed in" if found.changed else "imported before as"
    out.print(f"{outcome} {found.folder.id}", soft_wrap=True)
