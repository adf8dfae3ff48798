"""The processes that run in an environment, as far as /proc shows them to this user."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

_PROC = Path("/proc")
_LONGEST = 48
"""Characters of one word of a command line: enough for a folder and a script."""


def users_of(prefix: str) -> dict[int, str]:
    """The processes, this one left out, whose program or mapped files lie under ``prefix``: pid -> what it runs."""
    found = {}
    for process in _PROC.iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            try:
                if any(path.startswith(prefix.rstrip("/") + "/") for path in _files_of(process)):
                    found[int(process.name)] = what_runs(_words(process))
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue  # it ended, or it is another user's
    return dict(sorted(found.items()))


def what_runs(words: Sequence[str]) -> str:
    """A command line for a sentence: "python3.11 train.py", "python -m vllm.serve"; long paths keep both ends."""
    if not words:
        return "a process of the system"
    rest = list(words[1:])
    # Of an interpreter's options two say what runs, and two others take a word that does not.
    while rest and rest[0].startswith("-") and rest[0] not in ("-m", "-c", "-"):
        del rest[: 2 if rest[0] in ("-X", "-W") else 1]
    shown = [words[0].rpartition("/")[2], *rest[: 2 if rest[:1] in (["-m"], ["-c"]) else 1]]
    return " ".join(_shortened(" ".join(word.split())) for word in shown)


def _shortened(word: str) -> str:
    return word if len(word) <= _LONGEST else f"{word[: _LONGEST // 3]}…{word[-(_LONGEST - _LONGEST // 3 - 1) :]}"


def _words(process: Path) -> list[str]:
    return [os.fsdecode(word) for word in (process / "cmdline").read_bytes().split(b"\0") if word]


def _files_of(process: Path) -> Iterator[str]:
    """The program as it was called, the program itself, and every mapped file.

    The first is needed: the Python of a virtual environment is a link that leads out of it, and a process that has
    imported no compiled module has nothing else mapped.
    """
    if words := _words(process):
        yield _called(process, words[0])
    yield str((process / "exe").readlink())
    for line in (process / "maps").read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        yield line.split(maxsplit=5)[-1]


def _called(process: Path, word: str) -> str:
    """The path of the program that ``word`` named where the process was started; the last link is not followed."""
    if "/" in word:
        path = (process / "cwd").readlink() / word if not word.startswith("/") else Path(word)
    else:
        environ = (process / "environ").read_bytes().split(b"\0")
        search = next((os.fsdecode(entry[5:]) for entry in environ if entry.startswith(b"PATH=")), None)
        path = Path(shutil.which(word, path=search) or word)
    return str(path.parent.resolve() / path.name)
