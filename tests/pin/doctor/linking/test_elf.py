"""Libraries read as the loader reads them: against readelf and pyelftools, and cut and flipped at random."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.pin.doctor.linking.elf import Elf, read_elf
from harness.pin.doctor.linking.elf_file import BrokenElf
from harness.pin.doctor.linking.symbols import Symbols, read_symbols
from tests.pin.doctor.libraries import build_library


def begins_as_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


SITE = Path(sysconfig.get_path("platlib"))
REAL = sorted(path for path in SITE.rglob("*.so*") if path.is_file() and begins_as_elf(path))

SMALL = [path for path in REAL if path.stat().st_size < 4_000_000]  # pyelftools takes seconds for a large one


def spread(paths: list[Path], count: int) -> list[Path]:
    """``count`` of ``paths``, evenly spread: every size and every linker is among them."""
    by_size = sorted(paths, key=lambda path: path.stat().st_size)
    return by_size[:: max(1, len(by_size) // count)]


def readelf(path: Path, option: str) -> str:
    environment = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(["readelf", "-W", option, path], capture_output=True, text=True, env=environment, check=True)
    return done.stdout


def by_readelf(path: Path) -> dict[str, object]:
    dynamic, versions, notes = (readelf(path, option) for option in ("-d", "-V", "-n"))
    needs = versions.partition("Version needs section")[2]
    needed: dict[str, tuple[str, ...]] = {}
    library = ""
    for line in needs.splitlines():
        if found := re.search(r"File: (\S+)", line):
            library = found[1]
            needed[library] = ()
        elif (found := re.search(r"Name: (\S+)\s+Flags: (.*?)\s+Version", line)) and "WEAK" not in found[2]:
            needed[library] += (found[1],)
    definitions = re.search(r"Version definition section.*?\n\n", versions, re.DOTALL)
    build_id = re.search(r"Build ID: ([0-9a-f]+)", notes)
    return {
        "soname": "".join(re.findall(r"Library soname: \[(.*)\]", dynamic)),
        "needed": tuple(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)),
        "rpath": ":".join(re.findall(r"\(RPATH\).*\[(.*)\]", dynamic)),
        "runpath": ":".join(re.findall(r"\(RUNPATH\).*\[(.*)\]", dynamic)),
        "needed_versions": needed,
        "defined_versions": set(re.findall(r"Rev: .*Name: (\S+)", definitions[0])) if definitions else set(),
        "build_id": build_id[1] if build_id else "",
    }


def summary(elf: Elf) -> dict[str, object]:
    return {
        "soname": elf.soname,
        "needed": elf.needed,
        "rpath": ":".join(elf.rpath),
        "runpath": ":".join(elf.runpath or ()),
        "needed_versions": dict(elf.needed_versions),
        "defined_versions": set(elf.defined_versions),
        "build_id": elf.build_id,
    }


@pytest.mark.parametrize("path", spread(REAL, 25), ids=lambda path: path.name[:40])
def test_real_libraries_say_what_readelf_says(path: Path) -> None:
    elf = read_elf(path)
    assert elf is not None
    assert summary(elf) == by_readelf(path)


def test_the_interpreter_and_the_c_library() -> None:
    """A program has an interpreter, and libc defines its versions: neither is in any wheel."""
    python = read_elf(sys.executable)
    assert python is not None
    assert Path(python.interpreter).exists()
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    libc = next(Path(line.split()[-1]) for line in maps.splitlines() if re.search(r"/libc[.-].*so", line))
    elf = read_elf(libc)
    assert elf is not None
    assert summary(elf) == by_readelf(libc)
    assert "GLIBC_2.2.5" in elf.defined_versions or elf.machine != 62
    assert elf.architecture == python.architecture


@pytest.mark.parametrize(
    "path", spread([path for path in REAL if path.stat().st_size < 4e6], 8), ids=lambda path: path.name[:40]
)
def test_symbols_are_pyelftools_symbols(path: Path) -> None:
    with path.open("rb") as file:
        segment = next(s for s in ELFFile(file).iter_segments() if isinstance(s, DynamicSegment))
        table = [(s.name, s["st_shndx"], s["st_info"]["bind"]) for s in segment.iter_symbols() if s.name]
    wanted = {name for name, section, bind in table if section == "SHN_UNDEF" and bind != "STB_WEAK"}
    defined = {name for name, section, bind in table if section != "SHN_UNDEF" and bind != "STB_LOCAL"}
    assert read_symbols(path) == Symbols(frozenset(defined), frozenset(wanted))
    some = {name for name in defined | wanted if name.startswith(("_Z", "Py"))}
    assert read_symbols(path, ("_Z", "Py")) == Symbols(frozenset(defined & some), frozenset(wanted & some))


@pytest.mark.parametrize("style", ["gnu", "sysv"])
def test_both_hash_tables(tmp_path: Path, style: str) -> None:
    code = "int there(void) { return 1; } extern int elsewhere(void); int calls(void) { return elsewhere(); }"
    library = build_library(tmp_path / "libboth.so", code, f"-Wl,--hash-style={style}")
    found = read_symbols(library, ("there", "calls", "else"))
    assert found == Symbols(frozenset({"there", "calls"}), frozenset({"elsewhere"}))
    assert read_symbols(library, ("other",)) == Symbols()


def test_a_weak_symbol_may_be_absent(tmp_path: Path) -> None:
    code = "__attribute__((weak)) extern int maybe(void); int calls(void) { return maybe ? maybe() : 0; }"
    library = build_library(tmp_path / "libweak.so", code)
    assert read_symbols(library, ("maybe",)) == Symbols()


def test_runpath_and_rpath_are_kept_apart(tmp_path: Path) -> None:
    code = "int f(void) { return 1; }"
    new = read_elf(build_library(tmp_path / "libnew.so", code, "-Wl,--enable-new-dtags,-rpath,$ORIGIN/a:/b"))
    old = read_elf(build_library(tmp_path / "libold.so", code, "-Wl,--disable-new-dtags,-rpath,$ORIGIN/a:/b"))
    none = read_elf(build_library(tmp_path / "libnone.so", code))
    assert new is not None
    assert old is not None
    assert none is not None
    assert (new.rpath, new.runpath) == ((), ("$ORIGIN/a", "/b"))
    assert (old.rpath, old.runpath) == (("$ORIGIN/a", "/b"), None)
    assert (none.rpath, none.runpath) == ((), None)


def test_what_is_no_library(tmp_path: Path) -> None:
    script = tmp_path / "libscript.so"
    script.write_text("GROUP ( libreal.so )")
    empty = tmp_path / "empty.so"
    empty.touch()
    pipe = tmp_path / "pipe.so"
    os.mkfifo(pipe)
    assert [read_elf(path) for path in (script, empty, pipe)] == [None] * 3
    with pytest.raises(FileNotFoundError):
        read_elf(tmp_path / "not-there.so")


def test_a_truncated_library_says_how_much_is_there(tmp_path: Path) -> None:
    library = build_library(tmp_path / "libcut.so", "int f(void) { return 1; }")
    whole = library.read_bytes()
    library.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BrokenElf, match=f"is truncated: {len(whole) // 2:,} of at least"):
        read_elf(library)
    library.write_bytes(whole[:20])
    with pytest.raises(BrokenElf, match="truncated"):
        read_elf(library)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A library with versions of its own, versions that it needs, a runpath and a build id."""
    folder = tmp_path_factory.mktemp("small")
    script = folder / "versions"
    script.write_text("V_1 { global: printed; local: *; };")
    code = '#include <stdio.h>\nint printed(void) { return printf("%d", 1); }'
    flags = (f"-Wl,--version-script={script}", "-Wl,-rpath,$ORIGIN", "-Wl,--build-id=sha1")
    return build_library(folder / "libsmall.so", code, *flags).read_bytes()


