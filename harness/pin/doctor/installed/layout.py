"""Where a Python keeps what is installed: asked of the Python itself, started alone."""

from __future__ import annotations

from pathlib import Path

from harness.pin.doctor.installed.installation import Layout
from harness.pin.interpreter import answer_of

_QUESTION = """
import json, os, platform, site, sys, sysconfig
base = getattr(sys, "base_prefix", sys.prefix)
folders = getattr(site, "getsitepackages", list)()
# -I leaves the user's own folder out; the Python would have it unless it is a virtual environment closed to it.
if base in getattr(site, "PREFIXES", [base]):
    folders = [site.getusersitepackages()] + folders
print(json.dumps({
    "version": platform.python_version(),
    "prefix": sys.prefix,
    "base_prefix": base,
    "purelib": sysconfig.get_path("purelib"),
    "platlib": sysconfig.get_path("platlib"),
    "stdlib": sysconfig.get_path("stdlib"),
    "path": [os.path.abspath(entry) for entry in sys.path],
    "folders": folders,
}))
"""


def ask(python: Path) -> Layout:
    """The layout of ``python``. Raises EnvironmentFault where it does not start."""
    answer = answer_of(python, _QUESTION)
    purelib, platlib, stdlib = (_real(answer[name]) for name in ("purelib", "platlib", "stdlib"))
    path = tuple(_real(entry) for entry in answer["path"])
    folders = [_real(folder) for folder in answer["folders"]]
    others = [folder for folder in folders if _holds(folder, ".dist-info", ".egg-info")]
    # What a .pth file has put on the path may be a folder of sources, with an egg-info: that is nobody's site.
    others += [entry for entry in path if entry != stdlib and _holds(entry, ".dist-info")]
    return Layout(
        python=Path(python).absolute(),
        version=answer["version"],
        prefix=_real(answer["prefix"]),
        base_prefix=_real(answer["base_prefix"]),
        sites=tuple(dict.fromkeys([purelib, platlib, *others])),
        purelib=purelib,
        platlib=platlib,
        stdlib=stdlib,
        path=path,
    )


def _real(path: str) -> str:
    return str(Path(path).resolve())


def _holds(folder: str, *endings: str) -> bool:
    """Whether ``folder`` is there and has the metadata of an installed distribution in it."""
    try:
        return any(entry.name.endswith(endings) for entry in Path(folder).iterdir())
    except OSError:  # not there, a zip, or closed to us: nothing that could be read as a site
        return False
