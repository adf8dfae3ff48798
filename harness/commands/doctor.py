"""The doctor: what is wrong with an environment, and how to mend it.

What only some answers need is imported where they do: an environment that has not changed is answered in an instant.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import click

from harness.commands.terminal import as_json, err, hashing, out, print_json, say
from harness.errors import EnvironmentFault, UsageError
from harness.findings import Diagnosis
from harness.pin import environments, interpreter, venvs
from harness.pin.doctor.case import Question, command_on
from harness.pin.doctor.diagnose import diagnose
from harness.pin.locks import read_lock
from harness.places import Places, places, program
from harness.view import diagnosis as view

_WITH_HASHES = "pip-compile --generate-hashes makes one"

_PATH = click.Path(path_type=Path)


@click.command()
@click.argument("env", required=False)
@click.option("--python", type=_PATH, help="Any interpreter or virtual environment, ours or not.")
@click.option("--lock", type=_PATH, help="The hashed lock that --python should hold to.")
@click.option("--deep", is_flag=True, help="Also import torch and its kind in a process, and see what it loads.")
@click.option("--fix", is_flag=True, help="Mend it from its lock: shows the plan and asks first.")
@click.option("--yes", is_flag=True, help="With --fix: do not ask.")
@click.option("--remove", multiple=True, metavar="NAME", help="With --fix: also take this distribution away.")
@click.option("--if-uninstalled", metavar="NAME", help="Only say what an uninstall of NAME would take from others.")
@click.option("--notes", is_flag=True, help="Show the notes too.")
@as_json
def doctor(
    env: str | None,
    python: Path | None,
    lock: Path | None,
    deep: bool,
    fix: bool,
    yes: bool,
    remove: tuple[str, ...],
    if_uninstalled: str | None,
    notes: bool,
    json_: bool,
) -> int:
    """Say what is wrong with an environment, and the command that mends it.

    Exit 0: nothing broken or dangerous; 1: something is.

    \b
    Examples:
      harness doctor cpu
      harness doctor cu130 --fix
      harness doctor --python /root/venv/bin/python
      harness doctor cu130 --if-uninstalled nvidia-nccl-cu13
    """
    where = places()
    if (yes or remove) and not fix:
        raise UsageError("--yes and --remove go with --fix")
    question = _question(env, python, lock, where)
    if if_uninstalled:
        return _if_uninstalled(question, if_uninstalled, where, json_)
    if fix:
        _fix(question, where, yes, remove, json_)
        say("examining it again ...")
    with hashing(disable=json_) as progress:
        if not deep:
            return _answer(diagnose(question, where, progress), notes, json_)
        from harness.pin.doctor.examine import deepened

        say("importing torch and its kind as well, to see what they load ...")
        diagnosis = deepened(question, where, progress)
    return _answer(diagnosis, notes, json_)


def _fix(question: Question, where: Places, yes: bool, remove: tuple[str, ...], json_: bool) -> None:
    """Show the plan, ask, carry it out. Raises UsageError where there is nobody to ask, or no lock to mend from."""
    from harness.pin.doctor.examine import examine
    from harness.pin.doctor.mending import mend

    with hashing(disable=json_) as progress:
        examined = examine(question, where, progress)
    plan = mend.plan(examined.case, examined.diagnosis.findings, remove)
    if question.lock is None and not plan.steps:
        raise UsageError("--fix mends from a lock: name one with --lock, or type each finding's own command")
    err.print(view.plan(plan, question.name or str(question.python)), soft_wrap=True)
    if plan.nothing:
        return
    if not yes:
        if json_ or not sys.stdin.isatty():
            raise UsageError("--fix asks before it changes anything, and nobody can answer here: add --yes")
        click.confirm("carry it out?", abort=True, err=True)
    mend.carry_out(plan, examined.case, venvs.find_uv(where, say), say)
    if plan.names("roll back"):
        _fix(question, where, yes, remove, json_)  # what was wrong before the interrupted mend is wrong again


def _answer(diagnosis: Diagnosis, notes: bool, json_: bool) -> int:
    if json_:
        print_json(diagnosis.to_json())
    else:
        out.print(view.report(diagnosis, notes), soft_wrap=True)
    return 0 if diagnosis.ok else 1


def _question(env: str | None, python: Path | None, lock: Path | None, where: Places) -> Question:
    """What is asked of the doctor. Raises UsageError for an environment that is not there, or asked for twice."""
    if (env is None) == (python is None):
        raise UsageError("name an environment (harness envs lists them) or a Python with --python, and not both")
    if env is not None:
        if lock is not None:
            raise UsageError(f"{env} has a lock of its own; --lock goes with --python")
        table = environments.environment(env, where)
        built = venvs.find(table.name, where)
        if built is None:
            raise UsageError(f"{env} is not built here: {program()} sync {env}")
        return Question(built.python, built.lock, table, env, f"{program()} doctor {env}")
    assert python is not None
    return _foreign(interpreter_of(python), lock, where)


def interpreter_of(given: Path) -> Path:
    """The Python that ``given`` is, or that is in it. Raises UsageError where there is none."""
    inside = given / "bin" / "python"
    found = (inside if given.is_dir() else given).absolute()
    if found.is_symlink() and not found.exists():
        raise UsageError(
            f"{given}: its Python is gone, {found} leads to {found.resolve()}; install that, or make it anew"
        )
    if not found.is_file():
        raise UsageError(f"{str(given)!r} is neither a Python nor a virtual environment")
    return found


def _foreign(python: Path, lock: Path | None, where: Places) -> Question:
    """Somebody's Python. With a lock of ours, its table in envs.toml says more: the CUDA, and where wheels are."""
    if lock is None:
        return Question(python, command=command_on(python))
    if not lock.is_file():
        raise UsageError(f"there is no lock at {lock}")
    version = ".".join(interpreter.ask(python).version.split(".")[:2])
    known = environments.load_environments(where).values()
    table = next((env for env in known if environments.lock_path(env, version, where) == lock.resolve()), None)
    try:
        read = read_lock(lock.absolute(), table.name if table else lock.stem, (version,), _WITH_HASHES)
    except EnvironmentFault as error:
        raise UsageError(str(error)) from None
    return Question(python, read, table, command=command_on(python, lock.absolute()))


def _if_uninstalled(question: Question, name: str, where: Places, json_: bool) -> int:
    from harness.pin.doctor.checks import ownership
    from harness.pin.doctor.examine import examine

    with hashing(disable=json_) as progress:
        case = examine(question, where, progress).case
    findings = ownership.if_uninstalled(case, name)
    if json_:
        print_json({"name": name, "findings": [asdict(finding) for finding in findings]})
    else:
        out.print(view.losses(name, findings), soft_wrap=True)
    return 1 if any(finding.severity != "note" for finding in findings) else 0
