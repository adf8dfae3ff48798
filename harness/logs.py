"""What a process printed, as a person sees it: without colours, and with progress bars known for what they are.

Standard library only. ``run`` reads a run's last words with it, ``explain`` its failure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

# Colours and cursor movements (ECMA-48), titles and links (OSC), and other control characters; tabs stay.
_UNSEEN = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-_]|[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]"
)
_BAR = re.compile(r"^.*?\d+%\|[^|]*\|.*?(?:\[[^\]]*\]|$)|^.*?\b\d+/\d+ \[[\d:?]+<[^\]]*\]")  # tqdm, and its kind
_RATE = re.compile(r"\d(?:\.\d+)? ?(?:it|s|[KMG]?i?B)/(?:s|it)\b")
# "[rank3]: " by torch.distributed's hook, "[default3]:" by torchrun, "3: " by srun --label
_RANK = re.compile(r"^(?:\[(?:rank|default)(?P<rank>\d+)\]:|(?P<task>\d{1,4}):(?= )) ?")
_TIME = re.compile(r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)? ")
_ROOT_CAUSE = re.compile(r"Root Cause \(first observed failure\)")
_ROOT_RANK = re.compile(r"^\s*rank\s*: (?P<rank>\d+) \(local_rank")
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Fault|Warning)\b")


class Line(NamedTuple):
    """One line. A bar that something was printed after is cut off; a line that is only a bar is ``progress``."""

    text: str
    rank: int | None = None  # of the process that printed it, where the line says so
    progress: bool = False


def lines(printed: Iterable[str]) -> list[Line]:
    """The lines of ``printed``; what a carriage return overwrote is a line of its own."""
    parts = (part for raw in printed for part in re.split(r"[\r\n]+", raw))
    return [line for part in parts if (line := _line(part)).text]


def says_exception(text: str) -> bool:
    """Whether a line starts with an exception's name, as the last line of a traceback does."""
    return _EXCEPTION.match(text) is not None


def root_cause(lines: Sequence[Line]) -> Sequence[Line]:
    """The lines in which torchrun tells of the worker that failed first; none where it tells nothing."""
    root = next((n for n, line in enumerate(lines) if _ROOT_CAUSE.search(line.text)), len(lines))
    return lines[root : root + 12]


def first_rank(lines: Sequence[Line]) -> int | None:
    """The rank that torchrun saw fail first; None where it does not say."""
    ranks = (match["rank"] for line in root_cause(lines) if (match := _ROOT_RANK.search(line.text)))
    return next((int(rank) for rank in ranks), None)


def _line(part: str) -> Line:
    text = _UNSEEN.sub("", part).rstrip()
    rest = _BAR.sub("", text)
    if rest != text:
        text, only_bar = (rest.lstrip(), False) if rest.strip(" ,") else (text, True)
    else:
        only_bar = _RATE.search(text) is not None and not says_exception(text)
    marked = _RANK.match(_TIME.sub("", text))
    if marked is None:
        return Line(_TIME.sub("", text), None, only_bar)
    return Line(_TIME.sub("", text)[marked.end() :], int(marked["rank"] or marked["task"]), only_bar)
