"""What a build is given: the commit's files, and beside them what this machine's package index needs.

The second part is for the stages that the image leaves behind. It goes through the build context because that is the
one way that a Docker engine's own interface, podman's socket, buildah and podman share.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UsageError
from harness.pin.aside import Say, exclusive, lock_file
from harness.pin.code import git
from harness.pin.image.files import files_on_disk
from harness.pin.image.names import DIRTY
from harness.pin.indexes import IndexSettings, local_path, pip_settings
from harness.places import Places
from harness.records import Environment, Lock

SETTINGS = ".build"
"""The folder of the context with what only the build has; the Dockerfile copies it into no stage that is kept."""

_INSIDE = f"/opt/dflash/{SETTINGS}"
_SENT = ("Dockerfile", ".dockerignore", "LICENSE", "envs", "experiments", "harness", "noxfile.py", "pyproject.toml")
_UV = ("UV_INDEX", "UV_DEFAULT_INDEX", "UV_NO_INDEX", "UV_INSECURE_HOST", "UV_INDEX_STRATEGY", "UV_HTTP_TIMEOUT")
_CERTIFICATES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


@dataclass(frozen=True)
class Revision:
    """The commit that is built, and when it was made: ``date`` in ISO 8601, ``epoch`` the same in seconds."""

    commit: str
    epoch: int
    date: str
    dirty: bool

    @property
    def label(self) -> str:
        return self.commit + (DIRTY if self.dirty else "")


def read_revision(root: Path, allow_dirty: bool) -> Revision:
    """What is checked out. Raises UsageError outside a git checkout, and for changes unless ``allow_dirty``."""
    shown = git(root, "show", "--no-patch", "--format=%H %ct %cI", "HEAD")
    changed = git(root, "status", "--porcelain")
    if shown is None or changed is None:
        raise UsageError(f"{root} is no git checkout with a commit, and an image says which commit it holds")
    lines = changed.decode(errors="replace").splitlines()
    if lines and not allow_dirty:
        more = f" and {len(lines) - 1} more" if len(lines) > 1 else ""
        raise UsageError(f"not committed: {lines[0][3:]}{more}; commit, or build it as it is with --allow-dirty")
    commit, epoch, date = shown.decode().split()
    return Revision(commit, int(epoch), date, bool(lines))


@contextmanager
def build_context(
    where: Places, revision: Revision, env: Environment, locks: Sequence[Lock], say: Say, environ: Mapping[str, str]
) -> Iterator[Path]:
    """A folder with what the Dockerfile copies, which nobody else may read, gone afterwards. One build at a time."""
    folder = where.state / "image"
    with exclusive(lock_file(folder), "waiting for another build of an image to end ...", say):
        shutil.rmtree(folder, ignore_errors=True)  # of a build that was killed
        folder.mkdir(mode=0o700)
        try:
            _copy_code(where.root, folder, revision)
            settings = folder / SETTINGS
            settings.mkdir()
            _bring_wheels(where, env, settings)
            variables = _bring_settings(pip_settings(environ), environ, locks, settings)
            (settings / "settings.json").write_text(json.dumps(variables, indent=1), encoding="utf-8")
            yield folder
        finally:
            shutil.rmtree(folder)


def _copy_code(root: Path, folder: Path, revision: Revision) -> None:
    """The files that git tracks, and of a changed tree the new ones, each with the rights that git keeps of it."""
    new = ("--others", "--exclude-standard") if revision.dirty else ()
    listed = git(root, "ls-files", "-z", "--cached", *new, "--", *_SENT) or b""
    for name in sorted({os.fsdecode(raw) for raw in listed.split(b"\0") if raw}):
        source, to = root / name, folder / name
        if not source.is_file():  # deleted, in a changed tree
            continue
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, to)
        to.chmod(0o755 if os.access(source, os.X_OK) else 0o644)
        os.utime(to, (revision.epoch, revision.epoch))
    for path in folder.rglob("*"):
        if path.is_dir():
            path.chmod(0o755)


def _bring_wheels(where: Places, env: Environment, settings: Path) -> None:
    """The captured environment's wheels that are too large for git."""
    for wheels in map(Path, env.wheels):
        if wheels.is_relative_to(where.state):
            shutil.copytree(wheels, settings / wheels.relative_to(where.state), copy_function=_link)


def _bring_settings(
    pip: IndexSettings, environ: Mapping[str, str], locks: Sequence[Lock], settings: Path
) -> dict[str, str]:
    """Put the files of pip's settings into ``settings``; returns the variables that say the same inside."""
    links = settings / "links"
    links.mkdir()
    for wheel in files_on_disk(locks, pip):
        if not (links / wheel.name).exists():
            _link(wheel, links / wheel.name)
    cert = pip.cert or next((environ[name] for name in _CERTIFICATES if environ.get(name)), None)
    if cert:
        shutil.copyfile(cert, settings / "ca.pem")
    found = [link for link in pip.find_links if not local_path(link)]
    found += [f"{_INSIDE}/{links.name}"] if any(links.iterdir()) else []
    told = {
        "PIP_INDEX_URL": "" if local_path(pip.index) else pip.index,
        "PIP_EXTRA_INDEX_URL": " ".join(index for index in pip.extra if not local_path(index)),
        "PIP_NO_INDEX": "1" if pip.no_index else "",
        "PIP_FIND_LINKS": " ".join(found),
        "PIP_TRUSTED_HOST": " ".join(pip.trusted_hosts),
        "PIP_CERT": f"{_INSIDE}/ca.pem" if cert else "",
        **{name: environ.get(name, "") for name in _UV},
    }
    return {name: value for name, value in told.items() if value}


def _link(source: str | Path, to: str | Path) -> None:
    """The same file under a second name; a copy where it lies on another disk."""
    try:
        os.link(source, to)
    except OSError:
        shutil.copyfile(source, to)
