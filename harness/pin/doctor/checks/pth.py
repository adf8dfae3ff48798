"""The ``.pth`` files: what the site module puts on the path, and the code that it runs, at every start.

Format: https://docs.python.org/3/library/site.html
"""

from __future__ import annotations

import ast
import os
import re
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from harness.findings import Evidence, Finding, Severity
from harness.pin.doctor.case import Case
from harness.pin.doctor.installed.installation import Layout
from harness.pin.doctor.spelling import printable, quoted

_KNOWN = re.compile(
    r"distutils-precedence|_virtualenv|__editable__.*|a1_coverage|coverage.*|matplotlib.*|.*nspkg|easy-install|setuptools"
)
"""The files with code that installers, coverage and namespace packages write, often without a row in a RECORD."""

_HIDES = re.compile(r"\b(exec|eval|compile|subprocess|system|popen|spawn\w*|b64decode)\b")
"""What no tool that stays in its own module needs in such a line."""

_LONGEST = 1 << 20
_NOT_PYTHON = (SyntaxError, ValueError, RecursionError, MemoryError)


class Line(NamedTuple):
    """One line that the site module acts on."""

    file: str
    number: int
    text: str

    @property
    def is_code(self) -> bool:
        return self.text.startswith(("import ", "import\t"))


def check(case: Case) -> Iterator[Finding]:
    """python.pth."""
    for site, file in _read_at_start(case):
        yield from _of_file(case, site, file)


def told_of(case: Case) -> frozenset[str]:
    """The files that a finding here or of ``against_lock`` names with a mend: one file is mended once."""
    wrong = {file for site, file in _read_at_start(case) if any(_of_file(case, site, file))}
    return frozenset(wrong | _adding_strangers(case))


def _adding_strangers(case: Case) -> set[str]:
    """The files that put a site with distributions on the path that the lock lacks."""
    if case.lock is None:
        return set()
    strangers = (d for name, d in case.installation.by_name.items() if name not in case.pins and not case.is_here(d))
    return {file for site in {d.site for d in strangers} if (file := adding(case, site))}


def _read_at_start(case: Case) -> Iterator[tuple[str, str]]:
    """Each site and each file in it that the site module reads; it looks for none where another file leads."""
    layout = case.installation.layout
    for site in layout.sites:
        if site in (layout.purelib, layout.platlib) or site.endswith(("/site-packages", "/dist-packages")):
            yield from ((site, file) for file in _files(case, site))


def _of_file(case: Case, site: str, file: str) -> Iterator[Finding]:
    """Up to two findings, with one mend: the second of two would find the file changed."""
    lines = list(_lines(file))
    missing = _missing(site, lines)
    stale = _stale(case, site, file, lines, missing)
    code = _code(case, file, [line for line in lines if line.is_code])
    partly = missing and len(missing) < len(lines) and code is None and file not in _adding_strangers(case)
    fix = _mend(case, file, missing if partly else [])
    yield from (replace(finding, fix=fix) for finding in (stale, code) if finding is not None)


def _mend(case: Case, file: str, lines: list[Line]) -> str:
    """What has an owner is put back, or goes with it; of what nobody has, ``lines`` go, or the whole file."""
    if owner := _owner(case, file):
        unlocked = case.lock is not None or case.installation.by_name[owner].editable
        return case.uninstall(owner) if unlocked and owner not in case.pins else case.reinstall(owner)
    if lines:
        return f"sed -i '{';'.join(f'{line.number}d' for line in lines)}' {quoted([file])}"
    return f"mv {quoted([file])} {quoted([f'{file}.off'])}"


def adding(case: Case, folder: str) -> str | None:
    """The file that puts ``folder`` on the path."""
    for site in case.installation.layout.sites:
        for line in (line for file in _files(case, site) for line in _lines(file)):
            if not line.is_code and os.path.realpath(os.path.join(site, line.text)) == folder:  # noqa: PTH118
                return line.file
    return None


def _files(case: Case, site: str) -> list[str]:
    """As the site module finds them: in the folder itself, the hidden ones left out, by name."""
    here = (path for path in case.installation.files if path.endswith(".pth") and path.rpartition("/")[0] == site)
    return sorted(path for path in here if not path.rpartition("/")[2].startswith("."))


