"""One environment of the image, built in a stage of the Dockerfile: ``python -m harness.pin.image.inside NAME``.

Runs with the base's bare Python: standard library only.
"""

from __future__ import annotations

import compileall
import json
import os
import py_compile
import shutil
import sys
from pathlib import Path

from harness.errors import HarnessError
from harness.pin import venvs
from harness.pin.aside import say_on_stderr
from harness.pin.environments import RUNNING
from harness.places import Places, places

SETTINGS = Path(".build")
"""What the build alone has, in the folder that it works in: never a part of the image."""


def build(name: str, where: Places) -> None:
    """Build the environment ``name`` for the running Python, with its bytecode, and leave nothing else beside it."""
    built = venvs.link_harness(where) if name == "harness" else venvs.ensure(name, where, RUNNING)
    compile_bytecode(built.site_packages)
    for other in where.envs.iterdir():
        if other != built.folder:
            other.unlink() if other.is_file() else shutil.rmtree(other)


def compile_bytecode(folder: Path) -> None:
    """Bytecode that says nothing of times, so that two builds are equal, one file after the other for the same reason.

    A read-only image could not keep what Python compiles at each start. What is no Python to this version (templates,
    tests of syntax) is left as it is.
    """
    compileall.compile_dir(
        folder, maxlevels=50, quiet=2, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
    )


def main(name: str) -> int:
    """Build ``name``; returns the exit code."""
    settings = SETTINGS / "settings.json"
    if settings.exists():
        os.environ.update(json.loads(settings.read_text(encoding="utf-8")))
    try:
        build(name, places())
    except HarnessError as error:
        say_on_stderr(f"error: {error}")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
