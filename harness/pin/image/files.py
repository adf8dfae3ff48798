"""Whether every file that a lock pins is to be had here, by its hash, without downloading one.

uv's dry run finds what an index lacks, and passes a lock with hashes that no index has: those are held against what
the index's own pages say.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import urllib.error
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from packaging.markers import Marker
from packaging.tags import Tag, compatible_tags, cpython_tags, platform_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from harness.errors import EnvironmentFault
from harness.pin import venvs
from harness.pin.aside import Say
from harness.pin.indexes import IndexSettings, local_folders, local_path, opened, page_links, pip_settings
from harness.pin.locks import normalise
from harness.places import Places
from harness.records import Environment, Lock, Pin


def check_files(env: Environment, lock: Lock, python: str, where: Places, say: Say) -> None:
    """Raises EnvironmentFault, naming it, where a file that ``lock`` pins is not to be had for the Python "3.11"."""
    name = Path(lock.path).name
    if not _resolved(env, lock, python, venvs.find_uv(where, say)):
        raise EnvironmentFault(f"not every version that {name} pins is to be had: uv's own words are above")
    settings = pip_settings()
    missing = [pin for pin in _missing(env, lock, python, settings) if not env.wheels]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        wanted = f"a wheel of {missing[0].name} {missing[0].version}{more} with a hash that {name} pins"
        if settings.no_index:
            raise EnvironmentFault(f"no folder of find-links has {wanted}, and pip's no-index forbids to ask an index")
        raise EnvironmentFault(f"no index has {wanted}; lock it anew: nox -s lock -- {env.name}")


def _resolved(env: Environment, lock: Lock, python: str, uv: Path) -> bool:
    """Whether uv, told of the same places as in a build, finds a wheel for every pin."""
    with tempfile.TemporaryDirectory() as name, Path(os.devnull).open() as nothing:
        folder = Path(name)
        target = venvs.Built(env.name, folder, Path(sys.executable), folder, python, lock)
        options = ["--dry-run", "--quiet", f"--python-version={python}", f"--python={sys.executable}"]
        options += [f"--target={folder}", "--requirements", lock.path]
        return venvs.install(target, env, uv, nothing.fileno(), *options)


def _missing(env: Environment, lock: Lock, python: str, settings: IndexSettings) -> list[Pin]:
    """The pins of which neither this machine's disk nor an index has a wheel that fits and that the lock names.

    An index is one that the settings let be asked.
    """
    marker_values = {"python_version": python, "python_full_version": f"{python}.0"}
    pins = [pin for pin in lock.pins if pin.marker is None or Marker(pin.marker).evaluate(marker_values)]
    here = {_identity(path.name) for path in files_on_disk([lock], settings)}
    asked = [pin for pin in pins if (pin.name, pin.version) not in here]
    extra = env.extra_index if settings.indexes else None
    indexes = [index for index in (*settings.indexes, extra) if index and not local_path(index)]
    tags = frozenset(_tags(python))

    def listed(pin: Pin) -> bool:
        return any(_lists(f"{index}/{pin.name}/", pin, tags, settings) for index in indexes)

    with ThreadPoolExecutor(16) as pool:
        return [pin for pin, found in zip(asked, pool.map(listed, asked), strict=True) if not found]


def _tags(python: str) -> Iterator[Tag]:
    major, minor = map(int, python.split("."))
    platforms = list(platform_tags())
    yield from cpython_tags((major, minor), platforms=platforms)
    yield from compatible_tags((major, minor), f"cp{major}{minor}", platforms)


def _lists(page: str, pin: Pin, tags: frozenset[Tag], settings: IndexSettings) -> bool:
    """Whether the index's page has a wheel of the pin that fits, with a hash of the pin, or with none to compare."""
    try:
        with opened(page, settings) as answer:
            links = page_links(answer.read().decode("utf-8", "replace"), page)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code in (403, 404):
            return False
        raise EnvironmentFault(f"{urllib.parse.urlsplit(page).hostname} answers {error.code} for {pin.name}") from error
    except OSError as error:
        raise EnvironmentFault(f"{urllib.parse.urlsplit(page).hostname} is not reached: {error}") from error
    for link in links:
        parts = urllib.parse.urlsplit(link)
        name = urllib.parse.unquote(parts.path.rpartition("/")[2])
        hash_ = f"sha256:{parts.fragment.removeprefix('sha256=')}" if parts.fragment.startswith("sha256=") else ""
        if _identity(name) == (pin.name, pin.version) and _fits(name, tags) and (not hash_ or hash_ in pin.hashes):
            return True
    return False


def _identity(wheel: str) -> tuple[str, str]:
    """The distribution and version that a wheel's name says, the first as PEP 503 spells it; empty for other files."""
    if not wheel.endswith(".whl"):
        return "", ""
    name, version = wheel.split("-")[:2]
    return normalise(name), version


def _fits(wheel: str, tags: frozenset[Tag]) -> bool:
    try:
        return not tags.isdisjoint(parse_wheel_filename(wheel)[3])
    except InvalidWheelFilename:
        return False


def files_on_disk(locks: Sequence[Lock], settings: IndexSettings) -> Iterator[Path]:
    """The wheels on this machine's disk that a lock pins by their hash: no other would be installed."""
    pinned: Mapping[tuple[str, str], tuple[str, ...]] = {
        (pin.name, pin.version): pin.hashes for lock in locks for pin in lock.pins
    }
    folders = local_folders(settings, [name for name, _ in pinned])
    for wheel in sorted(path for folder in folders for path in folder.glob("*.whl")):
        hashes = pinned.get(_identity(wheel.name), ())
        if hashes and _sha256(wheel) in hashes:
            yield wheel


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
