"""Which file on the index an installed distribution came from, proven by the bytes of every file of it."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from harness.pin.doctor.installed.installation import Distribution, Layout
from harness.pin.freeze.listing import Listing, Wheel, likeliest
from harness.pin.freeze.ranges import WHOLE_LIMIT, RangeFile
from harness.pin.freeze.scheme import Scheme, claims, is_bytecode, is_installers, scheme
from harness.pin.freeze.shebang import after_placeholder, original_start
from harness.pin.indexes import IndexSettings, host, local_path, opened

Digests = Mapping[tuple[str, str], str]
"""(path, algorithm) -> the digest of the bytes on disk, spelled as in a RECORD."""


@dataclass(frozen=True)
class Match:
    """What the index has for a distribution."""

    wheel: Wheel | None = None  # proven to be what is installed, its hash with it
    why: str = ""  # why there is none, for a person
    differing: tuple[str, ...] = ()  # against the likeliest wheel, paths from the environment's root
    unreached: bool = False  # a place that may have it did not answer


_ALGORITHMS = frozenset(name for name in hashlib.algorithms_guaranteed if not name.startswith("shake"))


class _Row(NamedTuple):
    """What a wheel says of a member."""

    algorithm: str
    digest: str


def match(distribution: Distribution, layout: Layout, listing: Listing, digests: Digests) -> Match:
    """The wheel whose every file is installed unchanged, and whose distribution has no file beside them."""
    wheels = listing.wheels(distribution.name, distribution.version)
    unreached = not listing.all_reached(distribution.version)
    first: tuple[str, tuple[str, ...]] | None = None
    for wheel in likeliest(wheels, distribution, layout.version):
        try:
            with _archive(wheel, listing.settings) as archive:
                differing = differences(archive, distribution, layout, digests)
            if not differing and (known := _with_hash(wheel, listing.settings)).sha256:
                return Match(known)
        except (OSError, zipfile.BadZipFile, UnicodeDecodeError, csv.Error, EOFError) as error:
            first = first or (f"{wheel.filename} could not be read: {error}", ())
            unreached = unreached or isinstance(error, OSError)
            continue
        if first is None:
            said = f"differs from {wheel.filename}" if differing else f"{host(wheel.url)} gives no hash for it"
            first = said, differing
    if first is not None:
        return Match(None, first[0], first[1], unreached and not first[1])
    if unreached:
        return Match(None, "not every index was reached", (), unreached=True)
    return Match(None, "no index has its wheel")


@contextmanager
def _archive(wheel: Wheel, settings: IndexSettings) -> Iterator[zipfile.ZipFile]:
    path = local_path(wheel.url)
    with path.open("rb") if path else RangeFile(wheel.url, settings) as file, zipfile.ZipFile(file) as archive:
        yield archive


def _with_hash(wheel: Wheel, settings: IndexSettings) -> Wheel:
    """``wheel`` with its SHA-256: of the file itself, where its page has none and it is here or small."""
    if wheel.sha256:
        return wheel
    if path := local_path(wheel.url):
        with path.open("rb") as file:
            return wheel._replace(sha256=hashlib.file_digest(file, "sha256").hexdigest())
    with opened(wheel.url, settings) as answer:
        size = answer.headers.get("Content-Length", "")
        small = size.isdecimal() and int(size) <= WHOLE_LIMIT
        return wheel._replace(sha256=hashlib.sha256(answer.read()).hexdigest()) if small else wheel


def differences(
    archive: zipfile.ZipFile, distribution: Distribution, layout: Layout, digests: Digests
) -> tuple[str, ...]:
    """What tells the installed distribution from the wheel ``archive``: paths from the environment's root."""
    place = scheme(distribution, layout)
    rows = _rows(archive)
    members = {place.key(name): name for name in archive.namelist() if not name.endswith("/")}
    members = {key: name for key, name in members.items() if not is_installers(name) and not is_bytecode(name)}
    installed = {place.key_of_path(claim.path): claim.path for claim in claims(distribution, layout)}
    differing = members.keys() ^ installed.keys()
    read = 0
    for key in members.keys() & installed.keys():
        name, path = members[key], installed[key]
        row = rows.get(name)
        if row is not None and digest_on_disk(path, row.algorithm, digests) == row.digest:
            continue
        # Either the file was changed, or it is a script with a line of its own, or the wheel's RECORD is wrong.
        read += archive.getinfo(name).file_size
        if read > WHOLE_LIMIT or not _same_bytes(archive.read(name), path, place):
            differing.add(key)
    return tuple(sorted(differing))


def _rows(archive: zipfile.ZipFile) -> dict[str, _Row]:
    """The wheel's own RECORD, by member. Raises BadZipFile where it has none."""
    names = [name for name in archive.namelist() if name.count("/") == 1 and name.endswith(".dist-info/RECORD")]
    if len(names) != 1:
        raise zipfile.BadZipFile(f"{len(names)} RECORDs in it")
    table = csv.reader(io.StringIO(archive.read(names[0]).decode("utf-8"), newline=""))
    rows = {}
    for row in table:
        algorithm, _, value = row[1].partition("=") if len(row) > 1 else ("", "", "")
        if value and algorithm in _ALGORITHMS:
            rows[row[0].replace("\\", "/")] = _Row(algorithm, value.rstrip("="))
    return rows


def digest_on_disk(path: str, algorithm: str, digests: Digests) -> str:
    """The digest of the file's bytes as a RECORD spells it: the known one, or computed. "" for a file that is gone."""
    if (path, algorithm) in digests:
        return digests[path, algorithm]
    try:
        with Path(path).open("rb") as file:
            return record_spelling(hashlib.file_digest(file, algorithm).digest())
    except OSError:
        return ""


def record_spelling(digest: bytes) -> str:
    """A digest as a RECORD spells it."""
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _same_bytes(content: bytes, path: str, place: Scheme) -> bool:
    """Whether the file is the member: to the byte, but for the first line of a script that its installer wrote."""
    try:
        on_disk = Path(path).read_bytes()
        if on_disk == content:
            return True
        rest = after_placeholder(content) if path.startswith(place.scripts + "/") else None
        return rest is not None and on_disk[original_start(path, place.scripts).length :] == rest
    except OSError:
        return False
