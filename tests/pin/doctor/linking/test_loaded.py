"""What processes have really loaded, read from real processes that load, replace and delete libraries."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.pin.doctor.case import Case
from harness.pin.doctor.installed import layout
from harness.pin.doctor.installed.read import read
from harness.pin.doctor.linking import loaded, maps
from harness.pin.doctor.linking.elf import read_elf
from harness.pin.doctor.linking.probe import Probe, probe
from harness.records import Lock, Pin
from tests.pin.doctor.libraries import build_library, holding
from tests.pin.doctor.wheels import install, make_venv, make_wheel, site_packages


def by_name(libraries: tuple[maps.LoadedLibrary, ...]) -> dict[str, maps.LoadedLibrary]:
    return {library.name: library for library in libraries}


# --- what is mapped ----------------------------------------------------------------------------------------------


def test_a_loaded_library_is_told_with_its_build_id(tmp_path: Path) -> None:
    library = build_library(tmp_path / "a folder" / "libspaced.so.1", "int f(void) { return 1; }", "-Wl,--build-id")
    elf = read_elf(library)
    assert elf is not None
    with holding(library) as pid:
        found = by_name(maps.libraries(pid))
    told = found["libspaced.so.1"]
    assert told == maps.LoadedLibrary(
        str(library), "libspaced.so.1", elf.build_id, told.device, library.stat().st_ino, False, str(library)
    )
    assert told.build_id
    assert "libc.so.6" in found


def test_names_that_no_file_should_have(tmp_path: Path) -> None:
    odd = tmp_path / "new\nline (deleted)" / "libodd é.so"
    build_library(odd, "int f(void) { return 1; }", "-Wl,-soname,libodd.so")
    with holding(odd) as pid:
        told = by_name(maps.libraries(pid))["libodd.so"]
    assert told.path == str(odd)
    assert not told.deleted


def test_a_deleted_library_and_a_replaced_one(tmp_path: Path) -> None:
    names = ("libgone.so", "libnew.so", "libsame.so")
    gone, new, same = (build_library(tmp_path / name, "int f(void) { return 1; }") for name in names)
    with holding(gone, new, same) as pid:
        before = by_name(maps.libraries(pid))
        assert not any(maps.is_changed(before[name]) for name in names)
        gone.unlink()
        shutil.copy(new, tmp_path / "other")
        (tmp_path / "other").replace(new)
        after = by_name(maps.libraries(pid))
        assert [after[path.name].deleted for path in (gone, new, same)] == [True, True, False]
        assert [maps.is_changed(library) for library in (after[same.name], after[new.name])] == [False, True]
        assert [maps.is_changed(before[name]) for name in names] == [True, True, False], "seen before it went"


def test_processes_that_are_not_there() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    assert maps.libraries(child.pid) == ()
    both = maps.of_tree([os.getpid(), child.pid, os.getpid()])
    assert len(both) == len(set(both)) > 5


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("7f00-7f01 r-xp 00000000 fd:00 12 /a/libx.so.1", [("/a/libx.so.1", 12, False)]),
        ("7f00-7f01 r-xp 00000000 fd:00 12 /a/libx.so.1 (deleted)", [("/a/libx.so.1", 12, True)]),
        ("7f00-7f01 r--p 00000000 fd:00 12 /a/libx.so.1", []),
        ("7f00-7f01 r-xp 00000000 00:01 12 /memfd:libx.so (deleted)", []),
        ("7f00-7f01 r-xp 00000000 fd:00 12 /a.so/python", []),
        ("7f00-7f01 r-xp 00000000 00:00 0 [vdso]", []),
        ("not a line\n\n7f00", []),
    ],
)
def test_lines_of_maps(line: str, expected: list[tuple[str, int, bool]]) -> None:
    assert [(each.path, each.inode, each.deleted) for each in maps.mapped(line + "\n")] == expected


# --- the probe ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with modules that do all that an import can."""
    python = make_venv(tmp_path_factory.mktemp("probe") / "venv")
    modules = {
        "fine": "import sys; print('chatter'); print('{\"maps\": 1}', file=sys.stderr)",
        "lost": "raise ImportError('libcudnn.so.9: cannot open\\n shared object file')",
        "crash": "import os, signal; print('about to', flush=True); os.kill(os.getpid(), signal.SIGSEGV)",
        "leaves": "import os; os._exit(3)",
        "hangs": "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(99)'])",
        "asks": "import os\nif os.environ.get('WANTED') != 'yes': raise RuntimeError('not my variables')",
    }
    for name, code in modules.items():
        (site_packages(python) / f"{name}.py").write_text(code)
    return python


