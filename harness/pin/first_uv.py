"""The first uv on a machine, from the ``tools`` lock, by pip. Standard library only.

pip knows which of uv's files fits this machine. Where Python has no pip (Debian splits it off), the pip that the
lock pins is fetched from the index by hand, checked against its hash, and run from its wheel.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import urllib.error
import urllib.parse
import zipfile
from collections.abc import Iterator
from pathlib import Path

from harness.errors import EnvironmentFault
from harness.pin.indexes import IndexSettings, host, local_path, opened, page_links, pip_settings
from harness.records import Lock, Pin


def fetch_uv(lock: Lock, interpreter: Path, folder: Path, lock_fd: int) -> Path:
    """The pinned uv, downloaded into ``folder``, where its wheel stays too. Raises EnvironmentFault where it fails."""
    pins = {pin.name: pin for pin in lock.pins}
    folder.mkdir(parents=True)
    wanted = folder / "uv.txt"
    wanted.write_text(f"uv=={pins['uv'].version} {' '.join(f'--hash={h}' for h in pins['uv'].hashes)}\n")
    pip = _pip(pins["pip"], interpreter, folder)
    options = ("--require-hashes", "--no-deps", "--only-binary=:all:", "--disable-pip-version-check")
    command = [interpreter, *pip, "download", "--quiet", *options, "--dest", folder, "-r", wanted]
    done = subprocess.run(command, stdout=sys.stderr, pass_fds=(lock_fd,), check=False)
    if done.returncode != 0:
        raise EnvironmentFault("pip could not download uv: its own words are above; is the package index reached?")
    return _unpack(next(folder.glob("uv-*.whl")), folder)


def _unpack(wheel: Path, folder: Path) -> Path:
    """The program in uv's wheel, made executable."""
    with zipfile.ZipFile(wheel) as archive:
        member = next(name for name in archive.namelist() if name.endswith(".data/scripts/uv"))
        program = Path(archive.extract(member, folder))
    program.chmod(0o755)
    return program


def _pip(pin: Pin, interpreter: Path, folder: Path) -> tuple[str | Path, ...]:
    """The interpreter's arguments that run pip: its own, or else the pinned one, fetched."""
    own = subprocess.run([interpreter, "-m", "pip", "--version"], capture_output=True, check=False)
    return ("-m", "pip") if own.returncode == 0 else (_fetch_wheel(pin, pip_settings(), folder) / "pip",)


def _fetch_wheel(pin: Pin, settings: IndexSettings, folder: Path) -> Path:
    """The universal wheel of ``pin``, from the first place that has it, its hash checked."""
    name = f"{pin.name}-{pin.version}-py3-none-any.whl"
    url = next(_addresses(pin, name, settings), None)
    if url is None:
        places = (*filter(local_path, settings.find_links), *settings.indexes)
        asked = ", ".join(map(host, places)) or "none: pip is told no-index"
        raise EnvironmentFault(f"no index has {name}; asked {asked}")
    content = _read(url, settings)
    found = "sha256:" + hashlib.sha256(content).hexdigest()
    if found not in pin.hashes:
        raise EnvironmentFault(f"{name} from {host(url)} is not the file in the lock: its hash is {found}")
    (folder / name).write_bytes(content)
    return folder / name


def _addresses(pin: Pin, name: str, settings: IndexSettings) -> Iterator[str]:
    """Where the file ``name`` is: in the folders of find-links, which ask nobody, then on the indexes."""
    for path in filter(None, map(local_path, settings.find_links)):
        if (path / name).is_file():
            yield (path / name).absolute().as_uri()
    for index in settings.indexes:
        page = f"{index}/{pin.name}/" + ("index.html" if local_path(index) else "")
        for url in page_links(_read(page, settings).decode("utf-8", "replace"), page):
            if urllib.parse.unquote(urllib.parse.urlsplit(url).path).endswith("/" + name):
                yield url


def _read(url: str, settings: IndexSettings) -> bytes:
    """What the address answers; nothing where the index there does not know the name."""
    try:
        with opened(url, settings) as answer:
            return answer.read()
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 404:
            return b""  # this index does not know the name; another may
        raise EnvironmentFault(f"{host(url)} answers {error.code} for {urllib.parse.urlsplit(url).path}") from error
    except OSError as error:
        if isinstance(getattr(error, "reason", None), FileNotFoundError):
            return b""  # an index on this machine's disk, without the name
        raise EnvironmentFault(f"{host(url)} is not reached: {error}; set PIP_INDEX_URL to one that is") from error
