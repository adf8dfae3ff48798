"""Paths as they stand in a sentence and in a command: whoever named a file may have meant harm."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence


def printable(path: str) -> str:
    """``path`` for a terminal and for JSON: control characters and bytes that are no text are spelled out."""
    return path if path.isprintable() else ascii(path)[1:-1]


def quoted(paths: Sequence[str]) -> str:
    """``paths`` for a shell; of one that is no text, each odd byte by its number."""
    return " ".join(shlex.quote(path) if path.isprintable() else f"$'{_numbered(path)}'" for path in paths)


def _numbered(path: str) -> str:
    plain = b"/._-+"
    return "".join(chr(b) if (b < 128 and chr(b).isalnum()) or b in plain else f"\\x{b:02x}" for b in os.fsencode(path))
