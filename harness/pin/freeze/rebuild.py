"""A wheel made again from what is installed: RECORD says which files, the disk says which bytes.

Same input, same bytes, whatever zlib there is: nothing is compressed (git does that), no time is written down, and
what is left out is what every installer writes anew. Links are followed: the wheel has the bytes that Python reads.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
import stat
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.version import InvalidVersion, Version

from harness.errors import EnvironmentFault
from harness.pin.doctor.checks.requirements import tags_of
from harness.pin.doctor.installed.installation import Claim, Distribution, Installation
from harness.pin.freeze import editable
from harness.pin.freeze.editable import Sources
from harness.pin.freeze.match import digest_on_disk, record_spelling
from harness.pin.freeze.scheme import claims, is_bytecode, scheme
from harness.pin.freeze.shebang import NOTHING, Start, original_start

MARKER = "harness-rebuilt.json"
"""In the dist-info of a rebuilt wheel: why, when and from where."""

_EPOCH = (1980, 1, 1, 0, 0, 0)
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Origin:
    """What the marker says."""

    why: str  # "differs from click-8.1.7-py3-none-any.whl: click/core.py"
    when: str  # "2026-11-29"
    source: str  # the environment


@dataclass(frozen=True)
class Rebuilt:
    """A wheel, and what there is to know about it."""

    path: Path
    sha256: str
    bytes: int
    missing: tuple[str, ...] = ()  # claimed and not there: the wheel is without them
    outside: tuple[str, ...] = ()  # claimed, in no folder that a wheel can fill: the wheel is without them
    links: tuple[str, ...] = ()  # were links, and are files in the wheel
    passed_over: tuple[str, ...] = ()  # of an editable install's folder: could be imported, and is not in the wheel


class _Member(NamedTuple):
    """Where a member's bytes come from: ``start`` stands for the first bytes of the file, or for all of them."""

    path: str
    start: Start = NOTHING
    executable: bool = False


def wheel(distribution: Distribution, installation: Installation, folder: Path, origin: Origin) -> Rebuilt:
    """The wheel of ``distribution`` as it is on disk, in ``folder``.

    Raises EnvironmentFault where nobody knows its files: no RECORD, no METADATA, or sources that are not found.
    """
    _check(distribution)
    place = scheme(distribution, installation.layout)
    sources = _sources(distribution)
    brought = {c.path: place.member(c.path) for c in claims(distribution, installation.layout)}
    wanted = {path: member for path, member in brought.items() if path not in sources.wiring}
    there = {member: path for path, member in wanted.items() if member and Path(path).is_file()} | sources.files
    members = {member: _member(path, member, place.scripts) for member, path in there.items()}
    tags = wheel_tags(distribution, members, installation.layout.version)
    texts = dict(_texts(distribution, members, place.info, origin, tags))
    path = folder / _filename(distribution, tags)
    _write(path, members, texts, place.info)
    return Rebuilt(
        path=path,
        sha256=_sha256(path),
        bytes=path.stat().st_size,
        missing=tuple(sorted(path for path, member in wanted.items() if member and not Path(path).is_file())),
        outside=(*distribution.outside, *sorted(path for path, member in wanted.items() if not member)),
        links=tuple(sorted(member.path for member in members.values() if Path(member.path).is_symlink())),
        passed_over=sources.passed_over,
    )


def _check(distribution: Distribution) -> None:
    info = Path(distribution.info)
    lacking = [name for name in ("METADATA", "RECORD") if info.suffix != ".dist-info" or not (info / name).is_file()]
    if lacking:
        by = f" ({distribution.installer} installed it)" if distribution.installer else ""
        raise EnvironmentFault(f"it has no {lacking[0]}{by}, so that nobody knows which files are its own")
    try:
        Version(distribution.version)
    except InvalidVersion:
        raise EnvironmentFault(f"its version {distribution.version!r} is none that an installer takes") from None


def _sources(distribution: Distribution) -> Sources:
    if not distribution.editable:
        return Sources({}, frozenset(), ())
    found = editable.sources(distribution)
    if found is None:
        raise EnvironmentFault("it is an editable install whose sources are not found")
    return found


def _member(path: str, member: str, scripts: str) -> _Member:
    """Scripts get back their placeholder, and are executable wherever they are installed."""
    if ".data/scripts/" in member:
        return _Member(path, original_start(path, scripts), executable=True)
    return _Member(path, NOTHING, bool(Path(path).stat().st_mode & 0o111))


