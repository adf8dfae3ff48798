"""Scripts whose first line was rewritten: a moved environment names another Python there, and means no harm."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from configparser import ConfigParser
from configparser import Error as ConfigError
from pathlib import Path

from harness.pin.doctor.case import Case
from harness.pin.doctor.installed.digests import ALGORITHMS, spelled
from harness.pin.doctor.installed.installation import Claim, Distribution

_LARGEST = 1 << 20

_LAUNCHER = re.compile(rb"#!/bin/sh\n'''exec' [^\n]*\n' '''\n|#![^\n]*\n")
"""The first line; or the three by which pip and uv start a Python whose path is long, has a space, or is looked up."""

_GENERATED = re.compile(
    r"""\#\ -\*-\ coding:\ utf-8\ -\*- | import\ re | import\ sys | if\ __name__\ ==\ ['"]__main__['"]:
    | \s*sys\.argv\[0\]\ =\ re\.sub\(r(['"])\(-script\\\.pyw\??\|\\\.exe\)\?\$\1,\ (['"])\2,\ sys\.argv\[0\]\)
    | \s*(el)?if\ sys\.argv\[0\]\.endswith\(['"](-script\.pyw|\.exe)['"]\):
    | \s*sys\.argv\[0\]\ =\ sys\.argv\[0\](\[:-\d+\]|\.removesuffix\(['"]\.exe['"]\))""",
    re.VERBOSE,
)
"""The lines of a script that pip, uv or distlib makes for an entry point, but for the import and the call."""


def only_launcher_differs(case: Case, distribution: Distribution, claim: Claim) -> bool:
    """Whether the claimed file is a script whose bytes after the launcher are proven to be the installed ones.

    Proven: with a launcher that an installer could have written there, the digest is RECORD's; or all of it is
    what installers generate for an entry point of the distribution with the script's name.
    """
    path = Path(claim.path)
    if path.parent.name != "bin" or claim.algorithm not in ALGORITHMS:
        return False
    try:
        if not path.is_file() or path.stat().st_size > _LARGEST:
            return False
        data = path.read_bytes()
    except OSError:
        return False
    launcher = _LAUNCHER.match(data)
    if launcher is None:
        return False
    body = data[launcher.end() :]
    restored = any(
        spelled(hashlib.new(claim.algorithm, first + body).digest()) == claim.digest for first in _launchers(case)
    )
    return restored or _is_generated(body.decode("utf-8", "replace"), path.name, distribution)


def _launchers(case: Case) -> Iterator[bytes]:
    layout = case.installation.layout
    major, minor = layout.version.split(".")[:2]
    names = ("python", f"python{major}", f"python{major}.{minor}")
    paths = [f"{layout.prefix}/bin/{name}" for name in names]
    paths += [str(layout.python), f"{layout.python.parent.resolve()}/{layout.python.name}"]
    for path in dict.fromkeys(paths):
        yield f"#!{path}\n".encode()
        yield f"#!/bin/sh\n'''exec' {path} \"$0\" \"$@\"\n' '''\n".encode()
        yield f"#!/bin/sh\n'''exec' \"{path}\" \"$0\" \"$@\"\n' '''\n".encode()
    for name in names:
        yield f"#!{name}\n".encode()  # as a wheel has it
        yield f"#!/usr/bin/env {name}\n".encode()
        relative = f'"$(dirname -- "$(realpath -- "$0")")"/\'{name}\''
        yield f"#!/bin/sh\n'''exec' {relative} \"$0\" \"$@\"\n' '''\n".encode()


def _is_generated(body: str, name: str, distribution: Distribution) -> bool:
    entry = _entry_points(distribution).get(name)
    if entry is None:
        return False
    module, _, function = entry.partition("[")[0].replace(" ", "").partition(":")
    own = (f"from {module} import {function.split('.')[0]}", f"sys.exit({function}())")
    lines = [line for line in body.splitlines() if line.strip()]
    return all(line.strip() in own or _GENERATED.fullmatch(line) for line in lines) and len(lines) >= len(own)


def _entry_points(distribution: Distribution) -> dict[str, str]:
    """The scripts that the distribution asks for; none where its file cannot be read."""
    parser = ConfigParser(delimiters=("=",), interpolation=None)
    parser.optionxform = str  # type: ignore[method-assign,assignment]
    try:
        parser.read_string(Path(distribution.info, "entry_points.txt").read_text(encoding="utf-8"))
    except (OSError, ValueError, ConfigError):
        return {}
    sections = ("console_scripts", "gui_scripts")
    return {name: entry for s in sections if parser.has_section(s) for name, entry in parser.items(s)}
