"""The loader replayed, against the real loader on libraries that are linked in every way."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from random import Random

import pytest

from harness.pin.doctor.linking.ld_cache import CACHE, of_this_machine, read_cache
from harness.pin.doctor.linking.ldso import Process, Search
from tests.pin.doctor.libraries import build_library

_OPEN_AND_TELL = """
import ctypes, sys
try:
    for path in sys.argv[1:]:
        ctypes.CDLL(path)
except OSError as error:
    print("failed:", error)
else:
    print(open("/proc/self/maps").read())
"""


def really_loaded(paths: list[Path], folder: Path, variables: Mapping[str, str], cwd: Path) -> set[str] | None:
    """The files under ``folder`` that a real process has after opening ``paths``; None where the loader refused."""
    environment = {**{k: v for k, v in os.environ.items() if not k.startswith("LD_")}, **variables}
    command = [sys.executable, "-I", "-c", _OPEN_AND_TELL, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=cwd, check=True)
    if done.stdout.startswith("failed:"):
        return None
    return {line.split(None, 5)[5] for line in done.stdout.splitlines() if f"{folder}/" in line}


def replayed(paths: list[Path], folder: Path, variables: Mapping[str, str], cwd: Path) -> set[str] | None:
    process = Process.started(Search(os.path.realpath(sys.executable), variables, str(cwd)))
    if any(process.open(str(path)).failures for path in paths):
        return None
    return {os.path.realpath(each.path) for each in process.loaded if each.path.startswith(f"{folder}/")}


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str, str], bytes]:
    """liba, which needs libb, which needs libc_: each with no path, with DT_RPATH and DT_RUNPATH, over two lists."""
    folder = tmp_path_factory.mktemp("chain")
    lists = {"1": "$ORIGIN:$ORIGIN/../two", "2": "${ORIGIN}/../three:/nowhere:"}
    flags: dict[str, tuple[str, ...]] = {
        "none": (),
        "rpath": ("-Wl,--disable-new-dtags",),
        "runpath": ("-Wl,--enable-new-dtags",),
    }
    built: dict[tuple[str, str, str], bytes] = {}
    end = build_library(folder / "libc_.so", "int c(void) { return 3; }")
    for tag, which in itertools.product(flags, lists):
        rpath = (f"-Wl,-rpath,{lists[which]}",) if tag != "none" else ()
        out = folder / tag / which
        libb = build_library(out / "libb.so", "int c(void); int b(void) { return c(); }", *flags[tag], *rpath, end)
        code = "int b(void); int a(void) { return b(); }"
        liba = build_library(out / "liba.so", code, *flags[tag], *rpath, libb, f"-Wl,-rpath-link,{folder}")
        built |= {("a", tag, which): liba.read_bytes(), ("b", tag, which): libb.read_bytes()}
    built["c", "", ""] = end.read_bytes()
    return built


@pytest.mark.parametrize("seed", range(16))
def test_every_way_to_be_found_ends_as_in_the_real_loader(
    tmp_path: Path, chain: dict[tuple[str, str, str], bytes], seed: int
) -> None:
    """Copies of the libraries in random folders, found by random paths: the same files are loaded, or none."""
    random = Random(seed)
    folders = [tmp_path / name for name in ("one", "two", "three", "four")]

    def any_of(letter: str) -> bytes:
        return random.choice([data for (name, _, _), data in sorted(chain.items()) if name == letter])

    for folder in folders:
        folder.mkdir()
        for letter, name in (("b", "libb.so"), ("c", "libc_.so")):
            data = any_of(letter)
            if random.random() < 0.6:
                kind = random.random()
                if kind < 0.1:
                    data = data[:18] + b"\xb7\0" + data[20:] if data[18] == 62 else data  # for AArch64: passed over
                elif kind < 0.15:
                    data = b"GROUP ( libnone.so )"  # no library: ends the search
                (folder / name).write_bytes(data)
    opened = folders[0] / "liba.so"
    opened.write_bytes(any_of("a"))
    chosen = random.sample(["two", "three", "four", "nowhere"], random.randint(0, 3))
    entries = [str(tmp_path / name) for name in chosen]
    variables = {"LD_LIBRARY_PATH": random.choice([":", ";"]).join(entries)} if entries else {}
    cwd = random.choice(folders)
    before = [folders[1] / "libb.so"] if random.random() < 0.3 else []
    paths = [*(path for path in before if path.exists()), opened]
    assert replayed(paths, tmp_path, variables, cwd) == really_loaded(paths, tmp_path, variables, cwd)


def test_the_cache_is_what_ldconfig_prints() -> None:
    ldconfig = shutil.which("ldconfig", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if ldconfig is None or not CACHE.exists():
        pytest.skip("no ldconfig, or no cache")
    printed: dict[str, list[str]] = {}
    for line in subprocess.run([ldconfig, "-p"], capture_output=True, text=True, check=True).stdout.splitlines()[1:]:
        found = re.match(r"\t(\S+) \((.*)\) => (.*)", line)
        if found and "hwcap" not in found[2]:
            printed.setdefault(found[1], []).append(found[3])
    assert of_this_machine() == {name: tuple(paths) for name, paths in printed.items()}


def test_a_damaged_cache_is_an_answer() -> None:
    data = CACHE.read_bytes() if CACHE.exists() else b""
    assert read_cache(b"") == read_cache(b"anything") == {}
    for end in range(0, len(data), max(1, len(data) // 50)):
        read_cache(data[:end])
