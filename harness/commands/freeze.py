"""Keep an environment that works, before anyone touches it."""

from __future__ import annotations

from pathlib import Path

import click

from harness.commands.doctor import interpreter_of
from harness.commands.terminal import as_json, hashing, out, print_json, say
from harness.pin.doctor.case import Question, command_on
from harness.pin.doctor.diagnose import diagnose
from harness.pin.freeze.capture import freeze as capture
from harness.places import places
from harness.view import frozen as view


@click.command()
@click.option("--python", required=True, type=click.Path(path_type=Path), help="The interpreter or venv that works.")
@click.option("--name", help="What to call it; without, it is named after its folder.")
@as_json
def freeze(python: Path, name: str | None, json_: bool) -> int:
    """Capture a working Python as an environment of ours: its lock, local wheels, loaded libraries, compile caches.

    Nothing of it is changed, and nothing is written into envs/ before the capture is complete.

    \b
    Examples:
      harness freeze --python /root/venv
      harness freeze --python /root/venv/bin/python --name working
    """
    where = places()
    found = interpreter_of(python)
    with hashing(disable=json_) as progress:
        diagnosis = diagnose(Question(found, command=command_on(found)), where, progress)
    broken = [finding for finding in diagnosis.findings if finding.severity == "broken"]
    frozen = capture(found, name, where, say, broken)
    if json_:
        print_json(frozen.to_json())
    else:
        out.print(view.report(frozen), soft_wrap=True)
    return 0
