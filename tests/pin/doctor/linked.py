"""A torch that finds its NCCL as the real one does, and the case of an environment for the loader replayed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from harness.pin.doctor.case import Case
from harness.pin.doctor.installed import layout
from harness.pin.doctor.installed.read import read
from harness.records import Lock, Pin
from tests.pin.doctor.libraries import build_library

HABIT_2_3 = """
def _preload_cuda_deps(lib_folder, lib_name):
    pass

def _load_global_deps() -> None:
    global_deps_lib_path = "x"
    try:
        ctypes.CDLL(global_deps_lib_path, mode=ctypes.RTLD_GLOBAL)
    except OSError as err:
        cuda_libs: _Dict[str, str] = {
            "cublas": "libcublas.so.*[0-9]",
            "nccl": "libnccl.so.*[0-9]",
        }
        for lib_folder, lib_name in cuda_libs.items():
            _preload_cuda_deps(lib_folder, lib_name)
        ctypes.CDLL(global_deps_lib_path, mode=ctypes.RTLD_GLOBAL)

after = 1
"""


def library_bytes(folder: Path, name: str, code: str, *flags: str | Path) -> bytes:
    return build_library(folder / name, code, *flags).read_bytes()


def nccl(
    folder: Path, code: str = "int ncclInit(void) { return 1; } int ncclMemFree(void) { return 1; }"
) -> dict[str, bytes]:
    return {"nvidia/nccl/lib/libnccl.so.2": library_bytes(folder, "libnccl.so.2", code)}


def nccl_user(folder: Path, *flags: str) -> dict[str, bytes]:
    """A torch that needs libnccl.so.2 and finds it as the real one does."""
    nccl = build_library(
        folder / "libnccl.so.2", "int ncclInit(void) { return 1; } int ncclMemFree(void) { return 1; }"
    )
    code = "int ncclInit(void); int ncclMemFree(void); int use(void) { return ncclInit() + ncclMemFree(); }"
    path = "-Wl,-rpath,$ORIGIN/../../nvidia/nccl/lib:$ORIGIN"
    cuda = build_library(folder / "libtorch_cuda.so", code, path, *flags, nccl)
    deps = build_library(folder / "libtorch_global_deps.so", "int nothing(void) { return 0; }")
    module = build_library(
        folder / "_C.so", "int use(void); int go(void) { return use(); }", "-Wl,-rpath,$ORIGIN/lib", cuda
    )
    return {
        "torch/__init__.py": HABIT_2_3.encode(),
        "torch/version.py": b"cuda: str = '12.8'\n",
        "torch/lib/libtorch_cuda.so": cuda.read_bytes(),
        "torch/lib/libtorch_global_deps.so": deps.read_bytes(),
        "torch/_C.so": module.read_bytes(),
    }


def case_of(python: Path, variables: Mapping[str, str] | None = None, pins: tuple[str, ...] = ()) -> Case:
    lock = Lock("cu", ("3.11",), "0" * 64, tuple(Pin(name, "1.0", ()) for name in pins), "lock.txt") if pins else None
    return Case(
        read(layout.ask(python)),
        lock=lock,
        pins={pin.name: pin for pin in lock.pins} if lock else {},
        command="harness doctor cu",
        variables=variables or {},
        cwd="/",
    )
