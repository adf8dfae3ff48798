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


def build(name: str, where: Places) -> Path:
    """Build the environment ``name`` for the running Python, with its bytecode; its folder."""
    wheels = where.state / "wheels"  # where the table of a captured environment says that they are
    if (SETTINGS / "wheels").exists():
        wheels.parent.mkdir(parents=True, exist_ok=True)
        wheels.symlink_to((SETTINGS / "wheels").absolute())
    built = venvs.link_harness(where) if name == "harness" else venvs.ensure(name, where, RUNNING)
    compile_bytecode(built.site_packages)
    forget_times(built.site_packages)
    wheels.unlink(missing_ok=True)
    return built.folder


def leave_alone(folder: Path) -> None:
    """Take away what stands beside the environment ``folder``: it is in a stage of its own, and locks are of no use."""
    for other in folder.parent.iterdir():
        if other.is_file():
            other.unlink()
        elif other != folder:
            shutil.rmtree(other)


def compile_bytecode(folder: Path) -> None:
    """Bytecode that says nothing of times, so that two builds are equal, one file after the other for the same reason.

    A read-only image could not keep what Python compiles at each start. What is no Python to this version (templates,
    tests of syntax) is left as it is.
    """
    compileall.compile_dir(
        folder, maxlevels=50, quiet=2, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
    )


def forget_times(site_packages: Path) -> None:
    """Take away uv's note of when a wheel's file was made, and that note's line in the RECORD: no two builds agree."""
    for note in site_packages.glob("*.dist-info/uv_cache.json"):
        record = note.with_name("RECORD")
        lines = record.read_bytes().splitlines(keepends=True)
        of_note = f"{note.relative_to(site_packages)},".encode()
        record.write_bytes(b"".join(line for line in lines if not line.startswith(of_note)))
        note.unlink()


def main(name: str) -> int:
    """Build ``name``; returns the exit code."""
    settings = SETTINGS / "settings.json"
    if settings.exists():
        os.environ.update(json.loads(settings.read_text(encoding="utf-8")))
    try:
        leave_alone(build(name, places()))
    except HarnessError as error:
        say_on_stderr(f"error: {error}")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
