"""The command line: finds the command, runs it, and turns every expected failure into one line and an exit code."""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Mapping, Sequence

import click

from harness.errors import INTERRUPTED, HarnessError

_COMMANDS: Mapping[str, str] = {
    "run": "running:run",
    "rerun": "running:rerun",
    "ab": "ab:ab",
    "race": "race:race",
    "import": "imports:import_",
    "runs": "recorded:runs_command",
    "show": "recorded:show",
    "tag": "tags:tag",
    "explain": "compare:explain",
    "diff": "compare:diff",
    "baseline": "compare:baseline",
    "mirror": "recorded:mirror",
    "ui": "recorded:ui_command",
    "recipes": "environments:recipes_command",
    "envs": "environments:envs_command",
    "sync": "environments:sync",
    "doctor": "doctor:doctor",
    "freeze": "freeze:freeze",
    "image": "image:image",
}
"""Where each command is. Only the file of the one that is asked for is loaded: all of them take most of a second."""


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click calls it so)
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        module, _, name = _COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(f"harness.commands.{module}"), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in _COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            near = difflib.get_close_matches(args[0], _COMMANDS, n=1, cutoff=0.6)
            hint = f"did you mean {near[0]}?" if near else f"the commands are {', '.join(_COMMANDS)}"
            raise click.UsageError(f"there is no command {args[0]}: {hint}", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name=None, version="0.1.0", prog_name="harness")
def cli() -> None:
    """Pin an environment, run a trainer in it, and keep a record that can be compared.

    \b
    Examples:
      harness run tiny train.steps=50       a recipe, with a setting changed
      harness run --env cpu -- python my_train.py
      harness show @1                       the latest run
      harness doctor cpu                    what is wrong with an environment
    """


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; every expected failure is one line on standard error. Returns the exit code."""
    try:
        code: int | None = cli.main(
            args=list(argv) if argv is not None else None, prog_name="harness", standalone_mode=False
        )
        return code or 0
    except HarnessError as error:
        _error(str(error))
        return error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return 2
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else "harness"
        _error(f"{error.format_message()} (see {path} --help)")
        return 2
    except OSError as error:
        _error(f"{error.filename or 'the system'}: {error.strerror}")
        return 1
    except (KeyboardInterrupt, click.Abort):
        click.secho("interrupted", fg="yellow", err=True)
        return INTERRUPTED


def _error(message: str) -> None:
    click.secho(f"error: {message}", fg="red", err=True)


if __name__ == "__main__":
    sys.exit(main())
