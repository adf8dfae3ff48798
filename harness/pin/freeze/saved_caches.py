"""Compile caches of whoever asks, copied: never moved, never deleted, and put where the new environment looks."""

from __future__ import annotations

import getpass
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from harness.frozen import SavedCaches
from harness.pin import caches
from harness.pin.freeze.pace import Paced


def sources(variables: Mapping[str, str], python: str, cuda: str | None) -> dict[str, Path]:
    """Where a process with ``variables`` keeps what it compiled, by the variable's name; only folders that are there.

    The defaults are torch's, Triton's and the driver's own. In torch's for extensions there is one folder for each
    Python and CUDA; in TORCH_EXTENSIONS_DIR there is none.
    """
    home = Path(variables.get("HOME") or Path.home())
    user = re.sub(r'[\\/:*?"<>|]', "_", getpass.getuser())
    build = f"cu{cuda.replace('.', '')}" if cuda else "cpu"
    extensions = home / ".cache" / "torch_extensions" / f"py{''.join(python.split('.')[:2])}_{build}"
    defaults = {
        "TORCHINDUCTOR_CACHE_DIR": Path(tempfile.gettempdir()) / f"torchinductor_{user}",
        "TRITON_CACHE_DIR": Path(variables.get("TRITON_HOME") or home) / ".triton" / "cache",
        "TORCH_EXTENSIONS_DIR": extensions,
        "CUDA_CACHE_PATH": home / ".nv" / "ComputeCache",
    }
    chosen = {name: Path(variables.get(name) or default) for name, default in defaults.items()}
    return {name: folder for name, folder in chosen.items() if folder.is_dir()}


def save(found: Mapping[str, Path], folder: Path, pace: Paced) -> SavedCaches:
    """Copy each of ``found`` under ``folder``, in a cache root's own layout. Raises OSError where there is no room."""
    kinds = {name: folder / caches.VARIABLES[name] for name in found}
    for name, target in kinds.items():
        _copy(found[name], target, pace)
    state = caches.inventory({name: str(target) for name, target in kinds.items()})
    return SavedCaches({caches.VARIABLES[name]: str(path) for name, path in found.items()}, state)


def size_of(folder: Path) -> int:
    """Bytes of the files in it, of which some may vanish meanwhile."""
    size = 0
    for path, _ in _files(folder):
        with suppress(FileNotFoundError):
            size += path.lstat().st_size
    return size


def fill(saved: Path, root: Path, pace: Paced) -> bool:
    """Copy the saved caches into the empty cache root; False, and nothing is touched, where it is not empty."""
    targets = [(kind, root / kind.name) for kind in sorted(saved.iterdir())]
    if any(any(target.iterdir()) for _, target in targets if target.exists()):
        return False
    for kind, target in targets:
        aside = Path(tempfile.mkdtemp(prefix=f".{kind.name}-", dir=root))
        try:
            _copy(kind, aside / kind.name, pace)
            with suppress(FileNotFoundError):
                target.rmdir()
            (aside / kind.name).rename(target)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    return True


def _copy(source: Path, target: Path, pace: Paced) -> None:
    """Every file under ``source``, times and modes with it. Another process may be at work: what vanishes is left."""
    target.mkdir(parents=True)
    done = 0
    for path, inside in _files(source):
        place = target / inside
        place.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            shutil.copy2(path, place, follow_symlinks=False)
            done += place.lstat().st_size
        pace.say(f"copying the compile caches in {source}: {done / 1e6:,.0f} MB so far")


def _files(source: Path) -> Iterator[tuple[Path, Path]]:
    """Regular files and links under ``source``, and where they are in it; sockets and pipes are nobody's cache."""
    for folder, folders, names in os.walk(source):
        for name in (*names, *(each for each in folders if Path(folder, each).is_symlink())):
            path = Path(folder, name)
            if path.is_symlink() or path.is_file():
                yield path, path.relative_to(source)
