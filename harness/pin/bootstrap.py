"""From a bare Python to a pinned nox: ``python3 noxfile.py ARGS`` comes here. Standard library only."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from harness.errors import HarnessError
from harness.pin.aside import say_on_stderr
from harness.pin.venvs import ensure
from harness.places import places


def main(arguments: list[str]) -> NoReturn:
    """Become nox, from the tools environment, with the same arguments; exits 1 or 2, with one line, where that fails.

    Replacing the process keeps the exit code, the terminal and Ctrl-C as they are without a bootstrap.
    """
    where = places()
    try:
        tools = ensure("tools", where)
    except HarnessError as error:
        say_on_stderr(str(error))
        sys.exit(error.exit_code)
    sys.stdout.flush()
    command = [str(tools.python), "-m", "nox", "-f", str(where.root / "noxfile.py"), *arguments]
    os.execv(command[0], command)
