"""Commands that start a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click
from rich.text import Text

from harness.commands import in_image
from harness.commands.terminal import as_json, err, hashing, out, print_json, say
from harness.errors import INTERRUPTED, UsageError
from harness.launch import Outcome, plan, reap_dead, start
from harness.places import Places, places, program
from harness.run.choose import choose_recipe
from harness.run.folder import find
from harness.run.guard import verified
from harness.run.orders import command_order, recipe_order
from harness.run.prepare import check_startable
from harness.run.rerun import plan_rerun, recorded_image
from harness.run.resolve import resolve
from harness.run.runner import Order
from harness.run.tags import checked
from harness.view import catalogue, display
from harness.view.listing import to_json

no_verify = click.option("--no-verify", is_flag=True, help="Run in a broken environment, and record that it was.")
cold_start = click.option("--cold", is_flag=True, help="Start with an empty compile cache; the old one stays.")
tag_option = click.option("--tag", "tags", multiple=True, metavar="NAME", help="A name for it; @NAME is all so named.")


class _WithCommand(click.Command):
    """Takes what follows ``--`` as a command that is not ours to read; it is in ``ctx.obj``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            cut = args.index("--")
            ctx.obj, args = args[cut + 1 :], args[:cut]
        return super().parse_args(ctx, args)


@click.command(cls=_WithCommand)
@click.argument("recipe", required=False)
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--env", default="", help="Run a command in this environment (harness envs lists them).")
@click.option("--tokens-regex", metavar="R", help="Find tokens a step in a command's output: a group (?P<tokens>...).")
@click.option(
    "--plan", "only_plan", is_flag=True, help="Print what would run, and each device's memory; start nothing."
)
@click.option("--image", metavar="TAG", help="Run the recipe in this image (nox -s image), not in an environment here.")
@cold_start
@tag_option
@no_verify
@as_json
@click.pass_context
def run(
    ctx: click.Context,
    recipe: str | None,
    overrides: tuple[str, ...],
    env: str,
    tokens_regex: str | None,
    only_plan: bool,
    image: str | None,
    cold: bool,
    tags: tuple[str, ...],
    no_verify: bool,
    json_: bool,
) -> int:
    """Run RECIPE, or any command after --, and record it.

    \b
    Examples:
      harness run                           the recipe that fits this machine
      harness run tiny train.steps=50 train.seed=3
      harness run qwen3_6_27b_8gpu --plan
      harness run tiny --image TAG          in the pinned image, with the same folders and caches
      harness run --env cpu --tokens-regex 'tok=(?P<tokens>\\d+)' -- python my_train.py
    """
    where = places()
    tags = checked(tags)
    command: Sequence[str] | None = ctx.obj
    if command is not None:
        if image:
            raise UsageError("--image runs a recipe: for a command, call docker run or podman run yourself")
        if recipe or only_plan:
            raise UsageError("a command after -- has neither a recipe nor a plan: name one or the other")
        reap_dead(where)
        order = command_order(command, where, env, tokens_regex, cold, say)
        return _start(replace(order, tags=tags), where, no_verify, json_)
    if env or tokens_regex:
        raise UsageError("--env and --tokens-regex go with a command after --; a recipe names its own environment")
    why = ""
    if recipe is None or "=" in recipe:  # a setting, and no name before it
        overrides = (*([recipe] if recipe else []), *overrides)
        recipe, why = choose_recipe()
    spec = resolve(recipe, overrides)
    if why:
        say(f"no recipe named: {recipe}, because {why}")
    if image:
        if not only_plan:
            check_startable(spec)
            reap_dead(where)  # from inside, the processes that a dead harness left here cannot be seen
        options = (*_given(plan=only_plan, cold=cold, no_verify=no_verify, json=json_), *_tagged(tags))
        return in_image.run_recipe(image, spec, ("run", recipe, *overrides, *options), where, json_)
    if only_plan:
        return _show_plan(plan(spec, where, say), json_)
    reap_dead(where)
    return _start(replace(recipe_order(spec, where, cold, say), tags=tags), where, no_verify, json_)


@click.command()
@click.argument("run_", metavar="RUN")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@cold_start
@tag_option
@no_verify
@as_json
def rerun(
    run_: str, overrides: tuple[str, ...], cold: bool, tags: tuple[str, ...], no_verify: bool, json_: bool
) -> int:
    """Run again what RUN's folder describes: its lock, its code, its settings; in its image where it had one.

    \b
    Examples:
      harness rerun @1                      the latest run, once more
      harness rerun 20261129-1728 train.lr=1e-3
    """
    where = places()
    tags = checked(tags)
    before = find(where.runs, run_).load()
    image = recorded_image(before)
    if image is not None and not image.is_here:
        options = (*_given(cold=cold, no_verify=no_verify, json=json_), *_tagged(tags))
        return in_image.rerun_recorded(before, image, overrides, options, where, json_)
    again = plan_rerun(before, overrides, where, cold, say)
    for remark in again.remarks:
        say(remark)
    return _start(replace(again.order, tags=tags), where, no_verify, json_)


def _given(**options: bool) -> list[str]:
    """The options that were given, as they are written."""
    return [f"--{name.replace('_', '-')}" for name, given in options.items() if given]


def _tagged(tags: Sequence[str]) -> list[str]:
    return [word for tag in tags for word in ("--tag", tag)]


def _start(order: Order, where: Places, no_verify: bool, json_: bool) -> int:
    """Make the run, unless its environment is broken; its exit code for ours."""
    with hashing(disable=json_) as progress:
        order = verified(order, where, say, no_verify, progress)
    return _report(start(order, where, err, json_), json_)


def _report(outcome: Outcome, json_: bool) -> int:
    """Print what the run is against its baseline, and how it ended; its exit code for ours."""
    record, found = outcome.run, outcome.explanation
    if json_:
        print_json(to_json(record) | ({"explanation": found.to_json()} if found else {}))  # else what `show` says
    else:
        piped = not record.spec.recipe and not out.is_terminal  # then standard output is the command's alone
        console = err if piped else out
        if found:
            console.print(Text(f"against {found.before.name}: ", "dim") + Text(found.sentence, "bold"), soft_wrap=True)
        console.print(display.summary_panel(record, outcome.mirrored))
        if found:
            console.print(f"{program()} explain {record.id}  # why", style="dim", soft_wrap=True)
    if record.result.status == "killed" and record.result.signal == 2:
        return INTERRUPTED
    return 0 if record.result.status == "finished" else 1


def _show_plan(planned: dict[str, Any], json_: bool) -> int:
    if json_:
        print_json(planned)
    else:
        out.print(catalogue.plan_view(planned))
    return 0
