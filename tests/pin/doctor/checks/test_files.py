"""Bytes against RECORD: for each fault the one finding that it is."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.pin.doctor.checks import ownership
from tests.pin.doctor.claims import Change, case_of, edit, found, remove
from tests.pin.doctor.examined import unpack
from tests.pin.doctor.findings import kinds
from tests.pin.doctor.wheels import make_wheel, pip, site_packages


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
