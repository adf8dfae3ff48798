"""What a Python says of itself and of its paths: ``describe()``, run by that Python under -I -S -B.

Its site module would run what others have installed: the import lines of .pth files, and sitecustomize. So site's
rules (CPython 3.4 to 3.14) are followed here, and of its functions only those that compute a name are called, as each
distributor has patched them. What such code would have changed in sys.path is not seen. The syntax is Python 3.6's.
"""

import os
import site
import sys
from pathlib import Path


def _virtual_environment() -> "tuple[str, bool] | None":
    """The virtual environment that the program is in, and whether it is open to its base's packages."""
    program = Path(site.makepath(sys.executable)[0])
    for config in (program.parent / "pyvenv.cfg", program.parent.parent / "pyvenv.cfg"):
        if config.is_file():
            text = config.read_text(encoding="utf-8", errors="replace")
            pairs = [line.partition("=") for line in text.splitlines() if "=" in line]
            settings = {key.strip().lower(): value.strip().lower() for key, _, value in pairs}
            return str(program.parent.parent), settings.get("include-system-site-packages", "true") == "true"
    return None


def _search_path(sites: "list[str]") -> "list[str]":
    """sys.path as site would leave it: the first occurrence of each folder."""
    found = [site.makepath(entry)[0] for entry in sys.path]
    for folder in filter(os.path.isdir, sites):
        found.append(site.makepath(folder)[0])
        for pth in _pth_files(Path(folder)):
            found += _folders_of(pth)
    return list(dict.fromkeys(found))


def _pth_files(folder: Path) -> "list[Path]":
    try:
        found = sorted(path for path in folder.iterdir() if path.name.endswith(".pth"))
    except OSError:
        return []
    # Since gh-113659 a hidden one does not count.
    since = {(3, 8): 19, (3, 9): 19, (3, 10): 14, (3, 11): 8, (3, 12): 2}
    hidden_count = sys.version_info < (3, 13) and sys.version_info[2] < since.get(sys.version_info[:2], sys.maxsize)
    return [path for path in found if hidden_count or not path.name.startswith(".")]


def _folders_of(pth: Path) -> "list[str]":
    """What the path lines of a .pth file name, as far as it exists."""
    try:
        content = pth.read_bytes()
    except OSError:
        return []
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode(sys.getfilesystemencoding(), "surrogateescape")
    lines = [line.rstrip() for line in text.splitlines() if not line.startswith(("#", "import ", "import\t"))]
    entries = [site.makepath(str(pth.parent), line)[0] for line in lines if line and "\0" not in line]
    return list(filter(os.path.exists, entries))  # unlike pathlib's it says no where it may not look


def describe() -> "dict[str, object]":
    """All that is asked. Sets sys.prefix as site would; sysconfig, which reads it once, must not be imported yet."""
    environment = _virtual_environment()
    base = [sys.base_prefix, sys.base_exec_prefix]
    prefixes = base
    if environment is not None:
        sys.prefix = sys.exec_prefix = environment[0]
        prefixes = [environment[0], *(base if environment[1] else [])]
    import platform
    import sysconfig

    sites = site.getsitepackages(prefixes)
    # -I leaves the user's own folder out; the Python would have it unless it is a virtual environment closed to it.
    own = [site.getusersitepackages()] if sys.base_prefix in prefixes else []
    return {
        "version": platform.python_version(),
        "implementation": platform.python_implementation(),
        "compiler": platform.python_compiler(),
        "prefix": sys.prefix,
        "base_prefix": sys.base_prefix,
        "purelib": sysconfig.get_path("purelib"),
        "platlib": sysconfig.get_path("platlib"),
        "stdlib": sysconfig.get_path("stdlib"),
        "path": _search_path(sites),
        "folders": own + sites,
    }
