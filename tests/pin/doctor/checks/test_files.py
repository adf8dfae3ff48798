"""Bytes against RECORD: nothing on what real installers leave, and for each fault the one finding that it is."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness.findings import Finding
from harness.pin.doctor.case import Case
from harness.pin.doctor.checks import files, ownership
from harness.pin.doctor.installed.digests import digests
from harness.pin.doctor.installed.layout import ask
from harness.pin.doctor.installed.read import read
from harness.pin.doctor.installed.stat_cache import StatCache
from tests.pin.doctor.examined import unpack
from tests.pin.doctor.wheels import make_venv, make_wheel, pip, site_packages

SCRIPT = b"#!python\nimport demo\nprint('started')\n"
MODULES = {
    "demo/__init__.py": b"x = 1\n",
    "demo/deep/data.json": b"{}\n",
    "demo/lib/libdemo.so.2": b"\x7fELF library",
    "demo/bin/ptxas": b"\x7fELF program",
}
ENTRY = b"[console_scripts]\ndemo-run = demo.main:app.run\n"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    entry = {"demo-1.0.dist-info/entry_points.txt": ENTRY, "demo/main.py": b"class app: run = staticmethod(print)\n"}
    return make_wheel(tmp_path_factory.mktemp("wheels"), "demo", "1.0", {**MODULES, **entry}, scripts={"tool": SCRIPT})


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """An environment with ``demo``, as pip installs it: bytecode, scripts and entry points too."""
    python = make_venv(tmp_path_factory.mktemp("installed") / "venv")
    pip(python, "install", "--quiet", "--no-deps", "--no-index", wheel)
    return python


@pytest.fixture
def python(installed: Path, tmp_path: Path) -> Iterator[Path]:
    """The same, put back to what it was after each test."""
    prefix = installed.parent.parent
    shutil.copytree(prefix, tmp_path / "kept", symlinks=True)
    yield installed
    shutil.rmtree(prefix)
    shutil.move(tmp_path / "kept", prefix)


_layout = functools.cache(ask)  # it does not change while files do


def case_of(python: Path, bytes_read: bool = True) -> Case:
    installation = read(_layout(python))
    found = digests(installation, StatCache(), limit_bytes=None if bytes_read else 0)
    installation = replace(installation, unreadable={**installation.unreadable, **found.unreadable})
    return Case(installation, digests=found.known)


def found(python: Path, bytes_read: bool = True) -> list[Finding]:
    """What the check says, once it was seen that all of it can be written as JSON and printed."""
    findings = list(files.check(case_of(python, bytes_read)))
    for finding in findings:
        json.dumps(finding.evidence).encode()
        assert finding.summary.isprintable()
        assert finding.summary.startswith(finding.subject)
        assert bool(finding.fix) == (finding.severity != "note")
    return findings


def kinds(findings: list[Finding]) -> list[tuple[str, str, str]]:
    return [(finding.kind, finding.severity, finding.subject) for finding in findings]


def test_nothing_on_what_pip_installs(python: Path) -> None:
    assert any(path.name == "__pycache__" for path in site_packages(python).rglob("*"))
    assert found(python) == []


def test_nothing_on_what_uv_installs(tmp_path: Path, wheel: Path) -> None:
    uv = [str(Path(sys.executable).parent / "uv")]
    offline = ["--offline", "--no-config", "--no-index"]
    for link_mode in ("copy", "symlink"):
        folder = tmp_path / link_mode
        options = ["--cache-dir", str(tmp_path / "cache"), "--link-mode", link_mode, "--python", str(folder)]
        subprocess.run(
            [*uv, "venv", "--quiet", "--no-config", "--relocatable", "--python", sys.executable, folder], check=True
        )
        subprocess.run([*uv, "pip", "install", "--quiet", *offline, *options, wheel], check=True)
        assert found(folder / "bin" / "python") == []
        assert {d.installer for d in case_of(folder / "bin" / "python").installation.distributions} == {"uv"}


@pytest.mark.slow
def test_nothing_on_a_fresh_environment_with_pip(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "--version"], check=True, capture_output=True)
    assert found(python) == []


BACKEND = """
import pathlib, shutil
def build_editable(folder, config_settings=None, metadata_directory=None):
    wheel = next(pathlib.Path("made").glob("*.whl"))
    return pathlib.Path(shutil.copy(wheel, folder)).name
