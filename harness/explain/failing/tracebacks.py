"""Python's exceptions in a log: of threads and ranks that print into each other, chained, grouped or cut off."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from harness.logs import Line, says_exception

_HEADER = re.compile(r"Traceback \(most recent call last\)")
_UNCAUGHT = re.compile(r"Exception in thread (?P<thread>[^\s:(]+)|Process \S+:$")
_FRAME = re.compile(r'\s*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:,? in (?P<function>.+))?')
_BOXED = re.compile(r"│ (?P<file>\S+\.py):(?P<line>\d+) in (?P<function>\S+)")  # rich's tracebacks
_CHAIN = re.compile(r"(During handling of the above exception|The above exception was the direct cause)")
_MARGIN = re.compile(r"^ +(?:\+-[-+]+(?: [\d.]+ -+)?$|[|+] ?)")  # of an exception group
_RAISED = re.compile(r"(?P<type>[A-Z_]\w*|[A-Za-z_]\w*(?:\.\w+)+)(?:: ?(?P<message>.*))?$")
_GROUP = re.compile(r"\(\d+ sub-exceptions?\)$")
_LIBRARY = re.compile(
    r"/(?:site|dist)-packages/|/lib(?:64)?/python3|/torch/(?:_\w+|nn|fx|utils|cuda|autograd|distributed)/"
    r"|/torchinductor_|^<(?!stdin|string)|/harness/run/events\.py$"
)
_FATAL = re.compile(r"Fatal Python error: |^Current thread 0x")


@dataclass(frozen=True)
class Frame:
    """One call of a traceback."""

    file: str
    line: int
    function: str  # "" for a syntax error, which is in none

    @property
    def own(self) -> bool:
        """Whether it is the user's code, and no package's or Python's."""
        return _LIBRARY.search(self.file) is None

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}" + (f" ({self.function})" if self.function[:1] not in ("", "<") else "")


@dataclass(frozen=True)
class Raised:
    """An exception that was printed, from its first line, ``start``, to the one that names it, ``at``."""

    type: str  # "torch.OutOfMemoryError"
    message: str  # its first line
    start: int
    at: int
    frames: tuple[Frame, ...] = ()
    rank: int | None = None
    thread: str = ""
    uncaught: bool = False  # whoever printed it says that nothing caught it
    follows: bool = False  # it was raised from, or while handling, the one before

    @property
    def words(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type

    @property
    def own(self) -> Frame | None:
        """The last frame of the user's own code; of the whole stack where none is."""
        return next((frame for frame in reversed(self.frames) if frame.own), self.frames[-1] if self.frames else None)


@dataclass
class _Open:
    """The tracebacks of one rank that have begun and not yet named their exception.

    Threads that print into each other leave more than one open. Which frame is whose then cannot be told, so all
    frames stay until the last of them is named: threads that fail together mostly fail in the same place.
    """

    begun: int = 0
    start: int = 0
    frames: list[Frame] = field(default_factory=list)
    threads: list[str] = field(default_factory=list)
    uncaught: bool = False
    follows: bool = False
    indented: bool = False  # whether the line before was one of a traceback's


def find(lines: Sequence[Line]) -> list[Raised]:
    """The exceptions that ``lines`` print, in the order in which they are named."""
    found: list[Raised] = []
    open_by_rank: dict[int | None, _Open] = {}
    for index, line in enumerate(lines):
        if not line.progress:
            raised = _take(open_by_rank.setdefault(line.rank, _Open()), index, line)
            if raised is not None:
                found.append(raised)
    return _without_groups(found)


def fatal_stack(lines: Sequence[Line]) -> tuple[Frame, ...]:
    """The stack, the last call first, that Python's faulthandler prints of the thread that crashed; () without one."""
    begun = max((n for n, line in enumerate(lines) if _FATAL.search(line.text)), default=None)
    if begun is None:
        return ()
    frames: list[Frame] = []
    for line in lines[begun + 1 :]:
        if frame := _FRAME.match(line.text):
            frames.append(Frame(frame["file"], int(frame["line"]), frame["function"] or ""))
        elif frames:
            break
    return tuple(frames)


def _take(state: _Open, index: int, line: Line) -> Raised | None:
    """Follow one line; the exception that it names, if it does."""
    text = _MARGIN.sub("", line.text)
    if _CHAIN.search(text):
        state.follows = True
    elif uncaught := _UNCAUGHT.search(text):
        _begin(state, index, uncaught["thread"] or "")
        state.uncaught = True
    elif _HEADER.search(text):
        _begin(state, index)
        state.uncaught = state.uncaught or line.rank is not None  # torch's hook marks only what nothing caught
        state.begun += 1
    elif frame := _FRAME.match(text) or _BOXED.search(text):
        state.frames.append(Frame(frame["file"], int(frame["line"]), frame["function"] or ""))
    elif (named := _RAISED.match(text)) and _plausible(state, text, named["type"]):
        return _close(state, index, line, named)
    state.indented = text.startswith((" ", "│", "╰")) or bool(_HEADER.search(text))
    return None


def _begin(state: _Open, index: int, thread: str = "") -> None:
    if not state.begun and not state.threads:
        state.start, state.frames = index, []
    if thread:
        state.threads.append(thread)


def _plausible(state: _Open, text: str, name: str) -> bool:
    """Whether a line at the margin names an exception: by its name, or by standing where a traceback names one."""
    if says_exception(text):
        return not name.endswith("Warning") or state.begun > 0
    return state.begun > 0 and state.indented


def _close(state: _Open, index: int, line: Line, named: re.Match[str]) -> Raised:
    thread = state.threads.pop(0) if state.threads else ""
    raised = Raised(
        type=named["type"],
        message=(named["message"] or "").strip(),
        start=state.start if state.begun or state.threads else index,
        at=index,
        frames=tuple(state.frames),
        rank=line.rank,
        thread=thread,
        uncaught=state.uncaught,
        follows=state.follows,
    )
    state.begun = max(0, state.begun - 1)
    state.indented = state.follows = False
    if not state.begun:
        state.frames, state.threads, state.uncaught = [], [], False
    return raised


def _without_groups(found: list[Raised]) -> list[Raised]:
    """A group says only how many it holds: the first that it holds stands in its place."""
    kept: list[Raised] = []
    for number, raised in enumerate(found):
        if _GROUP.search(raised.message) and number + 1 < len(found):
            after = found[number + 1]
            found[number + 1] = replace(
                after, start=raised.start, frames=after.frames or raised.frames, uncaught=raised.uncaught
            )
        else:
            kept.append(raised)
    return kept
