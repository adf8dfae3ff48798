"""Commands on what there is to run, and on the environments to run it in."""

from __future__ import annotations

import click

from harness.commands.terminal import as_json, hashing, out, print_json, say
from harness.pin import environments, venvs
from harness.pin.doctor.case import Question
from harness.pin.doctor.diagnose import diagnose
from harness.places import places, program
from harness.run.resolve import recipes, resolve, scales
from harness.view import catalogue
from harness.view import diagnosis as diagnosis_view


@click.command("recipes")
@click.argument("name", required=False)
@as_json
def recipes_command(name: str | None, json_: bool) -> int:
    """List the recipes, or the settings of one. Example: harness recipes tiny"""
    specs = {n: resolve(n) for n in ([name] if name else recipes())}
    if json_:
        print_json({n: {**spec.to_json(), "scales": list(scales(n))} for n, spec in specs.items()})
    elif name:
        out.print(catalogue.recipe_view(specs[name], tuple(scales(name))))
    else:
        out.print(catalogue.recipes_table([(spec, tuple(scales(n))) for n, spec in specs.items()]))
    return 0


@click.command("envs")
@as_json
def envs_command(json_: bool) -> int:
    """List the environments: Python, torch, CUDA, lock, built or not. Example: harness envs --json"""
    listed = venvs.list_environments(places())
    if json_:
        print_json({"environments": [vars(row) for row in listed]})
    else:
        out.print(catalogue.envs_table(listed, out.width))
    return 0


@click.command()
@click.argument("env")
@as_json
def sync(env: str, json_: bool) -> int:
    """Build ENV, or bring its packages to the versions of its lock; then the doctor looks at its bytes.

    Example: harness sync cpu
    """
    where = places()
    table = environments.environment(env, where)
    built = venvs.sync(env, where, say=say)
    question = Question(built.python, built.lock, table, env, f"{program()} doctor {env}")
    with hashing(disable=json_) as progress:
        diagnosis = diagnose(question, where, progress)
    if json_:
        answer = {"name": built.name, "python": str(built.python), "lock_digest": built.lock.digest}
        print_json({**answer, "ok": diagnosis.ok})
    else:
        out.print(diagnosis_view.report(diagnosis), soft_wrap=True)
    return 0 if diagnosis.ok else 1