"""


def test_nothing_on_an_editable_install(python: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "made").mkdir(parents=True)
    (project / "src").mkdir()
    (project / "src" / "mine.py").write_text("x = 1\n")
    make_wheel(project / "made", "mine", "0.1", {"__editable__.mine-0.1.pth": f"{project}/src\n".encode()})
    (project / "backend.py").write_text(BACKEND)
    (project / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "mine"\nversion = "0.1"\n'
    )
    pip(python, "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--editable", project)
    assert case_of(python).installation.by_name["mine"].editable
    (project / "src" / "mine.py").write_text("x = 2\n")
    assert found(python) == []


Change = Callable[[Path], object]


def edit(name: str, data: bytes) -> Change:
    return lambda site: (site / name).write_bytes(data)


def remove(name: str) -> Change:
    return lambda site: (site / name).unlink()


def replace_by(make: Callable[[Path], object]) -> Change:
    """Put what ``make`` makes in the place of demo/main.py."""

    def change(site: Path) -> None:
        (site / "demo/main.py").unlink()
        make(site / "demo/main.py")

    return change


METADATA = b"Name: demo\nVersion: 1.0\n"
CHANGED: list[tuple[str, Change, str, str]] = [
    ("code", edit("demo/__init__.py", b"x = 2\n"), "dangerous", "demo/__init__.py"),
    ("code, longer", edit("demo/__init__.py", b"x = 22\n"), "dangerous", "demo/__init__.py"),
    ("data", edit("demo/deep/data.json", b"[]\n"), "dangerous", "data.json"),
    ("a library, cut", edit("demo/lib/libdemo.so.2", b"\x7fELF"), "broken", "libdemo.so.2"),
    ("a program", edit("demo/bin/ptxas", b"\x7fELF programs"), "broken", "ptxas"),
    ("METADATA", edit("demo-1.0.dist-info/METADATA", METADATA), "broken", "METADATA"),
    ("a script", edit("../../../bin/tool", b"#!python\nimport evil\n"), "dangerous", "bin/tool"),
    ("a folder now", replace_by(Path.mkdir), "dangerous", "main.py"),
    ("a pipe now", replace_by(os.mkfifo), "dangerous", "main.py"),
]
MISSING: list[tuple[str, Change, str]] = [
    ("a module", remove("demo/__init__.py"), "demo/__init__.py"),
    ("a script", remove("../../../bin/tool"), "bin/tool"),
    ("a folder", lambda site: shutil.rmtree(site / "demo/deep"), "data.json"),
]
UNTRACKED: list[tuple[str, str, str]] = [
    ("demo/deep/new.py", "drift", "demo"),
    ("demo/lib/libdemo.so.3", "drift", "demo"),
    ("stray.pyc", "drift", "python"),
    ("stray.py", "drift", "python"),
    ("stray.pth", "drift", "python"),
    ("stray/deep/module.py", "drift", "python"),
    ("not-a-package/module.py", "note", "python"),
    ("demo/notes.txt", "note", "demo"),
    ("demo/late.pth", "note", "demo"),
    ("demo-1.0.dist-info/sbom.json", "note", "demo"),
]
FAULTS = [
    *(pytest.param(how, "file.changed", bad, "demo", path, id=f"changed: {name}") for name, how, bad, path in CHANGED),
    *(pytest.param(how, "file.missing", "broken", "demo", path, id=f"missing: {name}") for name, how, path in MISSING),
    *(pytest.param(edit(p, b""), "file.untracked", bad, who, p, id=f"untracked: {p}") for p, bad, who in UNTRACKED),
    pytest.param(
        replace_by(lambda path: path.symlink_to("main.py")),
        "file.unreadable", "dangerous", "demo", "main.py", id="unreadable: a link to itself",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("change", "kind", "severity", "subject", "path"), FAULTS)
def test_each_fault_is_one_finding(
    python: Path, change: Change, kind: str, severity: str, subject: str, path: str
) -> None:
    (site_packages(python) / path).parent.mkdir(parents=True, exist_ok=True)
    change(site_packages(python))
    findings = found(python)
    assert kinds(findings) == [(kind, severity, subject)]
    paths = findings[0].evidence["paths"]
    assert isinstance(paths, tuple)
    assert len(paths) == findings[0].evidence["count"] == 1
    assert paths[0].endswith(path)
    assert Path(path).name in findings[0].summary


HARMLESS: list[tuple[str, Change]] = [
    ("INSTALLER", edit("demo-1.0.dist-info/INSTALLER", b"somebody\n")),
    ("REQUESTED gone", remove("demo-1.0.dist-info/REQUESTED")),
    ("direct_url.json", edit("demo-1.0.dist-info/direct_url.json", b"{}")),
    ("uv_cache.json", edit("demo-1.0.dist-info/uv_cache.json", b"{}")),
    ("bytecode gone", lambda site: shutil.rmtree(site / "demo/__pycache__")),
    ("bytecode of another Python", edit("demo/__pycache__/main.cpython-399.pyc", b"")),
    ("virtualenv's patch", lambda site: [(site / f"_virtualenv.{end}").write_text("") for end in ("py", "pth")]),
    ("our own mark", edit("harness-built.json", b"{}")),
    ("easy_install's list", edit("easy-install.pth", b"")),
    ("a broken uninstall", lambda site: shutil.copytree(site / "demo", site / "~emo")),
    ("touched", lambda site: (site / "demo/__init__.py").touch()),
]


@pytest.mark.parametrize("change", [change for _, change in HARMLESS], ids=[name for name, _ in HARMLESS])
def test_what_installers_and_python_do_is_no_finding(python: Path, change: Change) -> None:
    change(site_packages(python))
    assert found(python) == []


def test_many_files_are_one_finding_that_names_the_first_and_counts_all(python: Path, tmp_path: Path) -> None:
    modules = {f"many/m{n:03}.py": b"x = 1\n" for n in range(30)}
    unpack(python, make_wheel(tmp_path, "many", "2.0", {**modules, "many/lib.so": b"\x7fELF"}))
    for path in site_packages(python).glob("many/*"):
        path.write_bytes(b"y = 2\n")
    (finding,) = found(python)
    assert (finding.severity, finding.evidence["count"]) == ("broken", 31)
    assert finding.summary.endswith("many/lib.so and 30 more files changed since")  # the worst first
    assert len(finding.evidence["paths"]) == len(finding.evidence["found"]) == 20  # type: ignore[arg-type]
    assert finding.fix.endswith(f"-m pip --python {python} install --force-reinstall --no-deps many==2.0")


def test_the_mending_commands_mend(python: Path, wheel: Path) -> None:
    site = site_packages(python)
    (site / "stray dir").mkdir()
    (site / "stray dir" / "libx.so").touch()
    (site / "sglang" / "deep").mkdir(parents=True)
    (site / "sglang" / "deep" / "it's.so").touch()
    (site / "sglang" / "__init__.py").touch()
    (site / "demo" / os.fsdecode(b"caf\xe9\n.so")).touch()
    (site / "demo" / "main.py").unlink()
    findings = found(python)
    assert sorted(kinds(findings)) == [
        ("file.missing", "broken", "demo"),
        ("file.untracked", "drift", "demo"),
        ("file.untracked", "drift", "python"),
    ]
    for finding in findings:
        if finding.kind == "file.untracked":
            assert "sglang/deep" not in finding.fix  # the whole folder at once
            subprocess.run(["bash", "-c", finding.fix], check=True)
    pip(python, "install", "--quiet", "--no-index", "--force-reinstall", "--no-deps", wheel)
    assert found(python) == []


def test_without_the_bytes_read_a_size_still_tells(python: Path) -> None:
    site = site_packages(python)
    (site / "demo" / "lib" / "libdemo.so.2").write_bytes(b"\x7fELF")
    (site / "demo" / "__init__.py").write_bytes(b"x = 2\n")  # as long as before: not seen
    (finding,) = found(python, bytes_read=False)
    assert finding.evidence["found"] == {
        "lib/" + str(site).rpartition("/lib/")[2] + "/demo/lib/libdemo.so.2": "4 bytes"
    }


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


def test_what_two_claim_is_left_to_ownership(python: Path, tmp_path: Path) -> None:
    other = make_wheel(tmp_path, "other", "2.0", {"demo/__init__.py": b"x = 9\n", "demo/main.py": b"other\n"})
    unpack(python, other)
    assert found(python) == []
    assert [finding.kind for finding in ownership.check(case_of(python))] == ["owner.overwritten"]
    (site_packages(python) / "demo" / "main.py").unlink()
    assert found(python) == []
    assert "owner.lost" in [finding.kind for finding in ownership.check(case_of(python))]


def test_files_lost_to_an_uninstalled_build_are_left_to_ownership(python: Path, tmp_path: Path) -> None:
    nccl = {"nvidia/nccl/lib/libnccl.so.2": b"\x7fELF", "nvidia/nccl/__init__.py": b""}
    unpack(python, make_wheel(tmp_path, "nvidia-nccl-cu12", "2.27.5", nccl))
    (site_packages(python) / "nvidia" / "nccl" / "lib" / "libnccl.so.2").unlink()
    assert found(python) == []
    assert [finding.kind for finding in ownership.check(case_of(python))] == ["owner.lost"]


def test_a_stale_copy_of_a_dist_info_is_not_told_file_by_file(python: Path, tmp_path: Path) -> None:
    """It claims what the newer one replaced and removed: one finding of ``paths`` says that it is a duplicate."""
    site = site_packages(python)
    shutil.copytree(site / "demo-1.0.dist-info", tmp_path / "stale")
    pip(
        python,
        "install",
        "--quiet",
        "--no-index",
        make_wheel(tmp_path, "demo", "2.0", {"demo/__init__.py": b"x = 2\n"}),
    )
    shutil.copytree(tmp_path / "stale", site / "demo-1.0.dist-info")
    told = {path for finding in found(python) for path in finding.evidence["paths"]}  # type: ignore[union-attr]
    assert not [path for path in told if "demo/" in str(path)]


def test_rows_that_leave_the_environment(python: Path) -> None:
    record = site_packages(python) / "demo-1.0.dist-info" / "RECORD"
    with record.open("a") as file:
        file.write(
            "../../../../../../../../../../etc/passwd,sha256=abc,3\n\x1b[31m/../../../../../../../../../y,,\n/etc/shadow,,\n"
        )
    (finding,) = found(python)
    assert kinds([finding]) == [("file.outside", "dangerous", "demo")]
    assert "/etc/shadow" in finding.evidence["paths"]  # type: ignore[operator]


def test_hashes_that_prove_nothing_are_one_note_for_all(python: Path, tmp_path: Path) -> None:
    site = site_packages(python)
    record = site / "demo-1.0.dist-info" / "RECORD"
    record.write_text(record.read_text().replace("sha256=", "md5="))
    unpack(python, make_wheel(tmp_path, "other", "2.0", {"other.py": b""}))
    record = site / "other-2.0.dist-info" / "RECORD"
    record.write_text("".join(f"{line.split(',')[0]},,\n" for line in record.read_text().splitlines()))
    (site / "old-1.0.egg-info").mkdir()
    (site / "old-1.0.egg-info" / "PKG-INFO").write_text("Name: old\nVersion: 1.0\n")
    (site / "old").mkdir()
    (site / "old" / "module.py").touch()
    (finding,) = found(python)
    assert kinds([finding]) == [("file.unhashed", "note", "python")]
    assert finding.evidence["distributions"] == ("demo", "old", "other")
    assert finding.evidence["algorithms"] == ("md5",)


@pytest.mark.parametrize("installer", ["conda", "debian", "rpm"])
def test_other_kinds_of_installers_are_not_held_to_a_record(python: Path, installer: str) -> None:
    """Debian strips libraries and moves scripts after RECORD was written, conda puts its prefix into files."""
    site = site_packages(python)
    (site / "demo-1.0.dist-info" / "INSTALLER").write_text(f"{installer}\n")
    (site / "demo" / "lib" / "libdemo.so.2").write_bytes(b"stripped")
    assert kinds(found(python)) == [("file.unhashed", "note", "python")]


def test_files_and_folders_that_cannot_be_read(python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_open, real_scandir = os.open, os.scandir

    def closed(path: str, *args: int, **kwargs: int) -> int:
        if str(path).endswith("demo/main.py"):
            raise PermissionError(13, "Permission denied", path)
        return real_open(path, *args, **kwargs)

    def unlisted(folder: str) -> object:
        if folder.endswith("demo/deep"):
            raise PermissionError(13, "Permission denied", folder)
        return real_scandir(folder)

    monkeypatch.setattr(os, "open", closed)
    monkeypatch.setattr(os, "scandir", unlisted)
    findings = found(python)
    assert kinds(findings) == [("file.unreadable", "dangerous", "demo"), ("file.unreadable", "dangerous", "python")]
    assert findings[0].summary.endswith("demo/main.py that cannot be read: Permission denied")
    assert findings[1].fix == f"chmod -R u+rX -- {site_packages(python).resolve()}/demo/deep"
