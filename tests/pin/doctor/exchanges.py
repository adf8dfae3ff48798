"""One exchange of files, and faults at each of its steps. As a program, it is killed at each."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.pin.doctor.mending import journal

CHANGES = tuple((os, name) for name in ("rename", "replace", "mkdir", "rmdir", "unlink"))
"""Every call of the operating system by which an exchange changes the disk."""
SYNCS = ((os, "fsync"), (journal, "_sync_file_system"))
"""What brings it to the disk, which a test of dead processes need not wait for."""

SITE = "lib/python3.11/site-packages"
OLD = {
    f"{SITE}/nvidia/nccl/lib/libnccl.so.2": b"cu13's",
    f"{SITE}/nvidia_nccl_cu13-2.28.9.dist-info/RECORD": b"cu13's record",
    f"{SITE}/gone/only.py": b"gone",
    "bin/tool": b"#!old",
    "etc/file_then_folder": b"a file",
    "etc/folder_then_file/inner": b"in a folder",
}
STAYS = {f"{SITE}/other.py": b"other", "bin/python": b"python", "pyvenv.cfg": b"home = /usr/bin"}
NEW = {
    f"{SITE}/nvidia/nccl/lib/libnccl.so.2": b"cu12's, and longer",
    f"{SITE}/nvidia_nccl_cu12-2.27.5.dist-info/RECORD": b"cu12's record",
    f"{SITE}/fresh/deep/er.py": b"fresh",
    "bin/tool": b"#!new",
    "share/doc/it": b"a folder that was not there",
    "etc/file_then_folder/inner": b"in a folder",
    "etc/folder_then_file": b"a file",
}


def lay(prefix: Path, files: dict[str, bytes]) -> None:
    for number, (path, content) in enumerate(files.items()):
        (prefix / path).parent.mkdir(parents=True, exist_ok=True)
        (prefix / path).write_bytes(content)
        (prefix / path).chmod(0o755 if path.startswith("bin/") else 0o640)
        os.utime(prefix / path, ns=(10**18 + number, 10**18 + 17 * number))


def exchange(prefix: Path, body: Callable[[], None] = lambda: None) -> None:
    with journal.workspace(prefix) as new:
        lay(new, NEW)
        with journal.exchanged(prefix, OLD, NEW):
            body()


@contextmanager
def at_step(number: int, act: Callable[[], None]) -> Iterator[list[str]]:
    """Call ``act`` in place of the step of that number; yields the names of the steps as they come."""
    seen = list[str]()

    def counted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            seen.append(name)
            if len(seen) == number:
                act()
            return real(*arguments, **options)

        return call

    real = {(module, name): getattr(module, name) for module, name in (*CHANGES, *SYNCS)}
    try:
        for module, name in real:
            setattr(module, name, counted(name, real[module, name] if (module, name) in CHANGES else lambda _: None))
        yield seen
    finally:
        for (module, name), function in real.items():
            setattr(module, name, function)


def full() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def interrupt() -> None:
    raise KeyboardInterrupt


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def killed(prefix: Path, number: int, action: Callable[[Path], object]) -> bool:
    """Whether ``action``, in a process of its own, came to the step of that number, at which it is killed."""
    child = os.fork()
    if child == 0:
        with at_step(number, die):
            action(prefix)
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


if __name__ == "__main__":  # exchange FOLDER FIRST LAST, or roll_back PREFIX: prints how often it was killed
    what, path, *numbers = sys.argv[1:]
    if what == "exchange":
        steps = range(int(numbers[0]), int(numbers[1]) + 1)
        print(sum(killed(Path(path) / str(number), number, exchange) for number in steps))
    else:
        print(next(number - 1 for number in range(1, 1000) if not killed(Path(path), number, journal.roll_back)))
