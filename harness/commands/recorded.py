"""Commands on runs that are recorded already."""

from __future__ import annotations

import click

from harness.commands.terminal import as_json, err, out, print_json, say
from harness.errors import HarnessError
from harness.mirror import ui as mlflow_ui
from harness.mirror.follower import mirror_once
from harness.places import places
from harness.run.folder import find
from harness.view import display
from harness.view.listing import list_runs, to_json


@click.command()
@click.argument("run_", metavar="RUN")
@as_json
def mirror(run_: str, json_: bool) -> int:
    """Bring MLflow level with RUN's folder; a second time changes nothing. Example: harness mirror @1"""
    where = places()
    folder = find(where.runs, run_)
    folder.load()
    result = mirror_once(folder.path, where)
    if json_:
        print_json(vars(result))
    elif result.status != "failed":
        out.print(f"{folder.id} {result.status} at {result.tracking_uri}", soft_wrap=True)
    if result.status == "failed":
        raise HarnessError(f"{folder.id} is not mirrored: {result.reason}; the run folder is whole, try again later")
    return 0


@click.command("runs")
@click.option(
    "-n", "limit", default=20, show_default=True, type=click.IntRange(min=1), help="How many, the latest first."
)
@as_json
def runs_command(limit: int, json_: bool) -> int:
    """List the runs, the latest first. Example: harness runs -n 5"""
    listing = list_runs(places().runs, limit)
    if json_:
        print_json({"runs": [to_json(r) for r in listing.runs], "total": listing.total})
    else:
        out.print(display.runs_table(listing.runs, out.width))
        if listing.total > limit:
            out.print(f"{listing.total - limit} more: harness runs -n {listing.total}", style="dim")
    for line in listing.unreadable:
        err.print(f"left out: {line}", style="yellow", markup=False)
    return 0


@click.command()
@click.argument("run_", metavar="RUN")
@as_json
def show(run_: str, json_: bool) -> int:
    """Everything about RUN: an id or its start, @1 for the latest, or a folder. Example: harness show @1 --json"""
    record = find(places().runs, run_).load()
    if json_:
        print_json(to_json(record))
    else:
        out.print(display.show(record))
    return 0


@click.command("ui")
@click.option(
    "--port",
    default=mlflow_ui.PORT,
    show_default=True,
    type=click.IntRange(1, 65535),
    help="Another one is taken where it is in use.",
)
def ui_command(port: int) -> int:
    """Serve MLflow's pages on the recorded runs, until Ctrl-C. Example: harness ui --port 8080"""
    say("starting MLflow's pages ...")
    with mlflow_ui.served(places(), port) as page:
        out.print(f"{page.page}  (Ctrl-C ends it)", soft_wrap=True)
        try:
            return page.wait()
        except KeyboardInterrupt:
            say("ended")
            return 0