@settings(max_examples=200, deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damage_is_an_elf_none_or_broken(small: bytes, tmp_path: Path, data: st.DataObject) -> None:
    """Nothing else is raised, and nothing takes long, whatever bytes are changed: most of them in the tables."""
    damaged = bytearray(small)
    anywhere = st.integers(0, len(damaged) - 1)
    tables = st.integers(0, min(4096, len(damaged) - 1))
    for _ in range(data.draw(st.integers(0, 6))):
        at, value = data.draw(tables | anywhere), data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
        width = data.draw(st.sampled_from([1, 4, 8]))
        damaged[at : at + width] = bytes([value]) * width
    end = data.draw(st.just(len(damaged)) | anywhere)
    path = tmp_path / "libdamaged.so"
    path.write_bytes(damaged[:end])
    for read in (read_elf, read_symbols):
        with contextlib.suppress(BrokenElf):
            read(path)


@pytest.mark.skipif(not REAL, reason="no native libraries beside this Python")
def test_a_library_is_not_read_whole(tmp_path: Path) -> None:
    """The fast form reads hundreds of libraries before each run: one with a hole of a terabyte reads as without it."""
    shutil.copy(SMALL[0], tmp_path / "huge.so")
    os.truncate(tmp_path / "huge.so", 1 << 40)
    assert read_elf(tmp_path / "huge.so") == read_elf(SMALL[0])
