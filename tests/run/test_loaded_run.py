"""The libraries of a run's processes, from real processes: when they are looked at, and what is told of them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from harness.run.loaded import LoadedWatch
from tests.pin.doctor.libraries import build_library, holding


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """site-packages with a library and an extension module in it."""
    site = tmp_path / "venv" / "site-packages"
    build_library(site / "nvidia" / "lib" / "libnccl.so.2", "int nccl(void) { return 1; }")
    build_library(site / "torch" / "_C.so", "int c(void) { return 1; }", "-Wl,-soname,_C.so")
    return site


def owner_in(site: Path) -> dict[str, str]:
    return {
        str(site / "nvidia" / "lib" / "libnccl.so.2"): "nvidia-nccl-cu12 2.27.5",
        str(site / "torch" / "_C.so"): "torch 2.10.0",
    }


def digits(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


@pytest.fixture
def watch(site: Path) -> Iterator[LoadedWatch]:
    watch = LoadedWatch([str(site)])
    yield watch
    watch.close()


def test_each_library_is_told_with_its_owner_and_its_bytes(site: Path, watch: LoadedWatch) -> None:
    nccl, module = site / "nvidia" / "lib" / "libnccl.so.2", site / "torch" / "_C.so"
    with holding(nccl, module) as pid:
        watch.sample([pid])
    facts = watch.facts(owner_in(site).get)
    assert facts["state.loaded.libnccl.so.2"] == f"nvidia-nccl-cu12 2.27.5 sha256:{digits(nccl)}"
    assert facts["state.loaded.torch/_C.so"] == f"torch 2.10.0 sha256:{digits(module)}"
    assert str(facts["state.loaded.libc.so.6"]).startswith("system sha256:")
    assert "state.loaded.twice" not in facts
    assert all(name.startswith("state.loaded.") for name in facts)
    assert not any("_ctypes" in name for name in facts), "the interpreter's own modules are no news"


def test_libraries_of_all_processes_and_of_all_looks_are_kept(site: Path, watch: LoadedWatch) -> None:
    nccl, module = site / "nvidia" / "lib" / "libnccl.so.2", site / "torch" / "_C.so"
    with holding(nccl) as first, holding(module) as second:
        watch.sample([first, second])
    watch.sample([first, second])  # both have ended: nothing is forgotten, nothing fails
    assert {"state.loaded.libnccl.so.2", "state.loaded.torch/_C.so"} <= set(watch.facts(owner_in(site).get))


def test_a_known_digest_is_not_computed_again(site: Path) -> None:
    nccl = site / "nvidia" / "lib" / "libnccl.so.2"
    watch = LoadedWatch([str(site)], {str(nccl): "ab" * 32})
    with holding(nccl) as pid:
        watch.sample([pid])
    assert str(watch.facts(lambda _: None)["state.loaded.libnccl.so.2"]).endswith("sha256:abababababab")
    watch.close()


def test_a_library_from_outside_and_one_that_is_there_twice(tmp_path: Path, site: Path, watch: LoadedWatch) -> None:
    inside = site / "nvidia" / "lib" / "libnccl.so.2"
    outside = build_library(tmp_path / "cuda" / "libnccl.so.2", "int other(void) { return 2; }")
    unrelated = build_library(tmp_path / "cuda" / "libunrelated.so", "int u(void) { return 2; }")
    with ExitStack() as stack:
        apart = [stack.enter_context(holding(path)) for path in (inside, outside)]
        watch.sample(apart)
        assert "state.loaded.twice" not in watch.facts(owner_in(site).get), "two processes may have one each"
        watch.sample([stack.enter_context(holding(inside, outside, unrelated))])
    facts = watch.facts(owner_in(site).get)
    assert facts["state.loaded.twice"] == "libnccl"
    told = str(facts["state.loaded.libnccl.so.2"])
    assert f"outside {tmp_path}/cuda sha256:{digits(outside)}" in told
    assert f"nvidia-nccl-cu12 2.27.5 sha256:{digits(inside)}" in told
    assert not any("unrelated" in name for name in facts)


def test_a_library_that_is_replaced_meanwhile(site: Path, watch: LoadedWatch) -> None:
    nccl = site / "nvidia" / "lib" / "libnccl.so.2"
    with holding(nccl) as pid:
        watch.sample([pid])
        nccl.unlink()
        build_library(nccl, "int newer(void) { return 3; }")
    assert (
        watch.facts(owner_in(site).get)["state.loaded.libnccl.so.2"] == "nvidia-nccl-cu12 2.27.5 replaced while it ran"
    )


def test_looks_become_rare(watch: LoadedWatch) -> None:
    looks, now = [], 0.0
    while now < 400:
        if watch.due(now):
            looks.append(now)
            watch.sample([], now)
        now += 0.5
    assert looks == [0.5, 1.5, 3.5, 7.5, 15.5, 31.5, 63.5, 123.5, 183.5, 243.5, 303.5, 363.5]


def test_a_look_costs_little(site: Path, watch: LoadedWatch) -> None:
    """Measured on a process with a hundred libraries and more, as one that has imported torch has."""
    code = "int f%d(void) { return 1; }"
    many = [build_library(site / "many" / "lib0.so", code % 0)]
    for number in range(1, 120):
        copy = site / "many" / f"lib{number}.so"
        copy.write_bytes(many[0].read_bytes().replace(b"lib0.so", f"lib{number}.so"[:7].encode()))
        many.append(copy)
    with holding(*many) as pid:
        watch.sample([pid])
        start = time.perf_counter()
        for _ in range(10):
            watch.sample([pid])
        each = (time.perf_counter() - start) / 10
    assert each < 0.03, "a look may not cost a step its time"