def _lines(file: str) -> Iterator[Line]:
    try:
        with open(file, "rb", opener=_without_waiting) as opened:
            text = opened.read(_LONGEST).decode("utf-8-sig", errors="surrogateescape")
    except OSError:  # not to be opened: the check of the bytes names it
        return
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip() and not line.startswith("#") and "\0" not in line:
            yield Line(file, number, line.rstrip())


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _missing(site: str, lines: list[Line]) -> list[Line]:
    """Those that name a folder that is not there."""
    return [line for line in lines if not line.is_code and not _exists(os.path.join(site, line.text))]  # noqa: PTH118


def _stale(case: Case, site: str, file: str, lines: list[Line], missing: list[Line]) -> Finding | None:
    """Folders that are named and not there; also those that the finder of an editable install maps names to."""
    sources = [source for line in lines if line.is_code for source in _mapped(site, line) if not _exists(source)]
    if not missing and not sources:
        return None
    shown, owner = printable(case.installation.shown(file)), _owner(case, file)
    named = tuple(printable(text) for text in (*(line.text for line in missing), *sources))
    more = f" and {len(named) - 1} more" if len(named) > 1 else ""
    summary = f"{shown} puts a folder on Python's path that is not there: {named[0]}{more}"
    evidence: dict[str, Evidence] = {"file": shown, "missing": named[:20], "count": len(named)}
    return Finding("python.pth", "drift", owner or "python", summary, evidence)


def _exists(path: str) -> bool:
    try:
        return os.path.exists(path)  # noqa: PTH110 - the site module's own question
    except ValueError:  # a null byte
        return False


def _mapped(site: str, line: Line) -> Iterator[str]:
    """The sources in the finder that setuptools writes beside ``__editable__.NAME.pth``."""
    for module in _imported(line.text):
        if not module.startswith("__editable__"):
            continue
        try:
            body = _parsed(Path(site, f"{module}.py").read_bytes()).body
            values = [n.value for n in body if isinstance(n, ast.AnnAssign) and ast.unparse(n.target) == "MAPPING"]
            maps = [ast.literal_eval(value) for value in values if value]
        except (OSError, *_NOT_PYTHON):  # _code() says what is missing, the check of the bytes what was changed
            continue
        yield from (str(source) for mapping in maps if isinstance(mapping, dict) for source in mapping.values())


def _code(case: Case, file: str, lines: list[Line]) -> Finding | None:
    """Code that every start of this Python runs: whose is it, and is what it imports still there?"""
    if not lines:
        return None
    shown, owner = printable(case.installation.shown(file)), _owner(case, file)
    severity: Severity = "dangerous"
    evidence: dict[str, Evidence] = {"file": shown, "code": tuple(printable(line.text[:200]) for line in lines[:5])}
    imported = [module for line in lines for module in _imported(line.text)]
    absent = [module for module in imported if not _importable(case.installation.layout, module)]
    if absent:
        evidence["absent"] = tuple(absent)
        summary = f"{shown} runs code at every start that imports {absent[0]}, which is not installed"
    elif owner is None and not _KNOWN.fullmatch(Path(file).stem):
        summary = f"{shown} runs code at every start of Python, and no installed distribution says that it is its own"
        severity = "dangerous" if any(_HIDES.search(line.text) for line in lines) else "drift"
    else:
        return None
    return Finding("python.pth", severity, owner or "python", summary, evidence)


def _owner(case: Case, file: str) -> str | None:
    claims = case.installation.owners.get(file)
    return claims[0][0].name if claims else None


def _imported(code: str) -> list[str]:
    """The top-level modules that a line of code imports by name; none where it is not Python."""
    try:
        tree = _parsed(code)
    except _NOT_PYTHON:
        return []
    found: dict[str, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= dict.fromkeys(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found[node.module] = None
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("__import__", "importlib.import_module"):
            constants = (a.value for a in node.args[:1] if isinstance(a, ast.Constant))
            found |= dict.fromkeys(value for value in constants if isinstance(value, str))
    return list(dict.fromkeys(top for name in found if (top := name.partition(".")[0]).isidentifier()))


def _parsed(code: str | bytes) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # somebody's "\\d" is not ours to complain of
        return ast.parse(code)


def _importable(layout: Layout, module: str) -> bool:
    """Whether ``module`` is of the standard library or in a folder on the path; it is not imported."""
    if module in sys.builtin_module_names or module in sys.stdlib_module_names:
        return True
    return any(_is_module(folder, module) for folder in (*layout.sites, *layout.path))


def _is_module(folder: str, module: str) -> bool:
    """Whether ``folder`` has something that ``import module`` finds, be it a package without an ``__init__.py``."""
    place = Path(folder, module)
    return place.is_dir() or Path(f"{place}.py").is_file() or any(Path(folder).glob(f"{module}.*so"))