def test_a_probe_tells_what_was_loaded(python: Path) -> None:
    found = probe(python, ("fine", "not_installed"))
    assert found.failures == ()
    assert "libc.so.6" in by_name(found.libraries)


def test_failed_imports_are_answers(python: Path) -> None:
    found = probe(python, ("lost", "fine", "asks"), {**os.environ, "WANTED": "no"})
    errors = [(failure.module, failure.error) for failure in found.failures]
    assert errors == [
        ("lost", "ImportError: libcudnn.so.9: cannot open shared object file"),
        ("asks", "RuntimeError: not my variables"),
    ]
    assert found.libraries, "the others are told of nevertheless"
    assert probe(python, ("asks",), {**os.environ, "WANTED": "yes"}).failures == ()


@pytest.mark.parametrize(
    ("module", "error"),
    [
        ("crash", "Python was killed by SIGSEGV"),
        ("leaves", "Python ended with exit code 3"),
        ("hangs", "no answer within 2 seconds"),
    ],
)
def test_an_import_that_ends_the_process(python: Path, module: str, error: str) -> None:
    found = probe(python, ("fine", module), timeout=2.0 if module == "hangs" else 60.0)
    assert [(failure.module, failure.error) for failure in found.failures] == [(module, error)]
    assert found.libraries == ()


def test_a_python_that_does_not_start(tmp_path: Path) -> None:
    found = probe(tmp_path / "python")
    assert found == Probe((), found.failures)
    assert "does not start" in found.failures[0].error


# --- findings ----------------------------------------------------------------------------------------------------


def nccl_wheel(folder: Path, name: str = "nvidia-nccl-cu12", path: str = "nvidia/nccl/lib/libnccl.so.2") -> Path:
    built = build_library(
        folder / f"built-{name}" / "libnccl.so.2", f"int {name.replace('-', '_')}(void) {{ return 1; }}"
    )
    return make_wheel(folder, name, "2.27.5", {path: built.read_bytes()})


def case_of(python: Path, *pins: str) -> Case:
    lock = Lock("cu", ("3.11",), "0" * 64, tuple(Pin(pin, "2.27.5", ()) for pin in pins), "lock.txt") if pins else None
    found = {pin.name: pin for pin in lock.pins} if lock else {}
    return Case(
        read(layout.ask(python)), lock=lock, pins=found, command="harness doctor cu", variables=dict(os.environ)
    )


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nccl")
    install(make_venv(folder / "venv"), nccl_wheel(folder))
    return folder / "venv"


@pytest.fixture
def nccl(healthy: Path, tmp_path: Path) -> Path:
    """An environment that has NCCL, and nothing else."""
    return shutil.copytree(healthy, tmp_path / "venv", symlinks=True) / "bin" / "python"


def test_the_environments_own_library_is_as_it_should_be(nccl: Path) -> None:
    library = site_packages(nccl) / "nvidia/nccl/lib/libnccl.so.2"
    with holding(library, python=nccl) as pid:
        case, found = case_of(nccl, "nvidia-nccl-cu12"), maps.libraries(pid)
        assert list(loaded.check_loaded(case, found)) == []
        told = loaded.describe(case, found)
    (described,) = (each for each in told if each.name == "libnccl.so.2")
    assert (described.owner, described.version, described.locked) == ("nvidia-nccl-cu12", "2.27.5", True)
    assert described.sha256 == hashlib.sha256(library.read_bytes()).hexdigest()
    (libc,) = (each for each in told if each.name == "libc.so.6")
    assert (libc.owner, libc.locked) == ("", None)


