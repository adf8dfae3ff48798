"""What the tests of mending install, how they edit it, and how they see that it is unharmed."""

from __future__ import annotations

import functools
from pathlib import Path

from harness.pin.doctor.mending import journal, mend
from tests.pin.doctor.locked import Locked
from tests.pin.doctor.trees import snapshot
from tests.pin.doctor.wheels import make_wheel

FIX = "harness doctor x --fix"

NCCL = "nvidia/nccl/lib/libnccl.so.2"

HEADER = "nvidia/nccl/include/nccl.h"


class Wheels:
    """The wheels of every story here."""

    def __init__(self, folder: Path) -> None:
        make = functools.partial(make_wheel, folder)
        package = {
            "tool/__init__.py": b"answer = 42\n",
            "tool/deep/down.py": b"down = True\n",
            "tool/data.bin": bytes(80_000),
        }
        commands = {"tool-run": b"#!python\nprint('tool')\n"}
        points = {"tool-1.0+cpu.dist-info/entry_points.txt": b"[console_scripts]\ntool-go = tool:main\n"}
        data = {"tool-1.0+cpu.data/data/share/tool/note.txt": b"note"}
        self.tool = make("tool", "1.0+cpu", package | points | data, scripts=commands)
        self.nccl13 = make("nvidia-nccl-cu13", "2.28.9", {NCCL: b"\x7f13", HEADER: b"same"})
        self.nccl12 = make("nvidia-nccl-cu12", "2.27.5", {NCCL: b"\x7f12, longer", HEADER: b"same"})
        self.small = make("small", "3.0", {"small.py": b"small = 3\n"})
        self.extra = make(
            "sglang", "0.5", {"sglang/__init__.py": b"", "sglang/srt/main.py": b"", "small.py": b"mine\n"}
        )
        other = folder / "other"
        other.mkdir()
        self.tool_2 = make_wheel(other, "tool", "2.0", {"tool/__init__.py": b"answer = 43\n", "tool/new.py": b""})
        self.tool_cu = make_wheel(other, "tool", "1.0+cu128", package)

    @property
    def locked(self) -> tuple[Path, ...]:
        return self.tool, self.nccl13, self.small


def edit(path: Path, content: bytes = b"edited") -> None:
    """As an editor does: a new file in place of the old."""
    path.unlink()
    path.write_bytes(content)


def environment(env: Locked) -> dict[str, object]:
    """The environment itself, without what a mender has left beside it."""
    return {path: what for path, what in snapshot(env.prefix).items() if mend.FOLDER not in path}


def unharmed(env: Locked, before: object) -> None:
    assert snapshot(env.prefix) == before
    assert not journal.interrupted(env.prefix)
