"""The doctor's word before a run: what is broken stops it, what is dangerous or has drifted goes into its record."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from harness.errors import EnvironmentFault
from harness.pin import environments
from harness.pin.aside import Say
from harness.pin.doctor.case import Question, command_on
from harness.pin.doctor.diagnose import diagnose
from harness.pin.doctor.installed.digests import Progress
from harness.places import Places, program
from harness.records import BuiltEnvironment
from harness.run.prepare import variables
from harness.run.runner import Order

FOREIGN_LIMIT_BYTES = 1_000_000_000
"""An environment that is not ours may be a whole system: its first run does not wait for more than this to be read."""


def verified(order: Order, where: Places, say: Say, overrule: bool = False, progress: Progress | None = None) -> Order:
    """``order`` with what the doctor found in its environment; a tenth of a second where nothing has changed.

    Raises EnvironmentFault, with nothing started, where it is broken, unless ``overrule``.
    """
    question = question_of(order, where)
    limit = None if order.environment.lock else FOREIGN_LIMIT_BYTES
    diagnosis = diagnose(question, where, progress, limit)
    bad = [finding for finding in diagnosis.findings if finding.severity in ("broken", "dangerous")]
    if diagnosis.worst == "broken" and not overrule:
        more = f"; {len(bad) - 1} more: {question.command}" if len(bad) > 1 else ""
        raise EnvironmentFault(
            f"{bad[0].summary}; nothing was started; mend it: {bad[0].fix}{more}; or run it as it is: --no-verify"
        )
    for finding in bad[:3]:
        say(f"{finding.severity}: {finding.summary}; mend it: {finding.fix}")
    return replace(order, diagnosis=diagnosis)


def question_of(order: Order, where: Places) -> Question:
    """What to ask of the doctor for ``order``: its environment, as its child will find it."""
    built = order.environment
    return Question(
        python=built.python,
        lock=built.lock,
        name=built.name,
        environment=environments.environment(built.name, where) if built.name else None,
        command=_command(built, where),
        variables=variables(order.spec, built, where, order.code_folder, order.data),
        cwd=str(order.code_folder),
    )


def _command(built: BuiltEnvironment, where: Places) -> str:
    if built.lock is None:
        return command_on(built.python)
    if Path(built.lock.path).is_relative_to(where.root / "envs"):
        return f"{program()} doctor {built.name}"
    return command_on(built.python, built.lock.path)