def test_a_strangers_library(tmp_path: Path, nccl: Path) -> None:
    """verl#6621: the wheel says 2.30.4 and the process has 2.28.9 from another folder."""
    stranger = build_library(tmp_path / "cuda" / "libnccl.so.2", "int f(void) { return 1; }")
    with holding(stranger, python=nccl) as pid:
        (finding,) = loaded.check_loaded(case_of(nccl), maps.libraries(pid))
    assert (finding.kind, finding.severity, finding.subject) == ("loaded.foreign", "dangerous", "nvidia-nccl-cu12")
    assert finding.evidence["loaded"] == {"libnccl.so.2": str(stranger)}
    assert finding.fix == "unset LD_LIBRARY_PATH LD_PRELOAD"


def test_a_library_that_is_loaded_twice(tmp_path: Path, nccl: Path) -> None:
    other = nccl_wheel(tmp_path, "sglang", "sglang/libnccl.so.2")
    install(nccl, other)
    copies = [site_packages(nccl) / path for path in ("nvidia/nccl/lib/libnccl.so.2", "sglang/libnccl.so.2")]
    with holding(*copies, python=nccl) as pid:
        found = {finding.kind: finding for finding in loaded.check_loaded(case_of(nccl), maps.libraries(pid))}
        locked = {f.kind: f for f in loaded.check_loaded(case_of(nccl, "nvidia-nccl-cu12"), maps.libraries(pid))}
    assert found["loaded.twice"].severity == "dangerous"
    owners = found["loaded.twice"].evidence["owners"]
    assert isinstance(owners, dict)
    assert sorted(owners.values()) == ["nvidia-nccl-cu12", "sglang"]
    assert locked["loaded.foreign"].fix == "harness doctor cu --fix --remove sglang"


def test_two_openmp_runtimes_are_a_note_and_links_are_one_file(tmp_path: Path, nccl: Path) -> None:
    one = build_library(tmp_path / "a" / "libgomp.so.1", "int f(void) { return 1; }")
    two = build_library(tmp_path / "b" / "libgomp-a34b3233.so.1.0.0", "int f(void) { return 1; }")
    (tmp_path / "c").mkdir()
    os.link(one, tmp_path / "c" / "libgomp.so.1")
    with holding(one, two, python=nccl) as pid:
        (finding,) = loaded.check_loaded(case_of(nccl), maps.libraries(pid))
    assert (finding.kind, finding.severity, finding.fix) == ("loaded.twice", "note", "")
    with holding(one, tmp_path / "c" / "libgomp.so.1", python=nccl) as pid:
        assert list(loaded.check_loaded(case_of(nccl), maps.libraries(pid))) == []


def test_a_library_that_was_replaced_under_the_process(tmp_path: Path, nccl: Path) -> None:
    library = site_packages(nccl) / "nvidia/nccl/lib/libnccl.so.2"
    with holding(library, python=nccl) as pid:
        install(nccl, nccl_wheel(tmp_path))
        (finding,) = loaded.check_loaded(case_of(nccl), maps.libraries(pid))
    assert (finding.kind, finding.severity, finding.subject) == ("loaded.changed", "broken", "nvidia-nccl-cu12")
    assert finding.summary.endswith("start it again")


def test_a_module_that_does_not_import_is_a_finding(tmp_path: Path, nccl: Path) -> None:
    code = b"import ctypes; ctypes.CDLL('libcudnn_of_nobody.so.9')"
    install(nccl, make_wheel(tmp_path, "torch", "2.10.0", {"torch/__init__.py": code}))
    (finding,) = loaded.check_probe(case_of(nccl), probe(nccl, loaded.MODULES))
    assert (finding.kind, finding.severity, finding.subject) == ("link.unresolved", "broken", "torch")
    assert "OSError: libcudnn_of_nobody.so.9: cannot open shared object file" in finding.summary
    assert finding.fix.endswith("torch==2.10.0")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("libcudnn.so.9", "libcudnn"),
        ("libcudnn_graph.so.9", "libcudnn_graph"),
        ("libgomp-a34b3233.so.1.0.0", "libgomp"),
        ("libcudart.faf08d9a.so.13", "libcudart"),
        ("libstdc++.so.6", "libstdc++"),
        ("libnvrtc-builtins.alt.so.13.0", "libnvrtc-builtins"),
        ("libtorch_cpu.so", "libtorch_cpu"),
        ("_C.cpython-311-x86_64-linux-gnu.so", "_C.cpython-311-x86_64-linux-gnu.so"),
    ],
)
def test_the_stem_of_a_name(name: str, expected: str) -> None:
    assert loaded.stem(name) == expected
