"""A picture as a terminal of some width shows it."""

from __future__ import annotations

import io
import re

from rich.console import Console, RenderableType


def drawn(picture: RenderableType, width: int = 80, colour: bool = False) -> str:
    console = Console(file=io.StringIO(), width=width, no_color=not colour, force_terminal=colour, legacy_windows=False)
    console.print(picture)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def squeezed(text: str) -> str:
    """Without blanks: a narrow terminal folds anywhere."""
    return re.sub(r"\s+", "", text)
