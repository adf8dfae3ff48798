"""Wheels put into a folder without an installer: a hundred states in the time that pip takes for one."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.pin.doctor.installed.installation import Installation, Layout
from harness.pin.doctor.installed.read import read
from tests.pin.doctor.wheels import make_wheel

TRACE = "torch/fx/_symbolic_trace.py"
FRAME = "torch/_dynamo/eval_frame.py"

# As torch 2.13 has it.
TRACE_TEXT = b"""_is_fx_tracing_flag = False


def is_fx_symbolic_tracing() -> bool:
    return _is_fx_tracing_flag and not torch.compiler.is_compiling()
"""
FRAME_TEXT = b"""        is_fx_symbolic_tracing = torch.fx._symbolic_trace.is_fx_symbolic_tracing

        def compile_wrapper(*args, **kwargs):
            if is_fx_symbolic_tracing() and not config.force_compile_during_fx_trace:
                raise RuntimeError("Detected that you are using FX to symbolically trace")
"""


def torch_files(build: str) -> dict[str, bytes]:
    """What the doctor reads of torch: ``build`` is "2.14.1+cu130"; without a local part it is PyPI's CUDA 13.0."""
    local = build.partition("+")[2] or "cu130"
    cuda = f"'{local[2:-1]}.{local[-1]}'" if local.startswith("cu") else "None"
    version = f"from typing import Optional\n__version__ = '{build}'\ncuda: Optional[str] = {cuda}\n".encode()
    return {"torch/version.py": version, TRACE: TRACE_TEXT, FRAME: FRAME_TEXT}


def place(
    site: Path,
    name: str,
    version: str,
    files: Mapping[str, bytes] = {},
    requires: Sequence[str] = (),
) -> None:
    """A wheel of ``name``, made and unpacked into ``site``; of torch also the files that tell its build."""
    site.mkdir(parents=True, exist_ok=True)
    own = {**(torch_files(version) if name == "torch" else {}), **files}
    wheel = make_wheel(site.parent, name, version, own, requires)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    wheel.unlink()


def reading(*sites: Path, version: str = "3.11.7") -> Installation:
    """What is in ``sites``, as the doctor reads it."""
    folders = tuple(str(site.resolve()) for site in sites)
    prefix = str(sites[0].resolve().parent)
    layout = Layout(
        python=Path(prefix, "bin/python"),
        version=version,
        prefix=prefix,
        base_prefix="/usr",
        sites=folders,
        purelib=folders[0],
        platlib=folders[-1],
        stdlib="/usr/lib/python3.11",
        path=folders,
    )
    return read(layout)
