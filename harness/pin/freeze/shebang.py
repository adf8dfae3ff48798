"""The first line of an installed script, and the placeholder that stood there in its wheel."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

PLACEHOLDER = b"#!python"

# What installers write for it: the interpreter's path, or, where that is long or found at run time, a line of shell.
_DIRECT = re.compile(rb"#!(?P<python>\S*/python[\w.]*)[ \t]*(?P<end>\r?\n)")
_SHELL = re.compile(rb"#!/bin/sh\n'''exec' (?P<python>[^\n]{1,4096}) \"\$0\" \"\$@\"\n' '''(?P<end>\r?\n)")
_HEAD = 8192


class Start(NamedTuple):
    """A file's first bytes as they were in its wheel: ``text`` stands for the first ``length`` bytes on disk."""

    text: bytes
    length: int


NOTHING = Start(b"", 0)


def original_start(path: str, scripts: str) -> Start:
    """The start of the script ``path`` with its placeholder put back; ``scripts`` is its environment's bin folder."""
    with Path(path).open("rb") as file:
        head = file.read(_HEAD)
    if match := _SHELL.match(head):
        return Start(PLACEHOLDER + match["end"], match.end())
    match = _DIRECT.match(head)
    if match and Path(os.fsdecode(match["python"])).parent.resolve() == Path(scripts).resolve():
        return Start(PLACEHOLDER + match["end"], match.end())
    return NOTHING


def after_placeholder(content: bytes) -> bytes | None:
    """What follows the first line of a wheel's script; None where that line is not an installer's to write."""
    return content.partition(b"\n")[2] if content.startswith(PLACEHOLDER) else None
