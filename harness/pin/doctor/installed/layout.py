"""Where a Python keeps what is installed: asked of the Python itself, started alone."""

from __future__ import annotations

from pathlib import Path

from harness.pin.doctor.installed.installation import Layout
from harness.pin.interpreter import describe


def ask(python: Path) -> Layout:
    """The layout of ``python``. Raises EnvironmentFault where it does not start, UsageError for what is no Python."""
    answer = describe(python)
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
