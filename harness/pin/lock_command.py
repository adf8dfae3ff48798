"""``nox -s lock [-- ENV ...] [--upgrade | --check]``: compile the locks, or check them."""

from __future__ import annotations

import argparse
import sys

from harness.errors import HarnessError
from harness.pin.aside import say_on_stderr
from harness.pin.check_lock import check_environment
from harness.pin.compile_lock import compile_environment
from harness.pin.environments import environment, load_environments
from harness.places import places


def main(arguments: list[str]) -> int:
    """The command line; returns the exit code: 1 where a lock fails the check or cannot be written, 2 for misuse."""
    parser = argparse.ArgumentParser(prog="nox -s lock --", description="Compile the locks of envs/, or check them.")
    parser.add_argument("env", nargs="*", metavar="ENV", help="an environment of envs/envs.toml; all without one")
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions instead of keeping the pins")
    parser.add_argument("--check", action="store_true", help="only say whether the locks satisfy what they are made of")
    options = parser.parse_args(arguments)
    where = places()
    try:
        chosen = [environment(name, where) for name in options.env or load_environments(where)]
        if not options.check:
            chosen = [env for env in chosen if options.env or not env.captured]
            for env in chosen:
                paths = compile_environment(env, where, options.upgrade)
                say_on_stderr(f"wrote {', '.join(path.name for path in paths)}")
            return 0
        complaints = [complaint for env in chosen for complaint in check_environment(env, where)]
    except HarnessError as error:
        say_on_stderr(str(error))
        return error.exit_code
    for complaint in complaints:
        say_on_stderr(f"{complaint}; lock it anew: nox -s lock -- {complaint.partition(',')[0]}")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
