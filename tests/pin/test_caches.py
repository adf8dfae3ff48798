"""Compile caches: kept apart, measured by kind, never deleted."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.pin.caches import VARIABLES, choose, in_use, inventory
from harness.records import CacheState


def put(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)


def test_what_is_in_a_cache_is_counted_by_kind(tmp_path: Path) -> None:
    root = choose(tmp_path, "cpu-abc-py3.11.7", "AMD EPYC", None)
    inductor = Path(root.variables["TORCHINDUCTOR_CACHE_DIR"])
    put(inductor / "fxgraph" / "ab" / "graph" / "entry", 100)
    put(inductor / "fxgraph" / "cd" / "graph" / "entry", 50)
    put(inductor / "aotautograd" / "k" / "entry", 7)
    put(inductor / "triton" / "0" / "kernel.cubin", 30)
    put(inductor / "c3" / "generated.py", 11)
    put(inductor / "c3" / "generated.so", 1000)
    put(inductor / "locks" / "x.lock", 5)
    put(Path(root.variables["TRITON_CACHE_DIR"]) / "k" / "kernel.cubin", 20)
    put(Path(root.variables["TORCH_EXTENSIONS_DIR"]) / "py311" / "e.so", 9)
    put(Path(root.variables["CUDA_CACHE_PATH"]) / "index", 3)
    assert inventory(root.variables) == CacheState(
        bytes=1230,
        entries=9,
        by_kind={
            "aotautograd": {"bytes": 7, "entries": 1},
            "cuda": {"bytes": 3, "entries": 1},
            "extensions": {"bytes": 9, "entries": 1},
            "fxgraph": {"bytes": 150, "entries": 2},
            "inductor": {"bytes": 1011, "entries": 2},
            "triton": {"bytes": 50, "entries": 2},
        },
    )


def test_a_new_root_and_one_that_is_not_there_are_empty(tmp_path: Path) -> None:
    assert inventory(choose(tmp_path, "cpu", "gpu", "12.8").variables) == CacheState(0, 0)
    assert inventory(dict.fromkeys(VARIABLES, "/nowhere")) == CacheState(0, 0)
    assert inventory({}) == CacheState(0, 0)


names = st.sampled_from(["cpu-1-py3.11", "cpu-1-py3.12", "cu130-1-py3.11", "cpu-2-py3.11"])


@settings(max_examples=25)  # each makes folders
@given(
    st.lists(
        st.tuples(names, st.sampled_from(["H200", "RTX PRO 6000", "AMD EPYC"]), st.sampled_from([None, "12.8", "13.0"]))
    )
)
def test_no_two_places_share_a_root_and_one_place_keeps_its_own(places: list[tuple[str, str, str | None]]) -> None:

    with tempfile.TemporaryDirectory() as name:
        roots = {place: choose(Path(name), *place).path for place in places}
        assert len(set(roots.values())) == len(roots)
        assert all(choose(Path(name), *place).path == root for place, root in roots.items())


def test_a_cold_start_takes_a_new_root_and_deletes_nothing(tmp_path: Path) -> None:
    warm = choose(tmp_path, "cpu", "EPYC", None)
    put(Path(warm.variables["CUDA_CACHE_PATH"]) / "index", 3)
    cold = [choose(tmp_path, "cpu", "EPYC", None, cold=True) for _ in range(3)]
    assert len({root.path for root in (warm, *cold)}) == 4
    assert all(inventory(root.variables).entries == 0 for root in cold)
    assert inventory(choose(tmp_path, "cpu", "EPYC", None).variables).entries == 1


def test_a_root_says_whether_another_run_uses_it(tmp_path: Path) -> None:
    root, other = choose(tmp_path, "cpu", "EPYC", None), choose(tmp_path, "cpu", "H200", "13.0")
    with in_use(root) as first:
        assert first is False
        with in_use(root) as second, in_use(other) as apart:
            assert second is True
            assert apart is False
        with in_use(root) as third:
            assert third is True
    with in_use(root) as after:
        assert after is False
