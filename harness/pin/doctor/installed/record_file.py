"""RECORD: which files a distribution says are its own. The text is anybody's, so nothing in it is trusted.

Format: https://packaging.python.org/specifications/recording-installed-packages/#the-record-file
"""

from __future__ import annotations

import base64
import codecs
import csv
import io
import os
from collections.abc import Iterator
from typing import NamedTuple

from harness.pin.doctor.installed.installation import Claim

_OTHER_ALPHABET = str.maketrans("+/", "-_", "=")
_HEX_DIGITS = {"sha256": 64, "sha384": 96, "sha512": 128}


class Record(NamedTuple):
    """A RECORD, read."""

    claims: tuple[Claim, ...]  # one for each path
    outside: tuple[str, ...]  # rows whose path leaves ``root``, as written
    problems: tuple[str, ...]


def parse_record(data: bytes, site: str, root: str) -> Record:
    """The rows of a RECORD in a dist-info of ``site``, whose files may be anywhere under ``site`` or ``root``.

    Both folders are absolute and normalised. No file is looked at. A row that cannot be read is counted in the
    problems, never an error.
    """
    text, problems = _decoded(data)
    claims: dict[str, Claim] = {}
    outside: dict[str, None] = {}
    inside = (f"{site}/", f"{root.rstrip('/')}/")
    bad = contradicting = 0
    for row in _rows(text, problems):
        if not row or not row[0] or "\0" in row[0]:
            bad += bool(row)
            continue
        path = os.path.normpath(row[0] if row[0].startswith("/") else f"{site}/{row[0]}")
        if not path.startswith(inside):
            outside[row[0]] = None
            continue
        claim = _claim(path, row)
        if claim is None:
            bad += 1
            claim = Claim(path, "", "", None)
        contradicting += claims.setdefault(path, claim) != claim
    if bad:
        problems.append(f"RECORD has {bad} row(s) that cannot be read")
    if contradicting:
        problems.append(f"RECORD says two things of {contradicting} file(s): the first was taken")
    return Record(tuple(claims.values()), tuple(outside), tuple(problems))


def _decoded(data: bytes) -> tuple[str, list[str]]:
    """The text, and what is odd about its encoding."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", errors="replace"), ["RECORD is not UTF-8: read as UTF-16"]
    try:
        return data.decode("utf-8-sig"), []
    except UnicodeDecodeError:
        return data.decode("latin-1"), ["RECORD is not UTF-8: read as Latin-1"]


def _rows(text: str, problems: list[str]) -> Iterator[list[str]]:
    try:
        yield from csv.reader(io.StringIO(text, newline=""))
    except csv.Error as error:
        problems.append(f"RECORD cannot be read to its end: {error}")


def _claim(path: str, row: list[str]) -> Claim | None:
    """The claim of a row; None where its hash or size is none."""
    algorithm, _, digest = row[1].partition("=") if len(row) > 1 else ("", "", "")
    size = row[2] if len(row) > 2 else ""
    if bool(algorithm) != bool(digest) or (size and not (size.isdecimal() and len(size) < 20)):
        return None
    algorithm = algorithm.lower()
    if "=" in digest or "+" in digest or "/" in digest or len(digest) == _HEX_DIGITS.get(algorithm):
        digest = _respelled(digest)
    return Claim(path, algorithm, digest, int(size) if size else None)


def _respelled(digest: str) -> str:
    """As a RECORD should spell it: some installers write hexadecimal digits, the standard alphabet or padding."""
    try:
        return base64.urlsafe_b64encode(bytes.fromhex(digest)).rstrip(b"=").decode()
    except ValueError:
        return digest.translate(_OTHER_ALPHABET)
