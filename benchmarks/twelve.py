"""Twelve broken environments, and what four tools say of each: ``python -m benchmarks.twelve`` writes the table.

Every answer in docs/doctor-table.md is a tool's own, run here. A tool has found a break where it answers otherwise
than on the healthy environment.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.findings import Finding
from harness.pin import venvs
from harness.pin.doctor.case import Question
from harness.pin.doctor.diagnose import diagnose
from harness.pin.doctor.examine import examine
from harness.pin.doctor.mending import mend
from harness.pin.environments import RUNNING, environment, lock_for
from harness.places import places
from tests.pin.doctor.locked import Locked, build, download, only_from
from tests.pin.doctor.placed import TRACE, torch_files
from tests.pin.doctor.wheels import install, make_wheel, pip

TABLE = places().root / "docs" / "doctor-table.md"
NCCL = "nvidia/nccl/lib/libnccl.so.2"

HEAD = """\
# What four tools say of twelve broken environments

Each row is one environment, installed by uv from a hashed lock and then broken as the first column says. The answers
are the tools' own: the command below breaks, asks and writes this file. A tool that gives the same answer as on the
healthy environment has not found the break, and its cell is a dash.

    python3 noxfile.py -s bench -- twelve

`pip check` and `uv pip check` compare names and versions with what the packages ask for; `uv pip sync --dry-run`
compares them with the lock. None of the three reads an installed file. Of the doctor's findings the two worst are
shown. The last column is the environment after `harness doctor --fix`, with `--remove` for what the lock does not
have: examined again it is healthy, or the command for what is left, which no package owns.

