"""What to run, made complete: the environment built, the data there, the code's folder known."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from harness.errors import UsageError
from harness.pin import venvs
from harness.pin.aside import Say, say_on_stderr
from harness.pin.interpreter import environment_of, of_command
from harness.places import Places
from harness.records import BuiltEnvironment, RunSpec
from harness.run.logsteps import compiled
from harness.run.prepare import check_startable
from harness.run.process import resolved
from harness.run.runner import Order


def recipe_order(spec: RunSpec, where: Places, cold: bool = False, say: Say = say_on_stderr) -> Order:
    """The order for a recipe's spec, its environments built where they are not yet.

    Raises UsageError where this machine has not the GPUs, EnvironmentFault where an environment cannot be built.
    """
    check_startable(spec)  # before gigabytes are installed for nothing
    environment = built(spec.env, where, say=say)
    data = venvs.data_folder(where, say) if spec.data else None
    return Order(spec, environment, where.root, data, cold)


def command_order(
    argv: Sequence[str],
    where: Places,
    env: str = "",
    tokens_regex: str | None = None,
    cold: bool = False,
    say: Say = say_on_stderr,
) -> Order:
    """The order for a command that is not ours, given where it is to run: the current folder.

    Raises UsageError for a command or an expression that is not there or not right, before anything is built.
    """
    if not argv:
        raise UsageError("no command: write it after --, for example: harness run -- python train.py")
    if tokens_regex is not None:
        compiled(tokens_regex)
    spec = RunSpec(recipe="", env=env, argv=tuple(argv), tokens_regex=tokens_regex, summary=Path(argv[0]).name)
    if env:
        return Order(spec, built(env, where, say=say), Path.cwd(), cold=cold)
    resolved(argv)
    return Order(spec, found_environment(argv), Path.cwd(), cold=cold)


def found_environment(argv: Sequence[str]) -> BuiltEnvironment:
    """The environment of the Python that a command runs with. Raises UsageError where there is no Python at all."""
    python = of_command(argv, os.environ.get("PATH"))
    if python is None:
        raise UsageError(
            f"no Python was found for {argv[0]}: name an environment with --env; `harness envs` lists them"
        )
    return environment_of(python)


def built(name: str, where: Places, python: str | None = None, say: Say = say_on_stderr) -> BuiltEnvironment:
    """The locked environment ``name``, built if it is not there yet."""
    there = venvs.ensure(name, where, python, say)
    return BuiltEnvironment(there.name, there.python, there.site_packages, there.lock)


def built_from_lock(
    name: str, lock: Path, python: str, where: Places, under: Path, say: Say = say_on_stderr
) -> BuiltEnvironment:
    """The environment ``name`` as the lock file ``lock`` has it, for the Python ``python`` ("3.11").

    The environment's table is the current one; only its lock is replaced, in a copy of ``envs/`` under ``under``.
    """
    envs = under / "envs"
    shutil.copytree(where.root / "envs", envs, dirs_exist_ok=True)
    for path in envs.glob(f"{name}-py*.txt"):
        path.unlink()  # a lock for one Python would come before the recorded one
    shutil.copyfile(lock, envs / f"{name}.txt")
    return built(name, replace(where, root=under), python, say)
