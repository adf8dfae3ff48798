"""RECORD: which files a distribution says are its own. The text is anybody's, so nothing in it is trusted.

Format: https://packaging.python.org/specifications/recording-installed-packages/#the-record-file
"""

from __future__ import annotations

import base64
import codecs
import csv
import io
import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from harness.pin.doctor.installation import Claim

_OTHER_ALPHABET = str.maketrans("+/", "-_", "=")
_SPELLED = re.compile(r"[A-Za-z0-9_-]+")
_HEX_DIGITS = {"sha256": 64, "sha384": 96, "sha512": 128}
_SIZE = re.compile(r"[0-9]{1,19}")


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
    bad = contradicting = 0
    for row in _rows(text, problems):
        if not row or not row[0] or "\0" in row[0]:
            bad += bool(row)
            continue
        path = _absolute(row[0], site)
        if not _is_under(path, site) and not _is_under(path, root):
            outside[row[0]] = None
            continue
        claim = _claim(path, row)
        bad += claim is None
        claim = claim or Claim(path, "", "", None)
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


def _absolute(path: str, site: str) -> str:
    return os.path.normpath(path if path.startswith("/") else f"{site}/{path}")


def _is_under(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/")


def _claim(path: str, row: list[str]) -> Claim | None:
    """The claim of a row; None where its hash or size is none."""
    algorithm, _, digest = row[1].partition("=") if len(row) > 1 else ("", "", "")
    size = row[2] if len(row) > 2 else ""
    if bool(algorithm) != bool(digest) or (size and not _SIZE.fullmatch(size)):
        return None
    algorithm = algorithm.lower()
    if len(digest) == _HEX_DIGITS.get(algorithm) or (digest and not _SPELLED.fullmatch(digest)):
        digest = _respelled(digest)
    return Claim(path, algorithm, digest, int(size) if size else None)


def _respelled(digest: str) -> str:
    """As a RECORD should spell it: some installers write hexadecimal digits, the standard alphabet or padding."""
    try:
        return base64.urlsafe_b64encode(bytes.fromhex(digest)).rstrip(b"=").decode()
    except ValueError:
        return digest.translate(_OTHER_ALPHABET)