"""


@dataclass(frozen=True)
class Wheels:
    """What the environments are made of: real wheels where one is small, and small ones with the real paths."""

    torch: Path
    nccl13: Path
    nccl12: Path
    triton: Path
    other_triton: Path
    other_build: Path
    sglang: Path
    markupsafe: Path

    @property
    def locked(self) -> tuple[Path, ...]:
        return self.torch, self.nccl13, self.triton, self.markupsafe


def make_wheels(folder: Path) -> Wheels:
    for name in ("good", "bad"):
        (folder / name).mkdir()
    good, bad = folder / "good", folder / "bad"
    where = places()
    pins = {pin.name: pin.version for pin in lock_for(environment("dev", where), RUNNING, where).pins}
    requires = ("nvidia-nccl-cu13==2.28.9", "triton==3.6.0")
    torch = {**torch_files("2.11.0+cu130"), "torch/__init__.py": b"", "torch/lib/libtorch.so": bytes(5000)}
    other = {**torch_files("2.11.0+cu128"), "torch/__init__.py": b"", "torch/lib/libtorch.so": bytes(4000)}
    return Wheels(
        torch=make_wheel(good, "torch", "2.11.0+cu130", torch, requires),
        nccl13=make_wheel(good, "nvidia-nccl-cu13", "2.28.9", {NCCL: b"2.28.9"}),
        nccl12=make_wheel(bad, "nvidia-nccl-cu12", "2.27.5", {NCCL: b"2.27.5"}),
        triton=make_wheel(good, "triton", "3.6.0", {"triton/__init__.py": b"__version__ = '3.6.0'\n"}),
        other_triton=make_wheel(bad, "triton", "3.5.1", {"triton/__init__.py": b"__version__ = '3.5.1'\n"}),
        other_build=make_wheel(bad, "torch", "2.11.0+cu128", other, requires),
        sglang=make_wheel(bad, "sglang", "0.5.5", {"sglang/__init__.py": b""}),
        markupsafe=download(good, f"markupsafe=={pins['markupsafe']}")[0],
    )


@dataclass(frozen=True)
class Patient:
    """One environment under the four tools."""

    env: Locked
    wheels: Wheels
    variables: Mapping[str, str]  # beside the usual ones: of who works in the environment

    def question(self) -> Question:
        return Question(self.env.python, self.env.lock, None, "", "harness doctor ENV", self.variables, "/")

    def ask(self, *command: str | Path) -> str:
        """What a tool answers: its exit code where it is not 0, and its words on one line."""
        environ = {**os.environ, **self.variables}
        words = [str(word) for word in command]
        done = subprocess.run(words, env=environ, capture_output=True, text=True, check=False)
        lines = [_plain(line) for line in (done.stdout + done.stderr).splitlines() if not _is_noise(line)]
        said = "<br>".join(dict.fromkeys(filter(None, lines)))
        return said if done.returncode == 0 else f"exit {done.returncode}: {said}"

    def answers(self) -> dict[str, str]:
        """Tool -> answer."""
        uv, python = self.env.uv, self.env.python
        pip_check = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", "check")
        return {
            "pip check": self.ask(*pip_check),
            "uv pip check": self.ask(uv, "pip", "check", "--python", python),
            "uv pip sync --dry-run": self.ask(uv, "pip", "sync", "--dry-run", "--python", python, self.env.lock.path),
            "harness doctor": told(self.serious()),
        }

    def mended(self) -> str:
        """What the doctor says after ``--fix``."""
        found = examine(self.question(), self.env.where)
        extras = [f.subject for f in found.diagnosis.findings if f.kind == "lock.extra" and f.severity != "note"]
        plan = mend.plan(found.case, found.diagnosis.findings, extras)
        if plan.steps:
            mend.carry_out(plan, found.case, self.env.uv, lambda _: None)
        left = (f"`{finding.fix}`" if finding.fix else finding.summary for finding in self.serious())
        return "<br>".join(dict.fromkeys(left)) or "healthy"

    def serious(self) -> list[Finding]:
        found = diagnose(self.question(), self.env.where).findings
        return [finding for finding in found if finding.severity != "note"]


def _is_noise(line: str) -> bool:
    """Progress, times and advice, which differ from run to run."""
    return line.startswith(("Using ", "Resolved ", "Checked ", "Would download", "warning: "))


def _plain(line: str) -> str:
    """Without where on this machine a wheel was."""
    return re.sub(r" \(from file:[^)]*\)", "", line).strip()


def told(findings: Sequence[Finding]) -> str:
    more = f"<br>and {len(findings) - 2} more" if len(findings) > 2 else ""
    return "<br>".join(f"**{finding.severity}** {finding.summary}" for finding in findings[:2]) + more


def edited(env: Locked, _: Wheels) -> None:
    path = env.site / TRACE
    text = path.read_text()
    path.write_text(text.replace("return _is_fx_tracing_flag and", "return False and"))


def truncated(env: Locked, _: Wheels) -> None:
    (library,) = (env.site / "markupsafe").glob("_speedups*.so")
    os.truncate(library, library.stat().st_size // 2)


def lost(env: Locked, wheels: Wheels) -> None:
    install(env.python, wheels.nccl12)
    pip(env.python, "uninstall", "--yes", "--quiet", "nvidia-nccl-cu12")


def duplicate(env: Locked, _: Wheels) -> None:
    old = env.site / "triton-3.5.1.dist-info"
    shutil.copytree(env.site / "triton-3.6.0.dist-info", old)
    for name in ("METADATA", "RECORD"):
        (old / name).write_text((old / name).read_text().replace("3.6.0", "3.5.1"))


def shadowed(env: Locked, _: Wheels) -> dict[str, str]:
    package = env.prefix.parent / "work" / "triton"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("__version__ = 'somebody's own'\n")
    return {"PYTHONPATH": str(package.parent)}


def stale_path(env: Locked, _: Wheels) -> None:
    (env.site / "my-project.pth").write_text("/home/me/a-project-that-moved\n")


def left_over(env: Locked, _: Wheels) -> None:
    shutil.copytree(env.site / "torch", env.site / "~orch")
    shutil.copytree(env.site / "torch-2.11.0+cu130.dist-info", env.site / "~orch-2.11.0+cu130.dist-info")


BREAKS: dict[str, Callable[[Locked, Wheels], Mapping[str, str] | None]] = {
    "a library is deleted: `torch/lib/libtorch.so`": lambda env, _: (env.site / "torch/lib/libtorch.so").unlink(),
    "torch's source is edited: the check for FX tracing is patched away": edited,
    "nvidia-nccl-cu12 is installed over the locked nvidia-nccl-cu13": lambda env, w: install(env.python, w.nccl12),
    "the same, and nvidia-nccl-cu12 is uninstalled again": lost,
    "sglang is installed, which nobody locked": lambda env, w: install(env.python, w.sglang),
    "triton is at another version": lambda env, w: install(env.python, w.other_triton),
    "torch is the build for another CUDA": lambda env, w: install(env.python, w.other_build),
    "a compiled module is cut off half-way: `markupsafe/_speedups*.so`": truncated,
    "a `.pth` file names a folder that is gone": stale_path,
    "an interrupted pip left `~orch` behind": left_over,
    "a second dist-info of triton is there": duplicate,
    "a folder `triton` on PYTHONPATH hides the installed one": shadowed,
}


def row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def table(folder: Path, wheels: Wheels, uv: Path) -> str:
    """The table, in Markdown."""
    healthy = Patient(build(folder / "healthy", uv, wheels.locked), wheels, {}).answers()
    tools = list(healthy)
    found = dict.fromkeys(tools, 0)
    rows = [row("the break", *(f"`{tool}`" for tool in tools), "after `--fix`"), row(*["---"] * (len(tools) + 2))]
    rows.append(row("none", *(healthy[tool] or "nothing" for tool in tools), ""))
    for number, (name, break_it) in enumerate(BREAKS.items()):
        env = build(folder / str(number), uv, wheels.locked)
        patient = Patient(env, wheels, break_it(env, wheels) or {})
        answers = patient.answers()
        found = {tool: found[tool] + (answers[tool] != healthy[tool]) for tool in tools}
        told_apart = (answers[tool] if answers[tool] != healthy[tool] else "-" for tool in tools)
        said = row(name, *told_apart, patient.mended())
        rows.append(said.replace(str(env.prefix), "ENV").replace(str(env.prefix.parent), "..."))
    rows.append(row("found", *(f"{found[tool]} of {len(BREAKS)}" for tool in tools), ""))
    return "\n".join(rows)


def main() -> None:
    """Break, ask, write docs/doctor-table.md."""
    uv = venvs.find_uv(places())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        wheels = make_wheels(folder)
        index = folder / "index"
        index.mkdir()
        for wheel in wheels.locked:
            shutil.copy(wheel, index)
        os.environ.update(only_from(index, folder / "cache"), UV_FIND_LINKS=str(index))
        rows = table(folder, wheels, uv)
        asked = ((sys.executable, "-m", "pip", "--version"), (str(uv), "--version"))
        versions = [" ".join(subprocess.check_output(command, text=True).split()[:2]) for command in asked]
    tools = f"{', '.join(versions)} and Python {sys.version.split()[0]}"
    TABLE.write_text(f"{HEAD}{rows}\n\nWith {tools}.\n", encoding="utf-8")
    print(TABLE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
