"""Where commands print, and the options that they share."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

as_json = click.option("--json", "json_", is_flag=True, help="One JSON object on standard output, for programs.")


@contextmanager
def hashing(disable: bool = False) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error for an environment's bytes while they are read; nothing where none have to be."""
    with ExitStack() as shown:
        bars: list[tuple[Progress, TaskID]] = []

        def show(done: int, total: int) -> None:
            if not bars:
                bar = shown.enter_context(_bar(disable))
                bars.append((bar, bar.add_task("", total=total)))
            bar, task = bars[0]
            bar.update(task, completed=done, total=total)

        yield show


def _bar(disable: bool) -> Progress:
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn  # only when shown

    columns = (TextColumn("reading every byte"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    return Progress(*columns, console=err, transient=True, disable=disable)


def say(text: str) -> None:
    """Progress, for a person: to standard error, so that results can be piped."""
    err.print(text, style="dim", soft_wrap=True, markup=False)


def print_json(data: Any) -> None:
    """Results, for a program: one JSON object on standard output."""
    click.echo(json.dumps(data, indent=1, ensure_ascii=False))
