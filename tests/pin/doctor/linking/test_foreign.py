"""A library that the loader takes from elsewhere than from the wheel that the lock means is found, and where it is."""

from __future__ import annotations

import shutil
from pathlib import Path

from harness.findings import Finding
from harness.pin.doctor.linking import linkage
from tests.pin.doctor.libraries import build_library
from tests.pin.doctor.linked import case_of, library_bytes, nccl
from tests.pin.doctor.wheels import install, make_wheel, site_packages


def test_a_copy_on_ld_library_path_goes_before_the_wheels(tmp_path: Path, trained: Path, built: Path) -> None:
    """pytorch#134929 and verl#6621: by DT_RUNPATH the variable wins, by DT_RPATH it does not."""
    nccl(built / "cuda")
    code = "int ncclInit(void); int use(void) { return ncclInit(); }"
    paths = "-Wl,-rpath,$ORIGIN/../../nvidia/nccl/lib"
    installed = site_packages(trained) / "torch" / "lib" / "libtorch_cuda.so"

    def linked(flag: str) -> list[Finding]:
        shutil.copyfile(build_library(tmp_path / installed.name, code, flag, paths, built / "libnccl.so.2"), installed)
        return list(linkage.check(case_of(trained, {"LD_LIBRARY_PATH": f"/other:{built / 'cuda'}"})))

    (finding,) = linked("-Wl,--enable-new-dtags")
    assert (finding.kind, finding.severity, finding.subject) == ("link.foreign", "dangerous", "nvidia-nccl-cu12")
    assert finding.evidence["found"] == {"libnccl.so.2": str(built / "cuda" / "libnccl.so.2")}
    assert finding.summary.endswith("by LD_LIBRARY_PATH")
    assert finding.fix == "export LD_LIBRARY_PATH=/other"
    (alone,) = linkage.check(case_of(trained, {"LD_LIBRARY_PATH": str(built / "cuda")}))
    assert alone.fix == "unset LD_LIBRARY_PATH"
    assert linked("-Wl,--disable-new-dtags") == []


def test_the_copy_of_a_distribution_that_the_lock_lacks(tmp_path: Path, trained: Path, built: Path) -> None:
    other = {"torch/lib/libnccl.so.2": nccl(built / "extra")["nvidia/nccl/lib/libnccl.so.2"]}
    install(trained, make_wheel(tmp_path, "sglang", "0.5", other))
    here = "-Wl,-rpath,$ORIGIN:$ORIGIN/../../nvidia/nccl/lib"
    code = "int ncclInit(void); int use(void) { return ncclInit(); }"
    library = build_library(tmp_path / "libtorch_cuda.so", code, here, built / "libnccl.so.2")
    shutil.copyfile(library, site_packages(trained) / "torch" / "lib" / library.name)
    (finding,) = linkage.check(case_of(trained, pins=("torch", "nvidia-nccl-cu12")))
    assert (finding.kind, finding.subject) == ("link.foreign", "nvidia-nccl-cu12")
    assert finding.fix == "harness doctor cu --fix --remove sglang"


def test_a_part_of_cudnn_that_only_another_cudnn_has(tmp_path: Path, trained: Path, built: Path) -> None:
    """pytorch#188892: parts that the wheel has come from its folder, one that it lacks from wherever there is one."""
    code = "int part(void) { return 1; }"
    path = "-Wl,--enable-new-dtags,-rpath,$ORIGIN"
    names = ("libcudnn.so.9", "libcudnn_graph.so.9")
    parts = {f"nvidia/cudnn/lib/{name}": library_bytes(built / "cudnn", name, code, path) for name in names}
    install(trained, make_wheel(tmp_path, "nvidia-cudnn-cu12", "9.20.0", parts))
    system = build_library(tmp_path / "system" / "libcudnn_graph.so.9", code).parent
    variables = {"LD_LIBRARY_PATH": str(system)}
    assert list(linkage.check(case_of(trained, variables))) == []
    build_library(system / "libcudnn_engines_tensor_ir.so.9", code)
    (finding,) = linkage.check(case_of(trained, variables))
    assert (finding.kind, finding.severity, finding.subject) == ("link.foreign", "dangerous", "nvidia-cudnn-cu12")
    assert "has no libcudnn_engines_tensor_ir.so.9: libcudnn.so.9 gets" in finding.summary
    assert finding.fix == "unset LD_LIBRARY_PATH"
