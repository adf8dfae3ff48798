"""The loader replayed: against the real loader on libraries that are linked in every way, and on environments."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from random import Random

import pytest

from harness.findings import Finding
from harness.pin.doctor.case import Case
from harness.pin.doctor.installed import layout
from harness.pin.doctor.installed.read import read
from harness.pin.doctor.linking import linkage
from harness.pin.doctor.linking.ld_cache import CACHE, of_this_machine, read_cache
from harness.pin.doctor.linking.ldso import Process, Search, file_name, folder_of
from harness.pin.doctor.linking.openings import Replay
from harness.pin.doctor.linking.torch_process import imported, read_habit
from harness.records import Lock, Pin
from tests.pin.doctor.libraries import build_library
from tests.pin.doctor.wheels import install, make_venv, make_wheel, site_packages

# --- the search, against the real one ----------------------------------------------------------------------------

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


# --- torch's own way ---------------------------------------------------------------------------------------------

_HABIT_2_3 = """
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

_HABIT_2_7 = _HABIT_2_3.replace(
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
    old = read_habit(_HABIT_2_3)
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


# --- environments ------------------------------------------------------------------------------------------------


def library_bytes(folder: Path, name: str, code: str, *flags: str | Path) -> bytes:
    return build_library(folder / name, code, *flags).read_bytes()


@pytest.fixture
def built(tmp_path: Path) -> Path:
    return tmp_path / "built"


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


def kinds(findings: list[Finding]) -> list[tuple[str, str, str]]:
    return [(finding.kind, finding.severity, finding.subject) for finding in findings]


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
        "torch/__init__.py": _HABIT_2_3.encode(),
        "torch/version.py": b"cuda: str = '12.8'\n",
        "torch/lib/libtorch_cuda.so": cuda.read_bytes(),
        "torch/lib/libtorch_global_deps.so": deps.read_bytes(),
        "torch/_C.so": module.read_bytes(),
    }


def nccl(
    folder: Path, code: str = "int ncclInit(void) { return 1; } int ncclMemFree(void) { return 1; }"
) -> dict[str, bytes]:
    return {"nvidia/nccl/lib/libnccl.so.2": library_bytes(folder, "libnccl.so.2", code)}


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("healthy")
    python = make_venv(folder / "venv")
    torch = make_wheel(folder, "torch", "2.10.0", nccl_user(folder / "built"), requires=["nvidia-nccl-cu12"])
    install(python, torch, make_wheel(folder, "nvidia-nccl-cu12", "2.27.5", nccl(folder / "built" / "nccl")))
    return folder


@pytest.fixture
def trained(healthy: Path, tmp_path: Path) -> Path:
    """An environment with a torch and its NCCL, to break; what they were built from lies in ``built``."""
    for name in ("venv", "built"):
        shutil.copytree(healthy / name, tmp_path / name, symlinks=True)
    return tmp_path / "venv" / "bin" / "python"


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
