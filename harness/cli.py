"""The command line: parses, calls the rooms, prints, and exits. The only place that knows everybody."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import click
from rich.console import Console

from harness.errors import HarnessError, UsageError
from harness.launch import plan, reap_dead, start
from harness.mirror import ui as mlflow_ui
from harness.mirror.follower import mirror_once
from harness.pin import environments, venvs
from harness.places import places
from harness.records import Run
from harness.run.folder import find
from harness.run.orders import command_order, recipe_order
from harness.run.rerun import plan_rerun
from harness.run.resolve import choose_recipe, recipes, resolve
from harness.view import catalogue, display
from harness.view.listing import list_runs, to_json

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

INTERRUPTED = 130

as_json = click.option("--json", "json_", is_flag=True, help="One JSON object on standard output, for programs.")
cold_start = click.option("--cold", is_flag=True, help="Start with an empty compile cache; the old one stays.")


def say(text: str) -> None:
    """Progress, for a person: to standard error, so that results can be piped."""
    err.print(text, style="dim", soft_wrap=True, markup=False)


class _WithCommand(click.Command):
    """Takes what follows ``--`` as a command that is not ours to read; it is in ``ctx.obj``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            cut = args.index("--")
            ctx.obj, args = args[cut + 1 :], args[:cut]
        return super().parse_args(ctx, args)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name=None, version="0.1.0", prog_name="harness")
def cli() -> None:
    """Pin an environment, run a trainer in it, and keep a record that can be compared.

    \b
    Examples:
      harness run tiny train.steps=50       a recipe, with a setting changed
      harness run --env cpu -- python my_train.py
      harness show @1                       the latest run
    """


@cli.command(cls=_WithCommand)
@click.argument("recipe", required=False)
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--env", default="", help="Run a command in this environment (harness envs lists them).")
@click.option("--tokens-regex", metavar="R", help="Find tokens a step in a command's output: a group (?P<tokens>...).")
@click.option(
    "--plan", "only_plan", is_flag=True, help="Print what would run, and each device's memory; start nothing."
)
@cold_start
@as_json
@click.pass_context
def run(
    ctx: click.Context,
    recipe: str | None,
    overrides: tuple[str, ...],
    env: str,
    tokens_regex: str | None,
    only_plan: bool,
    cold: bool,
    json_: bool,
) -> int:
    """Run RECIPE, or any command after --, and record it.

    \b
    Examples:
      harness run                           the recipe that fits this machine
      harness run tiny train.steps=50 train.seed=3
      harness run qwen3_6_27b_8gpu --plan
      harness run --env cpu --tokens-regex 'tok=(?P<tokens>\\d+)' -- python my_train.py
    """
    where = places()
    command: Sequence[str] | None = ctx.obj
    if command is not None:
        if recipe or only_plan:
            raise UsageError("a command after -- has neither a recipe nor a plan: name one or the other")
        reap_dead(where)
        return _report(start(command_order(command, where, env, tokens_regex, cold, say), where, err, json_), json_)
    if env or tokens_regex:
        raise UsageError("--env and --tokens-regex go with a command after --; a recipe names its own environment")
    why = ""
    if recipe is None or "=" in recipe:  # a setting, and no name before it
        overrides = (*([recipe] if recipe else []), *overrides)
        recipe, why = choose_recipe()
    spec = resolve(recipe, overrides)
    if why:
        say(f"no recipe named: {recipe}, because {why}")
    if only_plan:
        return _show_plan(plan(spec, where, say), json_)
    reap_dead(where)
    return _report(start(recipe_order(spec, where, cold, say), where, err, json_), json_)


@cli.command()
@click.argument("run_", metavar="RUN")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@cold_start
@as_json
def rerun(run_: str, overrides: tuple[str, ...], cold: bool, json_: bool) -> int:
    """Run again what RUN's folder describes: its lock, its code, its settings.

    \b
    Examples:
      harness rerun @1                      the latest run, once more
      harness rerun 20261129-1728 train.lr=1e-3
    """
    where = places()
    again = plan_rerun(find(where.runs, run_).load(), overrides, where, cold, say)
    for remark in again.remarks:
        say(remark)
    return _report(start(again.order, where, err, json_), json_)


