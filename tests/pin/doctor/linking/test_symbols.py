"""A library without a symbol or a version that another needs is one finding, and its fix ends it."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from harness.pin.doctor.linking import linkage
from tests.pin.doctor.findings import kinds
from tests.pin.doctor.libraries import build_library
from tests.pin.doctor.linked import case_of, library_bytes, nccl, nccl_user
from tests.pin.doctor.wheels import install, make_wheel, site_packages


def test_an_older_library_lacks_a_symbol(tmp_path: Path, trained: Path, built: Path) -> None:
    """returnn#1802: ``undefined symbol: ncclMemFree``. pip is content."""
    older = make_wheel(tmp_path, "nvidia-nccl-cu12", "2.18.1", nccl(built / "old", "int ncclInit(void) { return 1; }"))
    install(trained, older)
    (finding,) = linkage.check(case_of(trained))
    assert (finding.kind, finding.severity, finding.subject) == ("link.symbol-version", "broken", "torch")
    assert finding.summary == "torch needs ncclMemFree, which nvidia-nccl-cu12's libnccl.so.2 does not have"
    assert finding.evidence["missing"] == ("ncclMemFree",)
    assert finding.fix.endswith("--force-reinstall --no-deps nvidia-nccl-cu12==2.18.1 torch==2.10.0")
    requires = ["nvidia-nccl-cu12==2.27.5; platform_system == 'Linux'", "not a requirement"]
    metadata = next(site_packages(trained).glob("torch-*.dist-info")) / "METADATA"
    metadata.write_text(metadata.read_text() + "".join(f"Requires-Dist: {line}\n" for line in requires))
    (again,) = linkage.check(case_of(trained))
    assert again.fix.endswith("--no-deps nvidia-nccl-cu12==2.27.5"), "torch says which it was built with"


def test_an_extension_for_another_torch_lacks_a_symbol_of_torch(tmp_path: Path, trained: Path, built: Path) -> None:
    """What an extension such as flash-attn shows after torch was changed under it."""
    cuda = built / "libtorch_cuda.so"
    code = "int _ZN3c1011Warning_oldEv(void); int use(void); int go(void) { return use() + _ZN3c1011Warning_oldEv(); }"
    c10 = build_library(built / "other" / "libc10.so", "int _ZN3c1011Warning_oldEv(void) { return 1; }")
    module = library_bytes(built, "flash_attn_2_cuda.so", code, cuda, c10, f"-Wl,-rpath-link,{built}")
    here = library_bytes(built / "here", "libc10.so", "int _ZN3c1011Warning_newEv(void) { return 1; }")
    torch = make_wheel(tmp_path, "torch", "2.10.0", {**nccl_user(built), "torch/lib/libc10.so": here})
    install(trained, torch, make_wheel(tmp_path, "flash-attn", "2.8", {"flash_attn_2_cuda.so": module}))
    (finding,) = linkage.check(case_of(trained))
    assert (finding.kind, finding.subject) == ("link.symbol-version", "flash-attn")
    assert "needs _ZN3c1011Warning_oldEv, which torch's libc10.so does not have" in finding.summary


def test_a_version_that_the_library_does_not_define(tmp_path: Path, trained: Path, built: Path) -> None:
    """As with ``version `GLIBCXX_3.4.30' not found``."""
    scripts = {name: built / name for name in ("old", "new")}
    built.mkdir(exist_ok=True)
    for name, script in scripts.items():
        extra = "FAM_2 { global: later; } FAM_1;" if name == "new" else ""
        script.write_text("FAM_1 { global: early; local: *; };" + extra)
    code = {
        "old": "int early(void) { return 1; }",
        "new": "int early(void) { return 1; } int later(void) { return 2; }",
    }
    libraries = {
        name: build_library(built / f"v{name}" / "libfam.so.1", code[name], f"-Wl,--version-script={scripts[name]}")
        for name in scripts
    }
    user = "int later(void); int go(void) { return later(); }"
    module = library_bytes(built, "user.so", user, "-Wl,-rpath,$ORIGIN", libraries["new"])
    fam = make_wheel(tmp_path, "fam", "1", {"user.so": module, "libfam.so.1": libraries["new"].read_bytes()})
    install(trained, fam)
    assert list(linkage.check(case_of(trained))) == []
    (site_packages(trained) / "libfam.so.1").write_bytes(libraries["old"].read_bytes())
    (finding,) = linkage.check(case_of(trained))
    assert (finding.kind, finding.severity, finding.subject) == ("link.symbol-version", "broken", "fam")
    assert finding.evidence["missing"] == ("FAM_2",)


