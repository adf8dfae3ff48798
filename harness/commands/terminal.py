"""Where commands print, and the options that they share."""

from __future__ import annotations

import json
from typing import Any

import click
from rich.console import Console

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

as_json = click.option("--json", "json_", is_flag=True, help="One JSON object on standard output, for programs.")


def say(text: str) -> None:
    """Progress, for a person: to standard error, so that results can be piped."""
    err.print(text, style="dim", soft_wrap=True, markup=False)


def print_json(data: Any) -> None:
    """Results, for a program: one JSON object on standard output."""
    click.echo(json.dumps(data, indent=1, ensure_ascii=False))
