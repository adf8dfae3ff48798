"""Runs somebody's program under the compile guard, as Python runs it alone: ``python -m harness.run.compile_guard``."""

from __future__ import annotations

import functools
import runpy
import sys
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, TracebackType

from harness.run.compile_guard import install

USAGE = "usage: python -m harness.run.compile_guard [-m MODULE | SCRIPT] ARGS..."


def main(arguments: list[str]) -> int:
    """Guard this process and run the program in it: Python exits as it alone would. 2 where nothing can be run."""
    if arguments and arguments[0] in ("-h", "--help"):
        sys.stdout.write(USAGE + "\n")
        return 0
    if not arguments or arguments == ["-m"]:
        sys.stderr.write(USAGE + "\n")
        return 2
    as_module = arguments[0] == "-m"
    if not as_module and not Path(arguments[0]).is_file():
        sys.stderr.write(f"compile guard: there is no script {arguments[0]}; {USAGE}\n")
        return 2
    install()
    sys.argv = arguments[1:] if as_module else arguments
    program = ModuleType("__main__")
    launcher, sys.modules["__main__"] = sys.modules["__main__"], program
    program.__dict__["__builtins__"] = launcher.__dict__["__builtins__"]
    try:
        if as_module:
            runpy._run_module_as_main(sys.argv[0])  # type: ignore[attr-defined]  # what ``python -m`` itself calls
        else:
            _run_script(sys.argv[0], program)
    except BaseException:
        sys.excepthook = functools.partial(_without_ours, sys.excepthook)
        raise
    return 0


def _run_script(script: str, program: ModuleType) -> None:
    name = script if Path(script).is_absolute() else f"{Path.cwd()}/{script}"  # absolute, so that a script may chdir
    program.__dict__.update(__file__=name, __cached__=None, __spec__=None, __annotations__={})
    program.__loader__ = SourceFileLoader("__main__", name)
    if not sys.flags.safe_path:
        sys.path[0] = str(Path(script).resolve().parent)
    exec(compile(Path(script).read_bytes(), name, "exec"), program.__dict__)


def _without_ours(
    hook: Callable[..., object], kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    """Show an uncaught error as the program alone would: from the first line after this module's."""
    frames = [traceback]
    while (last := frames[-1]) is not None:
        frames.append(last.tb_next)
    own = [
        i for i, frame in enumerate(frames) if frame and frame.tb_frame.f_code in (main.__code__, _run_script.__code__)
    ]
    top = frames[own[-1] + 1] if own else traceback
    hook(kind, error.with_traceback(top), top)
