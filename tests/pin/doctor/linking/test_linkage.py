"""A library that is gone or cut is a finding that names who needs it; a healthy environment has none."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from harness.pin.doctor.linking import linkage
from harness.pin.doctor.linking.ld_cache import of_this_machine
from harness.pin.doctor.linking.ldso import file_name
from harness.pin.doctor.linking.openings import Replay
from tests.pin.doctor.findings import kinds
from tests.pin.doctor.libraries import build_library
from tests.pin.doctor.linked import case_of, library_bytes
from tests.pin.doctor.wheels import install, make_venv, make_wheel, site_packages


def test_a_healthy_environment_has_no_finding(trained: Path) -> None:
    assert list(linkage.check(case_of(trained, pins=("torch", "nvidia-nccl-cu12")))) == []


def test_a_plain_environment_has_no_finding(tmp_path: Path) -> None:
    assert list(linkage.check(case_of(make_venv(tmp_path / "plain")))) == []


def test_this_environment_has_nothing_above_a_note() -> None:
    """The environment of the tests was built from its lock, torch and hundreds of native libraries in it."""
    case = case_of(Path(sys.executable))
    assert len(Replay(case).libraries) > 50
    assert [finding for finding in linkage.check(case) if finding.severity != "note"] == []


def test_a_library_that_is_gone(trained: Path) -> None:
    (site_packages(trained) / "nvidia/nccl/lib/libnccl.so.2").unlink()
    (finding,) = linkage.check(case_of(trained, pins=("torch", "nvidia-nccl-cu12")))
    assert (finding.kind, finding.severity, finding.subject) == ("link.unresolved", "broken", "torch")
    assert finding.summary == "torch cannot be loaded: nothing provides libnccl.so.2, which libtorch_cuda.so needs"
    assert finding.evidence["libraries"] == ("libnccl.so.2",)
    searched = finding.evidence["searched"]
    assert isinstance(searched, tuple)
    assert any(folder.endswith("site-packages/nvidia/nccl/lib") for folder in searched)
    assert finding.fix == "harness doctor cu --fix"
    json.dumps(finding.evidence)


def test_without_a_lock_the_one_that_claims_the_library_is_put_back(trained: Path) -> None:
    (site_packages(trained) / "nvidia/nccl/lib/libnccl.so.2").unlink()
    (finding,) = linkage.check(case_of(trained))
    assert finding.fix.endswith("--force-reinstall --no-deps nvidia-nccl-cu12==2.27.5")


def test_of_several_that_need_what_is_gone_one_is_named_throughout(trained: Path, built: Path) -> None:
    code = "int ncclInit(void); int more(void) { return ncclInit(); }"
    cuda = built / "libtorch_cuda.so"
    for name in ("libtorch_extra.so", "_D.so"):
        path = "-Wl,-rpath,$ORIGIN/../../nvidia/nccl/lib:$ORIGIN/lib"
        library = library_bytes(built / "more", name, code, path, built / "libnccl.so.2", cuda)
        (site_packages(trained) / "torch" / ("lib" if name.startswith("lib") else "") / name).write_bytes(library)
    (site_packages(trained) / "nvidia/nccl/lib/libnccl.so.2").unlink()
    findings = [f for f in linkage.check(case_of(trained)) if f.severity != "note"]
    assert findings
    for finding in findings:
        needed_by = finding.evidence["needed_by"]
        assert isinstance(needed_by, Mapping)
        assert finding.summary.endswith(f"which {file_name(needed_by['libnccl.so.2'])} needs")


def test_a_truncated_library(trained: Path) -> None:
    library = site_packages(trained) / "nvidia/nccl/lib/libnccl.so.2"
    library.write_bytes(library.read_bytes()[:1000])
    (finding,) = linkage.check(case_of(trained))
    assert (finding.kind, finding.severity, finding.subject) == ("link.unresolved", "broken", "nvidia-nccl-cu12")
    assert "libnccl.so.2 is truncated: 1,000 of at least" in finding.summary


def test_what_torch_opens_by_itself_counts_as_found(tmp_path: Path, trained: Path, built: Path) -> None:
    """torch without a path to NCCL: found where its list is opened first, and not found where it has none."""
    code = "int ncclInit(void); int use(void) { return ncclInit(); }"
    for name in ("libtorch_cuda.so", "libtorch_global_deps.so"):
        library = build_library(tmp_path / name, code, built / "libnccl.so.2")
        shutil.copyfile(library, site_packages(trained) / "torch" / "lib" / name)
    assert list(linkage.check(case_of(trained))) == []
    (site_packages(trained) / "torch" / "__init__.py").write_text("")
    assert kinds(list(linkage.check(case_of(trained)))) == [("link.unresolved", "broken", "torch")]


def test_libraries_of_other_machines_are_notes(tmp_path: Path, trained: Path, built: Path) -> None:
    absent = {
        name: build_library(built / name, "int x(void);") for name in ("libcuda.so.1", "libmpi.so.40", "libown.so.1")
    }
    code = "int y(void) { return 1; }"
    plugin = library_bytes(built, "nvshmem_bootstrap_mpi.so.3", code, "-Wl,--no-as-needed", *list(absent.values())[:2])
    own = library_bytes(built, "module.so", code, "-Wl,--no-as-needed", absent["libmpi.so.40"], absent["libown.so.1"])
    shmem = make_wheel(
        tmp_path, "nvidia-nvshmem-cu12", "3.4", {"nvidia/nvshmem/lib/nvshmem_bootstrap_mpi.so.3": plugin}
    )
    install(trained, shmem, make_wheel(tmp_path, "other", "1", {"module.so": own}))
    for name in absent:
        assert name not in of_this_machine(), "this machine has it, so the test proves nothing"
    found = {finding.subject: finding for finding in linkage.check(case_of(trained))}
    assert found["nvidia-nvshmem-cu12"].severity == "note"
    assert found["nvidia-nvshmem-cu12"].fix == ""
    assert found["nvidia-nvshmem-cu12"].evidence["why"] == {
        "libcuda.so.1": "a GPU with its driver",
        "libmpi.so.40": "MPI jobs",
    }
    assert found["other"].severity == "broken", "MPI is excused for NVSHMEM, not for everybody"
    assert found["other"].evidence["count"] == 2


def test_a_symlink_loop_and_a_library_in_a_folders_place(trained: Path) -> None:
    site = site_packages(trained)
    (site / "loop.so").symlink_to(site / "loop.so")
    (site / "folder.so").mkdir()
    (site / "empty.so").touch()
    assert list(linkage.check(case_of(trained))) == []