def versioned(folder: Path, *versions: str) -> Path:
    """libfam.so.1 with a symbol of each of ``versions``."""
    folder.mkdir(parents=True)
    script = folder / "script"
    script.write_text("\n".join(f"{version} {{ global: of_{version}; }};" for version in versions))
    code = "".join(f"int of_{version}(void) {{ return 1; }}" for version in versions)
    return build_library(folder / "libfam.so.1", code, f"-Wl,--version-script={script}")


STRANGE = {
    "LD_LIBRARY_PATH": ({"LD_LIBRARY_PATH": "{strange}"}, ""),
    "one folder of several": ({"LD_LIBRARY_PATH": "/a b:{strange}:/other"}, ""),
    "LD_PRELOAD": ({"LD_PRELOAD": "{strange}/libfam.so.1"}, ""),
    "both": ({"LD_PRELOAD": "{strange}/libfam.so.1", "LD_LIBRARY_PATH": "{strange}"}, ""),
    "a path that was linked in": ({}, "{strange}:"),
    "a path that was linked in, and another": ({"LD_LIBRARY_PATH": "/other"}, "{strange}:"),
}


@pytest.mark.parametrize("pins", [(), ("fam", "torch", "nvidia-nccl-cu12")])
@pytest.mark.parametrize("way", STRANGE)
def test_a_stranger_that_lacks_a_version_is_passed_by_and_nothing_is_installed(
    tmp_path: Path, trained: Path, built: Path, way: str, pins: tuple[str, ...]
) -> None:
    """As with libm under the name of libgomp.so.1: an installation would put back what is there already."""
    strange, ours = versioned(built / "strange", "FAM_1"), versioned(built / "ours", "FAM_1", "FAM_2")
    set_to, linked = STRANGE[way]
    path = f"-Wl,--enable-new-dtags,-rpath,{linked.format(strange=strange.parent)}$ORIGIN"
    code = "int of_FAM_1(void); int of_FAM_2(void); int go(void) { return of_FAM_1() + of_FAM_2(); }"
    module = library_bytes(built, "user.so", code, path, ours)
    fam = make_wheel(tmp_path, "fam", "1", {"user.so": module, "libfam.so.1": ours.read_bytes()})
    install(trained, fam)
    variables = {name: value.format(strange=strange.parent) for name, value in set_to.items()}
    fixes = []
    while findings := list(linkage.check(case_of(trained, variables, pins))):
        assert kinds(findings) == [("link.symbol-version", "broken", "fam")]
        fixes.append(findings[0].fix)
        assert len(fixes) <= len(variables) + 1, fixes
        variables = after(findings[0].fix, variables)
    assert fixes
    assert "/other" not in "".join(set_to.values()) or "/other" in variables["LD_LIBRARY_PATH"]


def after(command: str, variables: Mapping[str, str]) -> dict[str, str]:
    """The variables of the loader once a shell has run ``command``."""
    sets = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
    python = f"{shlex.quote(sys.executable)} -c 'import json, os; print(json.dumps(dict(os.environ)))'"
    done = subprocess.run(["bash", "-ec", f"{sets}{command}\n{python}"], capture_output=True, text=True, check=True)
    return {name: value for name, value in json.loads(done.stdout).items() if name.startswith("LD_")}
