"""A script with another first line, or as another installer generates it, is a note; with another body a danger."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pin.doctor.claims import found
from tests.pin.doctor.findings import kinds

LAUNCHERS = {
    "as in the wheel": b"#!python\n",
    "of this environment": b"#!{prefix}/bin/python3\n",
    "looked up": b"#!/usr/bin/env python3\n",
    "another environment's": b"#!/somewhere/else/bin/python3.11 -E\n",
    "pip's three lines": b"#!/bin/sh\n'''exec' \"/a b/bin/python\" \"$0\" \"$@\"\n' '''\n",
    "uv's three lines": b"#!/bin/sh\n"
    b"'''exec' \"$(dirname -- \"$(realpath -- \"$0\")\")\"/'python' \"$0\" \"$@\"\n' '''\n",
}


@pytest.mark.parametrize("launcher", LAUNCHERS.values(), ids=LAUNCHERS)
@pytest.mark.parametrize("name", ["tool", "demo-run"])
def test_another_first_line_of_a_script_is_a_note(python: Path, launcher: bytes, name: str) -> None:
    script = python.parent / name
    first, _, body = script.read_bytes().partition(b"\n")
    assert first == f"#!{python}".encode() or first == f"#!{python.resolve()}".encode()
    script.write_bytes(launcher.replace(b"{prefix}", bytes(python.parent.parent)) + body)
    if script.read_bytes().startswith(first + b"\n"):
        assert found(python) == []
        return
    assert kinds(found(python)) == [("file.changed", "note", "demo")]
    script.write_bytes(launcher + body + b"import evil\n")
    assert kinds(found(python)) == [("file.changed", "dangerous", "demo")]


@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_a_moved_environment_whose_first_lines_were_mended(
    python: Path, tmp_path: Path, wheel: Path, installer: str
) -> None:
    """What people do with sed after they have moved one: generated scripts are known by what they do."""
    if installer == "uv":
        options = ["--quiet", "--offline", "--no-config", "--no-index", "--link-mode=copy", "--reinstall"]
        command = [f"{Path(sys.executable).parent}/uv", "pip", "install", *options, "--cache-dir"]
        subprocess.run([*command, tmp_path / "cache", "--python", python, wheel], check=True)
    moved = tmp_path / "moved"
    shutil.copytree(python.parent.parent, moved, symlinks=True)
    for script in (moved / "bin" / "demo-run", moved / "bin" / "tool"):
        first = script.read_bytes().partition(b"\n")[0]
        script.write_bytes(script.read_bytes().replace(first, b"#!" + bytes(moved / "bin" / "python")))
    note, *others = found(moved / "bin" / "python")
    assert (note.severity, note.evidence["paths"]) == ("note", ("bin/demo-run",))
    assert kinds(others) == [("file.changed", "dangerous", "demo")]  # tool: nothing proves its body


GENERATED = {
    "distlib's": "# -*- coding: utf-8 -*-\nimport re\nimport sys\n{0}\nif __name__ == '__main__':\n"
    "    sys.argv[0] = re.sub(r'(-script\\.pyw|\\.exe)?$', '', sys.argv[0])\n    {1}\n",
    "older pip's": "# -*- coding: utf-8 -*-\nimport re\nimport sys\nif __name__ == '__main__':\n    {0}\n"
    "    sys.argv[0] = re.sub(r'(-script\\.pyw?|\\.exe)?$', '', sys.argv[0])\n    {1}\n",
}


@pytest.mark.parametrize("text", GENERATED.values(), ids=GENERATED)
def test_what_other_installers_generate(python: Path, text: str) -> None:
    text = "#!/x/python\n" + text.format("from demo.main import app", "sys.exit(app.run())")
    (python.parent / "demo-run").write_text(text)
    assert kinds(found(python)) == [("file.changed", "note", "demo")]
    (python.parent / "demo-run").write_text(text.replace("app.run()", "app.ruin()"))
    assert kinds(found(python)) == [("file.changed", "dangerous", "demo")]


def test_a_script_whose_name_is_no_entry_point_proves_nothing(python: Path) -> None:
    (python.parent / "tool").write_bytes(b"#!/x/python\nimport sys\nfrom demo.main import app\nsys.exit(app.run())\n")
    assert kinds(found(python)) == [("file.changed", "dangerous", "demo")]
