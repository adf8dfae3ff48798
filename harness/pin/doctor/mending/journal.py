"""Exchange files of an environment so that the old ones can be put back, whatever died in the middle.

    PREFIX/.harness-mending/manifest.json   what is exchanged; there while the environment is neither old nor new
    PREFIX/.harness-mending/old/...         what was taken out, under its path in the environment
    PREFIX/.harness-mending/new/...         what will be put in, complete and verified before anything is moved

Files are moved by renaming alone, on one file system: bytes, times, modes and inodes stay, and a process that has an
old library mapped keeps it. Paths are relative to the environment's prefix.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from harness.errors import EnvironmentFault
from harness.pin.aside import MARKER, Say, exclusive, lock_file

FOLDER = ".harness-mending"


@dataclass(frozen=True)
class _Manifest:
    """What is exchanged."""

    old: tuple[str, ...]  # files that are taken out
    new: tuple[str, ...]  # files that are put in; what stood at such a path is in ``old``
    made: tuple[str, ...]  # folders that are there for the new files alone


def interrupted(prefix: Path) -> bool:
    """Whether an exchange began in this environment and did not end: it is neither the old one nor the new."""
    return os.path.lexists(_manifest(prefix))


@contextlib.contextmanager
def alone(prefix: Path, say: Say) -> Iterator[int]:
    """Keep other menders and set-ups out. Yields the lock's descriptor, for the processes that must hold it too."""
    foreign = not (prefix / MARKER).exists() and (prefix / "pyvenv.cfg").exists()
    # Nothing new beside a venv of somebody else: its own settings are locked, and not written.
    guard = prefix / "pyvenv.cfg" if foreign else lock_file(prefix)
    with exclusive(guard, f"waiting for another change of {prefix} to end ...", say) as lock:
        yield lock


@contextlib.contextmanager
def workspace(prefix: Path) -> Iterator[Path]:
    """The empty folder for the new files, on the environment's file system; nothing is left of it at the end."""
    if interrupted(prefix):
        raise EnvironmentFault(f"an exchange of files in {prefix} was interrupted: it has to be rolled back first")
    shutil.rmtree(prefix / FOLDER, ignore_errors=True)
    (prefix / FOLDER).mkdir()  # fails where a link stands there
    new = prefix / FOLDER / "new"
    try:
        new.mkdir()
        yield new
    finally:
        if not interrupted(prefix):
            shutil.rmtree(prefix / FOLDER, ignore_errors=True)


@contextlib.contextmanager
def exchanged(prefix: Path, old: Iterable[str], new: Iterable[str]) -> Iterator[None]:
    """Take the files ``old`` out and put ``new`` in from the workspace; what stands at a new path goes out too.

    If the body ends without an error they stay; after one, and after any failure in here, the old ones are back.
    What is not there is not missed. Raises OSError, or EnvironmentFault for a path that leads out.
    """
    placed = sorted(set(new))
    taken = sorted({path for path in (*old, *placed) if _is_file(prefix / path)})
    _check_inside(prefix, (*taken, *placed))
    folders = {str(folder) for path in placed for folder in Path(path).parents}
    made = sorted(folder for folder in folders if not (prefix / folder).is_dir())
    try:
        _sync_file_system(prefix)
        (prefix / FOLDER / "old").mkdir()
        _begin(prefix, _Manifest(tuple(taken), tuple(placed), tuple(made)))
        for path in taken:
            _move(path, prefix, prefix / FOLDER / "old")
        _prune(prefix, taken)
        for path in placed:
            _move(path, prefix / FOLDER / "new", prefix)
        yield
        _end(prefix)
    except BaseException as error:
        try:
            roll_back(prefix)
        except OSError as second:
            raise EnvironmentFault(
                f"{prefix} is unusable: mending it failed ({error!r}), and so did putting its files back ({second}); "
                f"what was taken out is in {prefix / FOLDER / 'old'}"
            ) from error
        raise


