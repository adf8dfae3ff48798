"""Which wheels the configured places have, by the pages and folders that pip would look at."""

from __future__ import annotations

import re
import urllib.error
import urllib.parse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import BuildTag, InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from harness.pin.doctor.installed.installation import Distribution
from harness.pin.indexes import IndexSettings, host, local_path, opened, page_links

PYTORCH = "https://download.pytorch.org/whl"
_PYTORCH_BUILD = re.compile(r"cpu|cu\d+|xpu|rocm[\d.]+")


class Wheel(NamedTuple):
    """A wheel that some place lists."""

    filename: str
    url: str  # or a path
    sha256: str  # as the page says; "" where it does not
    version: Version
    build: BuildTag
    tags: frozenset[Tag]


@dataclass
class Listing:
    """The places that are asked. A host that was not reached once is not asked again.

    extra  one more index, for versions with a local part ("2.11.0+cu128") alone; the builder asks it for no others
    """

    settings: IndexSettings
    extra: str | None
    unreached: dict[str, str] = field(default_factory=dict)  # host -> why
    _links: list[str] | None = None

    def wheels(self, name: str, version: str) -> tuple[Wheel, ...]:
        """Every wheel of the release, each file once, the likeliest place first."""
        links = [
            *self._found_links(),
            *(link for index in self._indexes(version) for link in self._page_of(index, name)),
        ]
        found = {wheel.filename + wheel.sha256: wheel for wheel in _wheels(links, name, version)}
        return tuple(found.values())

    def all_reached(self, version: str) -> bool:
        """Whether every place that may have the version has answered so far."""
        return not any(host(place) in self.unreached for place in (*self.settings.find_links, *self._indexes(version)))

    def _indexes(self, version: str) -> tuple[str, ...]:
        extra = (self.extra,) if self.extra and "+" in version and not self.settings.no_index else ()
        return (*self.settings.indexes, *extra)

    def _found_links(self) -> list[str]:
        """What the find-links places hold; read once."""
        if self._links is None:
            self._links = [link for place in self.settings.find_links for link in self._links_of(place)]
        return self._links

    def _links_of(self, place: str) -> list[str]:
        folder = local_path(place)
        if folder is None or folder.suffix in (".html", ".htm"):
            return self._page(place if folder is None else folder.absolute().as_uri())
        return [str(path) for path in sorted(folder.glob("*.whl"))]

    def _page_of(self, index: str, name: str) -> list[str]:
        folder = local_path(index)
        return self._page(f"{index}/{name}/" if folder is None else (folder / name / "index.html").absolute().as_uri())

    def _page(self, url: str) -> list[str]:
        """The links of a page; none where the server does not know it, or is not reached."""
        where = host(url)
        if where in self.unreached:
            return []
        try:
            with opened(url, self.settings, {"Accept": "text/html"}) as answer:
                return page_links(answer.read().decode("utf-8", "replace"), url)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code not in (403, 404, 410):  # the name is not there; storage without a right to list says 403
                self.unreached[where] = f"it answers {error.code}"
        except OSError as error:
            if not isinstance(getattr(error, "reason", None), FileNotFoundError):  # a mirror on disk, without the name
                self.unreached[where] = str(error)
        return []


def _wheels(links: list[str], name: str, version: str) -> Iterator[Wheel]:
    wanted = _version(version)
    for link in links:
        address, _, fragment = link.partition("#")
        filename = urllib.parse.unquote(address.rpartition("/")[2])
        try:
            found, of, build, tags = parse_wheel_filename(filename)
        except (InvalidWheelFilename, InvalidVersion):
            continue
        if found == name and of == wanted:
            sha256 = re.search(r"(?:^|&)sha256=([0-9a-f]{64})(?:&|$)", fragment)
            yield Wheel(filename, address, sha256[1] if sha256 else "", of, build, tags)


def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None


def likeliest(wheels: tuple[Wheel, ...], distribution: Distribution, python: str) -> list[Wheel]:
    """Those that this machine's ``python`` ("3.12") could have installed, the one with the recorded tags first.

    What WHEEL records is no filter: the tags there are those of the build, and a file may have been renamed since.
    """
    version = tuple(int(part) for part in python.split(".")[:2])
    abi = f"cp{version[0]}{version[1]}"
    usable = set(cpython_tags(version)) | set(compatible_tags(version, interpreter=abi))
    recorded = set(distribution.tags)

    def distance(wheel: Wheel) -> tuple[int, bool, bool]:
        build = "".join(map(str, wheel.build))
        return -len(recorded & {str(tag) for tag in wheel.tags}), build != distribution.build, not wheel.sha256

    return sorted((wheel for wheel in wheels if wheel.tags & usable), key=distance)


def extra_index(distributions: tuple[Distribution, ...], known: Iterable[str]) -> str | None:
    """PyTorch's index for the build that is installed: only there are versions such as 2.11.0+cu128 listed.

    ``known`` are the extra indexes in use: one of them may be a mirror, with the indexes of other builds beside it.
    """
    by_name = sorted(distributions, key=lambda distribution: (distribution.name != "torch", distribution.name))
    builds = (distribution.version.partition("+")[2] for distribution in by_name)
    build = next((build for build in builds if _PYTORCH_BUILD.fullmatch(build)), None)
    beside = (index.rpartition("/") for index in known)
    base = next((base for base, _, last in beside if _PYTORCH_BUILD.fullmatch(last)), PYTORCH)
    return f"{base}/{build}" if build else None