def _texts(
    distribution: Distribution, members: Mapping[str, _Member], info: str, origin: Origin, tags: Sequence[Tag]
) -> Iterator[tuple[str, bytes]]:
    """The members that are on no disk: a new marker where the one that is there tells no longer all, a lost WHEEL."""
    before = members.get(f"{info}/{MARKER}")
    if before is None or not all(_is_as_recorded(claim) for claim in distribution.claims):
        told = {"format": 1, **asdict(origin), "before": _read_json(before.path) if before else None}
        yield f"{info}/{MARKER}", (json.dumps(told, indent=1, ensure_ascii=False) + "\n").encode()
    if f"{info}/WHEEL" not in members:
        pure = "true" if tags[0].platform == "any" else "false"
        lines = [f"Root-Is-Purelib: {pure}", *(f"Tag: {tag}" for tag in tags), ""]
        yield f"{info}/WHEEL", "\n".join(["Wheel-Version: 1.0", "Generator: harness freeze", *lines]).encode()


def _read_json(path: str) -> object:
    """What an earlier marker said; its text, where somebody has edited it into something else."""
    text = Path(path).read_text(encoding="utf-8", errors="replace")
    try:
        return cast("object", json.loads(text))
    except json.JSONDecodeError:
        return text


def _is_as_recorded(claim: Claim) -> bool:
    if not claim.algorithm or is_bytecode(claim.path):
        return True
    return digest_on_disk(claim.path, claim.algorithm, {}) == claim.digest


def wheel_tags(distribution: Distribution, members: Iterable[str], python: str) -> tuple[Tag, ...]:
    """The tags for the wheel's name, sorted: those of WHEEL, unless it could not be installed by them here.

    An editable install of compiled code is called pure by some tools, and WHEEL may tell of the build, not the name.
    """
    version = tuple(int(part) for part in python.split(".")[:2])
    usable = [*cpython_tags(version), *compatible_tags(version, interpreter=f"cp{version[0]}{version[1]}")]
    recorded = tags_of(distribution)
    native = any(re.search(r"\.so(\.\d+)*$", member) for member in members)
    fitting = [tag for tag in usable if tag in recorded and not (native and tag.platform == "any")]
    if fitting:
        parts = [sorted({getattr(tag, part) for tag in recorded}) for part in ("interpreter", "abi", "platform")]
        complete = {Tag(*combination) for combination in product(*parts)} == recorded
        return tuple(sorted(recorded, key=str)) if complete else (fitting[0],)
    return (_native_tag(usable) if native else Tag("py3", "none", "any"),)


def _native_tag(usable: Sequence[Tag]) -> Tag:
    """The interpreter's own tag, for this machine alone: ``cp312-cp312-linux_x86_64``."""
    own = [tag for tag in usable if (tag.interpreter, tag.abi) == (usable[0].interpreter, usable[0].abi)]
    return next((tag for tag in own if tag.platform.startswith("linux_")), own[0])


def _filename(distribution: Distribution, tags: Sequence[Tag]) -> str:
    """The wheel's name, with the tags in their compressed form."""
    parts = [".".join(sorted({getattr(tag, part) for tag in tags})) for part in ("interpreter", "abi", "platform")]
    name, version = distribution.name.replace("-", "_"), distribution.version.replace("-", "_")
    build = [distribution.build] if re.fullmatch(r"\d\w*", distribution.build) else []
    return "-".join([name, version, *build, *parts]) + ".whl"


def _write(path: Path, members: Mapping[str, _Member], texts: Mapping[str, bytes], info: str) -> None:
    """The archive: the dist-info last, and RECORD after everything that it lists."""
    rows = io.StringIO()
    record = csv.writer(rows, lineterminator="\n")
    names = sorted({*members, *texts}, key=lambda name: (name.startswith(info + "/"), name))
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            if name in texts:
                digest, size = _add(archive, name, io.BytesIO(texts[name]), NOTHING, len(texts[name]), False)
            else:
                member = members[name]
                with Path(member.path).open("rb") as file:
                    length = Path(member.path).stat().st_size
                    digest, size = _add(archive, name, file, member.start, length, member.executable)
            record.writerow([name, f"sha256={digest}", size])
        record.writerow([f"{info}/RECORD", "", ""])
        content = rows.getvalue().encode()
        _add(archive, f"{info}/RECORD", io.BytesIO(content), NOTHING, len(content), False)


def _add(
    archive: zipfile.ZipFile, name: str, file: BinaryIO, start: Start, length: int, executable: bool
) -> tuple[str, int]:
    """Copy ``file`` into the archive; returns the digest, as a RECORD spells it, and the size of what was written."""
    entry = zipfile.ZipInfo(name, _EPOCH)
    entry.create_system = 3  # the mode counts, wherever this is written
    entry.external_attr = (stat.S_IFREG | (0o755 if executable else 0o644)) << 16
    entry.file_size = length - start.length + len(start.text)
    digest, size = hashlib.sha256(), 0
    file.seek(start.length)
    with archive.open(entry, "w") as target:
        chunk = start.text or file.read(_CHUNK)
        while chunk:
            digest.update(chunk)
            size += target.write(chunk)
            chunk = file.read(_CHUNK)
    return record_spelling(digest.digest()), size


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
