"""One dist-info or egg-info folder, read as data: anybody may have written it, so nothing in it is trusted.

Formats: https://packaging.python.org/specifications/recording-installed-packages/, /core-metadata/, /direct-url/
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from email import message_from_string
from email.message import Message
from pathlib import Path

from harness.pin.doctor.installed.installation import Claim, Distribution
from harness.pin.doctor.installed.record_file import parse_record
from harness.pin.locks import normalise

_LARGEST = 64 << 20
"""Bytes of a metadata file that is still read: a RECORD of 100,000 rows has about 10 MB."""

_LEFT_OVER = ("~", "-")  # what pip renames a folder to while it uninstalls
_WITHOUT_RECORD = frozenset(("conda", "debian", "rpm"))
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+!_-]*")  # also of those that are older than PEP 440


def distributions_in(site: str, root: str) -> Iterator[Distribution]:
    """What is installed in the folder ``site``, in the folder's own order, which is the order that Python finds it in.

    ``root`` is where else the files of a distribution may be.
    """
    try:
        names = os.listdir(site)  # noqa: PTH208 - its order is the one that importlib.metadata sees
    except OSError:  # never made, or closed to us: the walk says so
        return
    for name in names:
        path = Path(site, name)
        stem, ending = path.stem, path.suffix
        if stem.startswith(_LEFT_OVER):
            continue
        if ending == ".dist-info":
            yield _Folder(path, site, stem).dist_info(root)
        elif ending == ".egg-info":
            yield _Folder(path, site, stem).egg_info(root)
        elif ending == ".egg" and (path / "EGG-INFO").is_dir():
            yield _Folder(path / "EGG-INFO", site, stem).egg_info(root)
        elif ending == ".egg-link":
            yield _Folder(path, site, stem).egg_link(root)


class _Folder:
    """A folder of metadata, and what turned out to be wrong with it while it was read."""

    def __init__(self, path: Path, site: str, stem: str) -> None:
        self.path, self.site, self.stem = path, site, stem
        self.problems: list[str] = []

    def dist_info(self, root: str) -> Distribution:
        name, version, requires = self._metadata("METADATA")
        wheel = _headers(self._text("WHEEL") or "")
        installer = (self._text("INSTALLER") or "").strip()
        url = self._direct_url()
        claims, outside = self._record(root, installer)
        folder = url.get("dir_info")
        return Distribution(
            name=name,
            version=version,
            info=str(self.path),
            site=self.site,
            claims=claims,
            requires=requires,
            tags=tuple(str(tag).strip() for tag in wheel.get_all("Tag", [])),
            build=str(wheel.get("Build", "")).strip(),
            installer=installer if _NAME.fullmatch(installer) else "",
            direct_url=url,
            editable=isinstance(folder, dict) and folder.get("editable") is True,
            outside=outside,
            problems=tuple(self.problems),
        )

    def egg_info(self, root: str, editable: bool = False) -> Distribution:
        """As setuptools and Debian write it: no hashes, and often no list of files."""
        where = self.path.parent if self.path.is_file() else self.path
        name, version, requires = self._metadata("" if self.path.is_file() else "PKG-INFO")
        listed = [] if self.path.is_file() else (self._text("installed-files.txt") or "").splitlines()
        rows = "".join(f'"{where / row}",,\n' for row in listed if row and '"' not in row)
        record = parse_record(rows.encode("utf-8", "surrogateescape"), self.site, root)
        return Distribution(
            name=name,
            version=version,
            info=str(self.path),
            site=self.site,
            claims=record.claims,
            requires=requires or tuple(_egg_requires(self._text("requires.txt") or "")),
            editable=editable,
            outside=record.outside,
            problems=(*self.problems, *record.problems),
        )

    def egg_link(self, root: str) -> Distribution:
        """What ``setup.py develop`` leaves: the first line says where the sources and their egg-info are."""
        lines = (self._text("") or "").splitlines()
        name = re.sub(r"[^A-Za-z0-9.]+", "_", self.stem)
        info = Path(self.site, lines[0].strip() if lines and "\0" not in lines[0] else "", f"{name}.egg-info")
        return _Folder(info, self.site, self.stem).egg_info(root, editable=True)

    def _metadata(self, file: str) -> tuple[str, str, tuple[str, ...]]:
        """Name, version and requirements; the folder's own name is asked for what the file does not say."""
        text = self._text(file)
        if text is None:
            self.problems.append(f"{file or self.path.name} is missing")
        message = _headers(text or "")
        stem = re.sub(r"-py\d+(\.\d+)?$", "", self.stem)
        by_folder = stem.rpartition("-") if "-" in stem else (stem, "", "")
        name, version = (str(message.get(key, "")).strip() for key in ("Name", "Version"))
        for key, value, pattern in (("Name", name, _NAME), ("Version", version, _VERSION)):
            if text is not None and not pattern.fullmatch(value):
                self.problems.append(f"{file or self.path.name} has no valid {key}")
        name = name if _NAME.fullmatch(name) else re.sub(r"[^A-Za-z0-9._-]+", "-", by_folder[0]).strip("-._")
        version = next((v for v in (version, by_folder[2]) if _VERSION.fullmatch(v)), "")
        requires = tuple(" ".join(str(line).split()) for line in message.get_all("Requires-Dist", []))
        return normalise(name) or "unnamed", version, requires

    def _record(self, root: str, installer: str) -> tuple[tuple[Claim, ...], tuple[str, ...]]:
        data = self._bytes("RECORD")
        if data is None:
            if installer not in _WITHOUT_RECORD:
                self.problems.append("RECORD is missing")
            return (), ()
        record = parse_record(data, self.site, root)
        self.problems += record.problems
        return record.claims, record.outside

    def _direct_url(self) -> Mapping[str, object]:
        """Where it was installed from (PEP 610), or came from (PEP 710)."""
        for file in ("direct_url.json", "provenance_url.json"):
            if text := self._text(file):
                try:
                    data = json.loads(text)
                except (ValueError, RecursionError):
                    data = None
                if isinstance(data, dict):
                    return data
                self.problems.append(f"{file} is not a JSON object")
        return {}

    def _text(self, file: str) -> str | None:
        data = self._bytes(file)
        if data is None:
            return None
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            self.problems.append(f"{file or self.path.name} is not UTF-8: read as Latin-1")
            return data.decode("latin-1")

    def _bytes(self, file: str) -> bytes | None:
        """The file, or None where there is none; why one that is there was not read goes into the problems."""
        try:
            # A pipe would keep us waiting for its writer, a device for ever.
            with open(self.path / file, "rb", opener=_without_waiting) as opened:
                if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                    self.problems.append(f"{file} is not a file")
                    return b""
                data = opened.read(_LARGEST + 1)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self.problems.append(f"{file} cannot be read: {error.strerror}")
            return b""
        if len(data) > _LARGEST:
            self.problems.append(f"{file} is larger than {_LARGEST >> 20} MiB: its end was left out")
        return data[:_LARGEST]


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _headers(text: str) -> Message:
    """The header of a metadata file, without the description under it."""
    return message_from_string(re.split(r"\r?\n\r?\n", text, maxsplit=1)[0])


def _egg_requires(text: str) -> Iterator[str]:
    """The lines of requires.txt as Requires-Dist spells them: sections are ``[extra:marker]``."""
    marker = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            extra, _, condition = line.strip("[]").partition(":")
            parts = [f"({condition})"] * bool(condition) + [f'extra == "{extra}"'] * bool(extra)
            marker = " and ".join(parts)
        elif line:
            yield f"{line} ; {marker}" if marker else line
