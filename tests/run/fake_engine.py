"""A container engine for tests: the command line of docker or podman, with a process in the place of each container.

    python fake_engine.py KIND FOLDER ARGUMENT...

``FOLDER/images.json`` has the images as ``image inspect`` prints them, ``FOLDER/inside.py`` is what every container
runs, ``FOLDER/asked`` gets a line for each command, and ``FOLDER/down`` says why no engine answers.
As with a real engine, a container does not end with the client that started it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def main(kind: str, folder: Path, arguments: list[str]) -> int:
    with (folder / "asked").open("a") as asked:
        asked.write(json.dumps(arguments) + "\n")
    verb, last = arguments[0], arguments[-1]
    if verb == "--version":
        print("podman version 5.4.2" if kind == "podman" else "Docker version 28.2.2, build e6534b4")
        return 0
    if (folder / "down").exists():
        print((folder / "down").read_text(), file=sys.stderr)
        return 1
    if verb == "info":
        print('28.2.2 ["name=seccomp,profile=builtin"]')
        return 0
    if verb == "image":
        found = json.loads((folder / "images.json").read_text()).get(last)
        print(json.dumps([found] if found else []))
        return 0 if found else 125
    if verb == "run":
        return run(folder, arguments)
    return to_container(folder / f"{last}.pid", arguments)


def run(folder: Path, arguments: list[str]) -> int:
    (name,) = (a.removeprefix("--name=") for a in arguments if a.startswith("--name="))
    if (folder / "refuses").exists():
        print("Error: the engine's own words", file=sys.stderr)
        return int((folder / "refuses").read_text())
    time.sleep(0.2)  # a container takes its time to be there
    inside = subprocess.Popen([sys.executable, folder / "inside.py"], start_new_session=True)
    (folder / f"{name}.pid").write_text(str(inside.pid))
    code = inside.wait()
    return code if code >= 0 else 128 - code


def to_container(pid_file: Path, arguments: list[str]) -> int:
    pid = int(pid_file.read_text()) if pid_file.exists() else 0
    if not pid or not alive(pid):
        print("Error: no such container", file=sys.stderr)
        return 1
    verb = arguments[0]
    if verb == "inspect":
        print("true")
    elif verb == "kill":
        os.kill(pid, signal.Signals[arguments[1].removeprefix("--signal=")])
    elif verb == "stop":
        os.kill(pid, signal.SIGTERM)
        while alive(pid):
            time.sleep(0.02)
    return 0


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
