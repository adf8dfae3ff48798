"""What a Python says of itself: as its own site module would have it, and without any code of its environment."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.errors import EnvironmentFault, HarnessError, UsageError
from harness.pin.doctor.installed.layout import ask as layout_of
from harness.pin.interpreter import answer_of, ask, describe
from harness.places import places
from tests.pin.doctor.wheels import make_venv, site_packages

# The independent answer: that of the site module, which runs what is installed.
_BY_SITE = """
import json, os, site, sys, sysconfig
base = getattr(sys, "base_prefix", sys.prefix)
own = [site.getusersitepackages()] if base in site.PREFIXES else []
print(json.dumps({
    "prefix": sys.prefix, "base_prefix": base, "path": [os.path.abspath(entry) for entry in sys.path],
    "folders": own + site.getsitepackages(),
    **{name: sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib")},
}))
"""


def by_site(python: Path) -> dict[str, object]:
    done = subprocess.run([python, "-I", "-B", "-c", _BY_SITE], capture_output=True, text=True, check=True)
    answer: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return answer


def without_what_code_added(path: object) -> object:
    """An import line of a .pth file may add an entry that is no path: a key for a finder of its own."""
    assert isinstance(path, list)
    return [entry for entry in path if "__editable__" not in entry]


def pythons_here() -> list[Path]:
    """Every Python of this machine that can be found: on PATH, pyenv's, uv's, conda's, and of the environments here."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    names = ("python3", "python", *(f"python3.{minor}" for minor in range(6, 20)))
    found = [Path(path) for name in names if (path := shutil.which(name))]
    home = Path.home()
    roots = [Path(os.environ.get("PYENV_ROOT", home / ".pyenv"), "versions"), home / ".local/share/uv/python"]
    roots += [home / name / "envs" for name in ("miniconda3", "miniforge3", "anaconda3")] + [places().state / "envs"]
    found += [python for root in roots for python in sorted(root.glob("*/bin/python"))]
    found += [Path("/usr/bin/python3"), Path(sys.executable), Path(sys.base_prefix, "bin", f"python{version}")]
    return [python for python in dict.fromkeys(found) if python.exists() and _has_isolated_mode(python)]


def _has_isolated_mode(python: Path) -> bool:
    return subprocess.run([python, "-I", "-c", ""], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("python", pythons_here(), ids=str)
def test_every_python_here_is_as_its_site_module_says(python: Path) -> None:
    said, expected = describe(python), by_site(python)
    expected["path"] = without_what_code_added(expected["path"])
    assert {name: said[name] for name in expected} == expected
    assert ask(python).site_packages == Path(str(expected["purelib"]))


def _venv(*options: str) -> Callable[[Path, Path], object]:
    return lambda base, to: subprocess.run([base, "-m", "venv", "--without-pip", *options, to], check=True)


def _uv_venv(*options: str) -> Callable[[Path, Path], object]:
    command = [sys.executable, "-m", "uv", "venv", "--quiet", "--no-config", "--offline", *options, "--python"]
    return lambda base, to: subprocess.run([*command, base, to], check=True)


OPEN = "--system-site-packages"
BASES = [Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")]
BASES += [Path("/usr/bin/python3")]  # a distributor's, patched


@pytest.mark.parametrize("base", [base for base in BASES if base.exists()], ids=str)
@pytest.mark.parametrize(
    "make", [_venv(), _venv(OPEN), _venv("--copies"), _venv("--symlinks"), _uv_venv(), _uv_venv(OPEN)],
    ids=["venv", "open venv", "copied venv", "linked venv", "uv's", "uv's, open"],
)  # fmt: skip
def test_a_virtual_environment_is_as_its_site_module_says(
    tmp_path: Path, base: Path, make: Callable[[Path, Path], object]
) -> None:
    make(base, tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    site = Path(str(describe(python)["purelib"]))
    _write_pth_files(site, tmp_path)
    said, expected = describe(python), by_site(python)
    assert {name: said[name] for name in expected} == expected
    assert str(tmp_path / "sources") in str(said["path"])
    assert said["prefix"] == str(tmp_path / "venv")


def _write_pth_files(site: Path, around: Path) -> None:
    for name in ("sources", "with blank", "ümlaut", "both", "hidden"):
        (around / name).mkdir()
    (site / "inner").mkdir()
    (site / "b.pth").write_text(f"{around}/both\n{around}/gone\n\n# {around}\ninner\n{around}/sources   \n")
    (site / "a.pth").write_text(f"import os\n{around}/with blank\n../site-packages/inner\n{site}\n{around}/both\n")
    (site / "c.pth").write_text(f"{around}/ümlaut\n{around}/./sources\n", encoding="utf-8")
    (site / "c.PTH").write_text(f"{around}\n")
    (site / ".hidden.pth").write_text(f"{around}/hidden\n")
    (site / "folder.pth").mkdir()
    (site / "long.pth").write_text("x" * 5000 + "\n")


@pytest.mark.parametrize(
    "name", ["evil.pth", "sitecustomize.py", "usercustomize.py", "json.py", "site.py", "zzz.start"]
)
@pytest.mark.parametrize("question", [ask, layout_of, lambda python: answer_of(python, "print('{}')")])
def test_nothing_of_the_environment_runs(tmp_path: Path, name: str, question: Callable[[Path], object]) -> None:
    python = make_venv(tmp_path / "venv")
    ran = tmp_path / "ran"
    code = f"import os; open({str(ran)!r}, 'w').close(); os._exit(3)\n"
    (site_packages(python) / name).write_text(code)
    question(python)
    assert not ran.exists()
    assert not list(site_packages(python).rglob("__pycache__"))


def test_the_trap_of_the_test_above_works(tmp_path: Path) -> None:
    python = make_venv(tmp_path / "venv")
    (site_packages(python) / "evil.pth").write_text(f"import os; open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    subprocess.run([python, "-I", "-c", ""], check=True)
    assert (tmp_path / "ran").exists()


def test_a_hanging_sitecustomize_takes_no_time(tmp_path: Path) -> None:
    python = make_venv(tmp_path / "venv")
    (site_packages(python) / "sitecustomize.py").write_text("import time; time.sleep(3600)\n")
    assert layout_of(python).is_venv


def test_an_editable_install_by_path_is_on_the_path(tmp_path: Path) -> None:
    python = make_venv(tmp_path / "venv")
    (tmp_path / "project" / "src").mkdir(parents=True)
    (site_packages(python) / "__editable__.mine-1.0.pth").write_text(f"{tmp_path}/project/src\n")
    assert layout_of(python).path[-1] == str((tmp_path / "project" / "src").resolve())


def _script(text: str, name: str, mode: int = 0o755) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / name).write_text(text)
        (folder / name).chmod(mode)
        return folder / name

    return make


def _dangling(folder: Path) -> Path:
    (folder / "python").symlink_to("python3")
    (folder / "python3").symlink_to(folder / "gone" / "bin" / "python3.11")
    return folder / "python"


def _loop(folder: Path) -> Path:
    (folder / "python").symlink_to("python")
    return folder / "python"


_WITHOUT_LIBRARY = """#!/bin/sh
cat >&2 <<END
Python path configuration:
  PYTHONHOME = (not set)
Fatal Python error: init_fs_encoding: failed to get the Python codec of the filesystem encoding
Python runtime state: core initialized
ModuleNotFoundError: No module named 'encodings'

Current thread 0x00007f (most recent call first):
  <no Python frame>
END
exit 1
"""


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (_dangling, EnvironmentFault, "its base Python {}/gone/bin/python3.11 is gone: make the venv anew"),
        (_loop, EnvironmentFault, "does not start"),
        (_script("#!/bin/sh\nexit 3\n", "python"), EnvironmentFault, "exit code 3, 'no word'"),
        (_script("#!/bin/sh\nexit 3\n", "tool"), UsageError, "is not a Python: exit code 3, 'no word'"),
        (_script("#!/bin/sh\nkill -SEGV $$\n", "python3.12"), EnvironmentFault, "killed by SIGSEGV"),
        (_script("#!/bin/sh\necho hello\n", "python"), EnvironmentFault, "exit code 0, 'hello'"),
        (_script("#!/bin/sh\necho '[1]'\n", "python"), EnvironmentFault, "exit code 0, '[1]'"),
        (_script("#!/bin/sh\necho '{{}}'\n", "python"), EnvironmentFault, "exit code 0"),
        (_script("#!/bin/sh\necho '{}'\n", "python"), EnvironmentFault, "it answers '{{}}'"),
        (_script("#!/bin/sh\necho 3; echo oh >&2\n", "x"), UsageError, "is not a Python: exit code 0, 'oh'"),
        (_script("#!/bin/sh\necho 'Fatal Python error: x' >&2; exit 1\n", "x"), EnvironmentFault, "Fatal Python error"),
        (
            _script(_WITHOUT_LIBRARY, "python"),
            EnvironmentFault,
            "does not find its standard library: make the venv anew",
        ),
        (_script("#!/no/such/shell\n", "python"), EnvironmentFault, "the program that its #! line"),
        (_script("?", "python"), EnvironmentFault, "Exec format error"),
        (_script("?", "notes.txt"), UsageError, "is not a Python: Exec format error"),
        (_script("root:x:0\n", "passwd", 0o644), UsageError, "is not a Python: the file may not be executed"),
        (_script("x\n", "python", 0o644), EnvironmentFault, "the file may not be executed"),
        (lambda folder: folder, UsageError, "is a folder, not a Python"),
        (lambda folder: folder / "nothing", UsageError, "{}/nothing is not a Python: no such file"),
        (lambda folder: folder / "python", EnvironmentFault, "{}/python does not start as a Python: no such file"),
        (lambda folder: _script("", "file")(folder) / "x", UsageError, "no such file"),
        (lambda _: Path("/bin/false"), UsageError, "/bin/false is not a Python: exit code 1"),
        (lambda _: Path("/bin/cat"), UsageError, "/bin/cat is not a Python: exit code 1"),
    ],
)
def test_what_does_not_answer_is_told_in_one_line(
    tmp_path: Path, make: Callable[[Path], Path], kind: type[HarnessError], words: str
) -> None:
    python = make(tmp_path)
    with pytest.raises(kind) as error:
        layout_of(python)
    assert words.format(tmp_path) in str(error.value)
    assert str(python) in str(error.value)
    assert "\n" not in str(error.value)