@cli.command()
@click.argument("run_", metavar="RUN")
@as_json
def mirror(run_: str, json_: bool) -> int:
    """Bring MLflow level with RUN's folder; a second time changes nothing. Example: harness mirror @1"""
    where = places()
    folder = find(where.runs, run_)
    folder.load()
    result = mirror_once(folder.path, where)
    if json_:
        _print_json(vars(result))
    elif result.status != "failed":
        out.print(f"{folder.id} {result.status} at {result.tracking_uri}", soft_wrap=True)
    if result.status == "failed":
        raise HarnessError(f"{folder.id} is not mirrored: {result.reason}; the run folder is whole, try again later")
    return 0


@cli.command("runs")
@click.option(
    "-n", "limit", default=20, show_default=True, type=click.IntRange(min=1), help="How many, the latest first."
)
@as_json
def runs_command(limit: int, json_: bool) -> int:
    """List the runs, the latest first. Example: harness runs -n 5"""
    listing = list_runs(places().runs, limit)
    if json_:
        _print_json({"runs": [to_json(r) for r in listing.runs], "total": listing.total})
    else:
        out.print(display.runs_table(listing.runs, out.width))
        if listing.total > limit:
            out.print(f"{listing.total - limit} more: harness runs -n {listing.total}", style="dim")
    for line in listing.unreadable:
        err.print(f"left out: {line}", style="yellow", markup=False)
    return 0


@cli.command()
@click.argument("run_", metavar="RUN")
@as_json
def show(run_: str, json_: bool) -> int:
    """Everything about RUN: an id or its start, @1 for the latest, or a folder. Example: harness show @1 --json"""
    record = find(places().runs, run_).load()
    if json_:
        _print_json(to_json(record))
    else:
        out.print(display.show(record))
    return 0


@cli.command("recipes")
@click.argument("name", required=False)
@as_json
def recipes_command(name: str | None, json_: bool) -> int:
    """List the recipes, or the settings of one. Example: harness recipes tiny"""
    specs = {n: resolve(n) for n in ([name] if name else recipes())}
    if json_:
        _print_json({n: spec.to_json() for n, spec in specs.items()})
    elif name:
        out.print(catalogue.recipe_view(specs[name]))
    else:
        out.print(catalogue.recipes_table(tuple(specs.values())))
    return 0


@cli.command("envs")
@as_json
def envs_command(json_: bool) -> int:
    """List the environments: Python, torch, CUDA, lock, built or not. Example: harness envs --json"""
    listed = venvs.list_environments(places())
    if json_:
        _print_json({"environments": [vars(row) for row in listed]})
    else:
        out.print(catalogue.envs_table(listed, out.width))
    return 0


@cli.command()
@click.argument("env")
@as_json
def sync(env: str, json_: bool) -> int:
    """Build ENV, or make it equal to its lock again. Example: harness sync cpu"""
    where = places()
    environments.environment(env, where)
    built = venvs.sync(env, where, say=say)
    if json_:
        _print_json({"name": built.name, "python": str(built.python), "lock_digest": built.lock.digest})
    else:
        out.print(f"{env} is what its lock says: {built.folder}", soft_wrap=True)
    return 0


@cli.command("ui")
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


def _report(finished: tuple[Run, str], json_: bool) -> int:
    """Print how a run ended; its exit code for ours."""
    record, mirrored = finished
    if json_:
        _print_json(to_json(record))
    else:
        piped = not record.spec.recipe and not out.is_terminal  # then standard output is the command's alone
        (err if piped else out).print(display.summary_panel(record, mirrored))
    if record.result.status == "killed" and record.result.signal == 2:
        return INTERRUPTED
    return 0 if record.result.status == "finished" else 1


def _show_plan(planned: dict[str, Any], json_: bool) -> int:
    if json_:
        _print_json(planned)
    else:
        out.print(catalogue.plan_view(planned))
    return 0


def _print_json(data: Any) -> None:
    click.echo(json.dumps(data, indent=1, ensure_ascii=False))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; every expected failure is one line on standard error. Returns the exit code."""
    try:
        code: int | None = cli.main(
            args=list(argv) if argv is not None else None, prog_name="harness", standalone_mode=False
        )
        return code or 0
    except HarnessError as error:
        err.print(f"error: {error}", style="red", soft_wrap=True, markup=False)
        return error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return 2
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else "harness"
        err.print(f"error: {error.format_message()} (see {path} --help)", style="red", soft_wrap=True, markup=False)
        return 2
    except OSError as error:
        err.print(
            f"error: {error.filename or 'the system'}: {error.strerror}", style="red", soft_wrap=True, markup=False
        )
        return 1
    except (KeyboardInterrupt, click.Abort):
        err.print("interrupted", style="yellow")
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
