"""Names for runs, so that several can be spoken of as one group."""

from __future__ import annotations

import click

from harness.commands.terminal import out
from harness.places import places, program
from harness.run import tags
from harness.run.references import side


@click.command()
@click.argument("name")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@click.option("--remove", is_flag=True, help="Take the tag away from them.")
def tag(name: str, runs: tuple[str, ...], remove: bool) -> int:
    """Give runs the tag NAME: @NAME then means all that have it. A RUN may be a group, as for explain.

    \b
    Examples:
      harness tag before-upgrade @3 @2
      harness tag before-upgrade @1 --remove
    """
    where = places()
    tags.checked([name])
    folders = list(dict.fromkeys(folder for reference in runs for folder in side(where.runs, reference).folders))
    change = tags.remove if remove else tags.add
    changed = [folder for folder in folders if change(folder, [name])]
    for folder in folders:
        now = ", ".join(tags.tags_of(folder)) or "no tags"
        out.print(f"{folder.id}: {now}{'' if folder in changed else ', as before'}", soft_wrap=True, markup=False)
    for folder in changed:
        if folder.load().mlflow_run_id:
            out.print(f"MLflow is told by: {program()} mirror {folder.id}", style="dim", soft_wrap=True)
    return 0
