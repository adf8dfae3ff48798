"""Compile caches are found where torch, Triton and the driver keep them, copied, and given to an empty root alone."""

from __future__ import annotations

import getpass
import os
import tempfile
from pathlib import Path

import pytest

from harness.pin.caches import choose, inventory
from harness.pin.freeze.pace import Paced
from harness.pin.freeze.saved_caches import fill, save, size_of, sources


def put(folder: Path, **files: bytes) -> Path:
    for name, content in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def quiet() -> Paced:
    return Paced(lambda _: None)


def test_the_variables_say_where_they_are(tmp_path: Path) -> None:
    folders = {"TORCHINDUCTOR_CACHE_DIR": tmp_path / "i", "TRITON_CACHE_DIR": tmp_path / "t"}
    for folder in folders.values():
        folder.mkdir()
    variables = {name: str(folder) for name, folder in folders.items()} | {"HOME": str(tmp_path)}
    assert sources(variables, "3.12.3", "12.8") == folders


def test_without_variables_the_tools_own_defaults_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    expected = {
        "TORCHINDUCTOR_CACHE_DIR": tmp_path / "tmp" / f"torchinductor_{getpass.getuser()}",
        "TRITON_CACHE_DIR": tmp_path / ".triton" / "cache",
        "TORCH_EXTENSIONS_DIR": tmp_path / ".cache" / "torch_extensions" / "py312_cu128",
        "CUDA_CACHE_PATH": tmp_path / ".nv" / "ComputeCache",
    }
    assert sources({"HOME": str(tmp_path)}, "3.12.3", "12.8") == {}
    for folder in expected.values():
        folder.mkdir(parents=True)
    assert sources({"HOME": str(tmp_path)}, "3.12.3", "12.8") == expected
    assert "TORCH_EXTENSIONS_DIR" not in sources({"HOME": str(tmp_path)}, "3.12.3", None)  # that would be py312_cpu


def test_they_are_copied_with_counts_by_kind_and_stay_where_they_were(tmp_path: Path) -> None:
    inductor = put(tmp_path / "i", fxgraph__ab__g=b"123", aotautograd__h=b"4567", xy__code=b"8", locks__l=b"")
    (inductor / "xy" / "link").symlink_to("code")
    os.mkfifo(inductor / "xy" / "pipe")
    triton = put(tmp_path / "t", k=b"90")
    (triton / "k").chmod(0o755)
    os.utime(triton / "k", ns=(1, 2_000_000_000))
    saved = save({"TORCHINDUCTOR_CACHE_DIR": inductor, "TRITON_CACHE_DIR": triton}, tmp_path / "saved", quiet())
    assert saved.sources == {"inductor": str(inductor), "triton": str(triton)}
    kinds = {kind: count["entries"] for kind, count in saved.state.by_kind.items()}
    assert kinds == {"fxgraph": 1, "aotautograd": 1, "inductor": 2, "triton": 1}
    copied = tmp_path / "saved" / "triton" / "k"
    assert (copied.stat().st_mode & 0o777, copied.stat().st_mtime_ns) == (0o755, 2_000_000_000)
    assert (triton / "k").read_bytes() == copied.read_bytes() == b"90"
    assert (tmp_path / "saved" / "inductor" / "xy" / "link").readlink() == Path("code")
    assert size_of(triton) == 2


def test_they_fill_an_empty_root_and_leave_another_as_it_is(tmp_path: Path) -> None:
    put(tmp_path / "saved", inductor__fxgraph__g=b"123", triton__k=b"4")
    root = choose(tmp_path / "caches", "new-abc-py3.12.3", "NVIDIA X", "12.8")
    assert fill(tmp_path / "saved", root.path, quiet())
    state = inventory(root.variables)
    assert (state.entries, state.bytes) == (2, 4)
    (root.path / "triton" / "k").write_bytes(b"changed by a run")
    assert not fill(tmp_path / "saved", root.path, quiet())
    assert (root.path / "triton" / "k").read_bytes() == b"changed by a run"
    assert sorted(path.name for path in root.path.iterdir()) == ["cuda", "extensions", "inductor", "triton"]


def test_a_copy_that_is_broken_off_leaves_the_root_empty(tmp_path: Path) -> None:
    put(tmp_path / "saved", triton__a=b"1", triton__b=b"2")
    root = choose(tmp_path / "caches", "new-abc-py3.12.3", "cpu", None)

    def stop(_: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fill(tmp_path / "saved", root.path, Paced(stop, _last=-100.0))
    assert inventory(root.variables).entries == 0
    assert not list(root.path.glob(".*"))
