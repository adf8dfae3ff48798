"""What torch loads by itself: its habit of each version, and the replay of its import against a real process."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.pin.doctor.installed import layout
from harness.pin.doctor.linking.ldso import Process, Search, file_name, folder_of
from harness.pin.doctor.linking.torch_process import imported, read_habit
from tests.pin.doctor.linked import HABIT_2_3

_HABIT_2_7 = HABIT_2_3.replace(
    "mode=ctypes.RTLD_GLOBAL)\n    except",
    """mode=ctypes.RTLD_GLOBAL)
        try:
            with open("/proc/self/maps") as f:
                _maps = f.read()
            if "nvidia/cuda_runtime/lib/libcudart.so" not in _maps:
                return
            _preload_cuda_deps("cuda_nvrtc", "libnvrtc.so.*[0-9]")
            _preload_cuda_deps("nvjitlink", "libnvJitLink.so.*[0-9]")
        except Exception:
            pass
    except""",
)


def test_habits_of_torch_by_version() -> None:
    old = read_habit(HABIT_2_3)
    assert old.listed == (("cublas", "libcublas.so.*[0-9]"), ("nccl", "libnccl.so.*[0-9]"))
    assert (old.always, old.only_with) == ((), "")
    newer = read_habit(_HABIT_2_7)
    assert newer.always == (("cuda_nvrtc", "libnvrtc.so.*[0-9]"), ("nvjitlink", "libnvJitLink.so.*[0-9]"))
    assert newer.only_with == "nvidia/cuda_runtime/lib/libcudart.so"
    for strange in ("", "def _load_global_deps(:\n  broken\n\nx", "def _load_global_deps():\n    return\n\nx = 1\n"):
        assert read_habit(strange) == read_habit("")


def test_the_replay_of_import_torch_is_what_a_real_process_has() -> None:
    """Of torch, NVIDIA and the system: all that is really mapped, from the same paths, and nothing that is not."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        pytest.skip("no torch beside this Python")
    torch, place = Path(found.origin).parent, layout.ask(Path(sys.executable))
    start = Process.started(Search(os.path.realpath(sys.executable), {}, "/"))
    replay = imported(start, torch, place.path).process
    code = "import torch; print(open('/proc/self/maps').read())"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    mapped = {line.split(None, 5)[5] for line in done.stdout.splitlines() if ".so" in line and " r-xp " in line}
    expected = {os.path.realpath(library.path) for library in replay.loaded} - {os.path.realpath(sys.executable)}
    of_torch = {path for path in mapped if path.startswith((f"{torch}/", f"{torch.parent}/nvidia/"))}
    assert len(of_torch) >= 7
    assert of_torch <= expected
    # What is replayed and not there: the libraries in torch/lib that torch opens when they are first wanted.
    assert {folder_of(path) for path in expected - mapped} <= {f"{torch}/lib"}
    assert not {file_name(path) for path in expected - mapped} & {"libtorch.so", "libtorch_cpu.so", "libc10.so"}
