"""The process after ``import torch``, replayed: which libraries it has, from where, and what it did not find.

torch's wheels rely on more than the loader. ``torch/__init__.py`` opens libtorch_global_deps.so, then, by its own list,
the CUDA libraries of the nvidia wheels wherever sys.path has them, and only then the extension module. Whether and what
it opens differs by version (torch 2.3 opens the list only after a failure, 2.5 to 2.8 nvJitLink and NVRTC always, 2.14
the whole list), so it is taken from the source of the torch that is installed:

    cuda_libs = {folder: pattern} or [(folder, pattern)]   the list
    the ``except OSError`` of _load_global_deps            opens the list, where libtorch_global_deps.so did not load
    calls in the ``try`` before it, with two strings       open those, always
    a call there without strings                           opens the list, always
    "..." not in _maps                                     none of it is opened always unless that is loaded
"""

from __future__ import annotations

import ast
import glob
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.pin.doctor.linking.ldso import Opening, Process

Pattern = tuple[str, str]
"""A folder of the nvidia wheels, and the pattern of a file name in its lib: ("cudnn", "libcudnn.so.*[0-9]")."""

_FUNCTIONS = re.compile(r"^def (_preload_cuda\w*|_load_global_deps)\b.*?(?=^[^\s#)])", re.MULTILINE | re.DOTALL)
_CUDA_VERSION = re.compile(r"^cuda\b[^=\n]*=\s*['\"](\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Habit:
    """What one version of torch opens by itself."""

    listed: tuple[Pattern, ...] = ()  # after a failure
    always: tuple[Pattern, ...] = ()
    only_with: str = ""  # of ``always``: part of the path of a library that must be loaded


def read_habit(source: str) -> Habit:
    """The habit of a ``torch/__init__.py``; an empty one where it is written in no way that is known."""
    text = "\n".join(found[0] for found in _FUNCTIONS.finditer(source))
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError):
        return Habit()
    listed = next((pairs for node in nodes if (pairs := _list_of(node))), ())
    tries = [node for node in nodes if isinstance(node, ast.Try) and _opens_global_deps(node)]
    always: tuple[Pattern, ...] = ()
    only_with = ""
    for node in (inner for attempt in tries[:1] for statement in attempt.body for inner in ast.walk(statement)):
        if isinstance(node, ast.Call) and "_preload_cuda" in ast.unparse(node.func):
            strings = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
            always += ((strings[0], strings[1]),) if len(strings) == 2 else listed
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Constant) and "_maps" in ast.unparse(node):
            only_with = str(node.left.value)
    return Habit(listed, always, only_with)


def _list_of(node: ast.AST) -> tuple[Pattern, ...]:
    """The pairs of ``cuda_libs = ...``, written as a dictionary or as a list."""
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        name, value = ast.unparse(node.target), node.value
    elif isinstance(node, ast.Assign):
        name, value = ast.unparse(node.targets[0]), node.value
    else:
        return ()
    if name != "cuda_libs":
        return ()
    try:
        literal = ast.literal_eval(value)
    except ValueError:
        return ()
    pairs = literal.items() if isinstance(literal, dict) else literal
    return tuple((str(folder), str(pattern)) for folder, pattern in pairs)


def _opens_global_deps(node: ast.Try) -> bool:
    return "CDLL(global_deps_lib_path" in ast.unparse(node.body[0])


@dataclass(frozen=True)
class TorchProcess:
    """A process that has imported torch, and all that was opened on the way."""

    process: Process
    openings: tuple[Opening, ...]


def imported(start: Process, torch: Path, path: Sequence[str]) -> TorchProcess:
    """The process ``start`` after ``import torch`` from the folder ``torch``, with ``path`` as its sys.path."""
    habit = read_habit(_source(torch / "__init__.py"))
    global_deps = str(torch / "lib" / "libtorch_global_deps.so")
    process = start.copy()
    openings = [process.open(global_deps)]
    if openings[0].failures:  # the ``except OSError`` branch: the list first, then again
        process = start.copy()
        openings = [*_open_all(process, habit.listed, torch, path), process.open(global_deps)]
    elif not habit.only_with or any(habit.only_with in library.path for library in process.loaded):
        openings += _open_all(process, habit.always, torch, path)
    modules = sorted(torch.glob("_C.*so"))
    when_first_wanted = sorted((torch / "lib").glob("*.so"))
    openings += [process.open(str(library)) for library in (*modules, *when_first_wanted)]
    return TorchProcess(process, tuple(openings))


def _source(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:  # a torch without it does not start: file.missing says so
        return ""


def _open_all(process: Process, patterns: Sequence[Pattern], torch: Path, path: Sequence[str]) -> list[Opening]:
    version = _CUDA_VERSION.search(_source(torch / "version.py"))
    major = (f"nvidia/cu{version[1]}",) if version else ()
    found = (next(_matches(pattern, major, path), None) for pattern in patterns)
    return [process.open(library) for library in found if library is not None]


def _matches(pattern: Pattern, major: tuple[str, ...], path: Sequence[str]) -> Iterator[str]:
    """Where torch looks: each folder of sys.path, and in it nvidia/<folder>, nvidia/cu<major>, <folder>."""
    folder, name = pattern
    for entry in path:
        for place in (f"nvidia/{folder}", *major, folder):
            yield from sorted(glob.glob(os.path.join(glob.escape(entry), place, "lib", name)))  # noqa: PTH118, PTH207