def roll_back(prefix: Path) -> bool:
    """Put back what an exchange took out, and take out what it put in; False where none was begun. May be repeated.

    Raises EnvironmentFault where the manifest is not one of ours, OSError where a file cannot be moved.
    """
    if not interrupted(prefix):
        return False
    manifest = _read(prefix)
    old, new = prefix / FOLDER / "old", prefix / FOLDER / "new"
    replacing = set(manifest.old)
    for path in manifest.new:
        not_yet_there = os.path.lexists(new / path)
        still_the_old = path in replacing and not os.path.lexists(old / path)
        if not (not_yet_there or still_the_old):
            # A folder there, or a file in the place of its folder, is what an earlier try to roll back has put back.
            with contextlib.suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
                (prefix / path).unlink()
    # What the old files bring back, with its own mode, goes as well.
    _prune(prefix, manifest.new, lambda folder: folder in manifest.made or (old / folder).is_dir())
    for path in manifest.old:
        if os.path.lexists(old / path):
            _move(path, old, prefix)
    _end(prefix)
    shutil.rmtree(prefix / FOLDER, ignore_errors=True)
    return True


def _is_file(path: Path) -> bool:
    """Whether something is there that is no folder: one that stands where a file should go is not ours to take."""
    return os.path.lexists(path) and (path.is_symlink() or not path.is_dir())


def _move(path: str, source: Path, target: Path) -> None:
    """Rename ``source/path`` to ``target/path``; folders that are missing there get the modes that they have here."""
    for folder in reversed(Path(path).parents[:-1]):
        if not (target / folder).is_dir():
            (target / folder).mkdir(parents=True)
            shutil.copymode(source / folder, target / folder)
    (source / path).rename(target / path)


def _prune(prefix: Path, paths: Iterable[str], may: Callable[[str], bool] = lambda _: True) -> None:
    """Remove the folders of ``paths`` that are empty now, the deepest first: Python would import one as a package."""
    folders = {str(folder) for path in paths for folder in Path(path).parents[:-1]}
    for folder in sorted(folders, key=len, reverse=True):
        if may(folder):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                _remove_if_empty(prefix / folder)


def _remove_if_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise


def _check_inside(prefix: Path, paths: Sequence[str]) -> None:
    """Raise EnvironmentFault for a path that leads out of the environment, by its name or through a link."""
    real = prefix.resolve()
    for path in paths:
        if not _plain(path):
            raise EnvironmentFault(f"{path!r} is no path inside {prefix}: nothing was changed")
    for folder in {(prefix / path).parent for path in paths}:
        if not folder.resolve().is_relative_to(real):
            raise EnvironmentFault(f"{folder} leads out of the environment: nothing was changed; remove that link")


def _plain(path: str) -> bool:
    """Whether ``path`` names a file below where it starts, and in one way only."""
    return os.path.normpath(path) == path and not path.startswith(("/", "..")) and path not in (".", "")


def _manifest(prefix: Path) -> Path:
    return prefix / FOLDER / "manifest.json"


def _begin(prefix: Path, manifest: _Manifest) -> None:
    """Write the manifest, so that it is on the disk before the first file is moved."""
    path = _manifest(prefix)
    temporary = path.with_suffix(".writing")
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(asdict(manifest), file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    _sync_folder(path.parent)
    _sync_folder(prefix)


def _end(prefix: Path) -> None:
    """The environment is whole, old or new: the mark goes. File systems with a journal keep the order of renames."""
    _manifest(prefix).unlink()


def _read(prefix: Path) -> _Manifest:
    """The manifest; its paths are checked, since a roll-back removes files by them."""
    path = _manifest(prefix)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        manifest = _Manifest(*(tuple(map(str, data[name])) for name in ("old", "new", "made")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EnvironmentFault(f"{path} cannot be read ({error}): {prefix} is unusable; build it anew") from error
    paths = (*manifest.old, *manifest.new)
    _check_inside(prefix, (*paths, *(f"{FOLDER}/{side}/{path}" for side in ("old", "new") for path in paths)))
    return manifest


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_file_system(folder: Path) -> None:
    """Put everything that was written to its file system on the disk: one call for thousands of new files."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(folder))
    finally:
        os.close(descriptor)
