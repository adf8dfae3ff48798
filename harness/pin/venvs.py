"""Build locked environments with uv, and keep them what their locks say. Standard library only.

An environment is ``<state>/envs/NAME-DIGEST-py3.11``, DIGEST being its lock's: a new lock makes a new folder, so
nothing that runs is changed under its feet. A folder without its marker is never used.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.errors import EnvironmentFault
from harness.pin.aside import MARKER, Say, build_once, exclusive, is_complete, lock_file, replace_text, say_on_stderr
from harness.pin.doctor.checks import as_built
from harness.pin.environments import by_preference, choose_python, environment, load_environments, lock_for
from harness.pin.first_uv import fetch_uv
from harness.pin.indexes import IndexSettings, local_path, pip_settings, uv_variables
from harness.places import Places, places
from harness.records import Environment, Listed, Lock, Pin

_TOOLS = "tools"
"""The environment with uv itself, which the others are built with."""

_MISLEADING = ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "UV_SYSTEM_PYTHON", "UV_TARGET", "UV_PREFIX")
"""Variables that would make uv or its Python look at another environment."""

_SYNC_OPTIONS = (
    # Files are copied out of uv's cache, not hard-linked: a linked file that is edited in one environment is edited
    # in the cache and in every other. On ext4 and two busy cores, 1.6 GB takes 43 s copied and 6 s linked; where the
    # file system can share blocks, a copy costs no more than a link.
    "--link-mode=copy",
    "--require-hashes",
    "--no-build",  # a build would run code that no lock has pinned
)

_HARNESS_SCRIPT = """\
#!/bin/sh
'''exec' "$(dirname -- "$(realpath -- "$0")")/python" "$0" "$@"
' '''
# Starts the harness of the checkout whose .venv this is called through; no path is written down, so that the
# checkout may be moved and one environment may serve several.
import pathlib
import sys

called = pathlib.Path(sys.argv[0]).absolute()
while not (roots := [root for root in called.parents if (root / "harness" / "cli.py").is_file()]):
    if not called.is_symlink():
        sys.exit(f"{called} is outside a checkout; call CHECKOUT/.venv/bin/harness")
    called = called.parent / called.readlink()
sys.path[0] = str(roots[0])

from harness.cli import main

sys.exit(main())
"""


@dataclass(frozen=True)
class Built:
    """An environment that is there."""

    name: str
    folder: Path
    python: Path
    site_packages: Path
    version: str  # "3.11"
    lock: Lock


def _target(env: Environment, version: str, where: Places) -> Built:
    """Where ``env`` is, or would be, under the Python ``version``."""
    lock = lock_for(env, version, where)
    folder = where.environment(f"{env.name}-{lock.digest[:12]}-py{version}")
    packages = folder / "lib" / f"python{version}" / "site-packages"
    return Built(env.name, folder, folder / "bin" / "python", packages, version, lock)


def _marker(target: Built) -> dict[str, str]:
    return {"env": target.name, "lock": target.lock.digest, "python": target.version}


def _find_built(env: Environment, where: Places, versions: tuple[str, ...]) -> Built | None:
    """``env`` where it is built already, for the first of ``versions``; starts no process."""
    targets = (_target(env, version, where) for version in versions)
    return next((target for target in targets if is_complete(target.folder, _marker(target))), None)


def find(name: str, where: Places) -> Built | None:
    """The environment ``name`` where it is built already. Raises UsageError for a name that there is not."""
    env = environment(name, where)
    return _find_built(env, where, by_preference(env))


def ensure(name: str, where: Places | None = None, python: str | None = None, say: Say = say_on_stderr) -> Built:
    """The environment ``name``, built if it is not there: milliseconds when it is.

    ``python`` ("3.12") asks for one version; otherwise it is the running one where the lock holds for it.
    Raises UsageError for an unknown environment or version, EnvironmentFault where it cannot be built.
    """
    where = where or places()
    env = environment(name, where)
    if found := _find_built(env, where, (python,) if python else by_preference(env)):
        return found
    version, interpreter = choose_python(env, python)
    target = _target(env, version, where)
    uv = _uv_at_hand(where) if name == _TOOLS else find_uv(where, say)

    def build(folder: Path, lock_fd: int) -> None:
        say(f"setting up {name} ({len(target.lock.pins)} packages, Python {version}) in {target.folder}")
        seed = folder.with_name("seed")
        run = _Uv(uv or fetch_uv(target.lock, interpreter, seed, lock_fd), target, lock_fd, seed)
        run("venv", "--quiet", "--relocatable", "--no-project", "--python", interpreter, folder)
        run.sync(env, folder / "bin" / "python")
        as_built.write(folder, folder / target.site_packages.relative_to(target.folder))

    build_once(target.folder, _marker(target), build, say)
    return target


def sync(name: str, where: Places | None = None, say: Say = say_on_stderr) -> Built:
    """The environment ``name``, equal to its lock: built, or its packages put back to the locked versions."""
    where = where or places()
    target = ensure(name, where, say=say)
    uv = find_uv(where, say)
    with exclusive(lock_file(target.folder), f"waiting for another set-up of {name} to end ...", say) as lock_fd:
        _Uv(uv, target, lock_fd).sync(environment(name, where), target.python)
    return target


def _uv_at_hand(where: Places) -> Path | None:
    """The pinned uv of the environment that this runs in, or of a tools environment that is built already."""
    if (Path(sys.prefix) / MARKER).exists() and (uv := Path(sys.prefix) / "bin" / "uv").exists():
        return uv
    tools = environment(_TOOLS, where)
    found = _find_built(tools, where, by_preference(tools))
    return found.folder / "bin" / "uv" if found else None


def find_uv(where: Places, say: Say = say_on_stderr) -> Path:
    """The pinned uv; the tools environment is built for it where it is not at hand."""
    return _uv_at_hand(where) or ensure(_TOOLS, where, say=say).folder / "bin" / "uv"


@dataclass(frozen=True)
class _Uv:
    """uv, told of pip's settings. Its progress and its own account of a failure go to the terminal."""

    program: Path
    target: Built
    lock_fd: int
    links: Path | None = None  # one more folder of wheels

    def __call__(self, *arguments: str | Path, pages: tuple[str, ...] = (), own: tuple[str, ...] = ()) -> None:
        if not self.succeeds(*arguments, pages=pages, own=own):
            name, version = self.target.name, self.target.version
            raise EnvironmentFault(
                f"{name} could not be set up for Python {version}: uv's own words are above; "
                f"mend that and try again: harness sync {name}"
            )

    def succeeds(self, *arguments: str | Path, pages: tuple[str, ...] = (), own: tuple[str, ...] = ()) -> bool:
        """Run uv; whether it did what it was told."""
        settings = pip_settings()
        if self.links and self.links.exists():
            settings = replace(settings, find_links=(*settings.find_links, str(self.links)))
        environ = {key: value for key, value in os.environ.items() if key not in _MISLEADING}
        environ |= uv_variables(settings, [pin.name for pin in self.target.lock.pins], pages, own=own)
        return self._code([self.program, *arguments], environ) == 0

    def _code(self, command: list[str | Path], environ: dict[str, str]) -> int:
        """Run uv and pass its words on, but not a line for each of a hundred packages."""
        options: dict[str, Any] = {"env": environ, "pass_fds": (self.lock_fd,), "stdout": sys.stderr}
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **options) as process:
            assert process.stderr is not None
            try:
                for line in process.stderr:
                    if not line.startswith((" + ", " - ", " ~ ")):
                        sys.stderr.write(line)
                        sys.stderr.flush()
            except BaseException:  # it must not write on while its folder is swept
                process.terminate()
                process.wait()
                raise
        return process.returncode

    def sync(self, env: Environment, python: Path) -> None:
        """Make the environment of ``python`` hold the lock's pins and nothing else."""
        pages = _extra_pages(env, self.target, pip_settings())
        own = _own_indexes(env)
        self("pip", "sync", *_SYNC_OPTIONS, "--python", python, self.target.lock.path, pages=pages, own=own)


def install(target: Built, env: Environment | None, uv: Path, lock_fd: int, *arguments: str | Path) -> bool:
    """``uv pip install`` as it is run for ``target``, anybody's environment: from the same places, and hashes required.

    False where uv fails; its own words are on the terminal then.
    """
    pages, own = (_extra_pages(env, target, pip_settings()), _own_indexes(env)) if env else ((), ())
    command = ("pip", "install", "--no-deps", *_SYNC_OPTIONS, *arguments)
    return _Uv(uv, target, lock_fd).succeeds(*command, pages=pages, own=own)


def _own_indexes(env: Environment) -> tuple[str, ...]:
    """The indexes of the environment's own wheels. Raises EnvironmentFault where they are not here."""
    for folder in env.wheels:
        if not Path(folder).is_dir():
            raise EnvironmentFault(
                f"{env.name} needs wheels that no index has: copy {folder} from where it was captured"
            )
    return tuple(Path(folder).as_uri() for folder in env.wheels)


def _extra_pages(env: Environment, target: Built, settings: IndexSettings) -> tuple[str, ...]:
    """The pages of the extra index that have to be asked: for a file that no folder of find-links holds.

    Only that index has versions with a local part (torch 2.13.0+cpu); a machine with the file may not reach it.
    """
    tag = f"cp{target.version.replace('.', '')}"
    folders = [folder for link in settings.find_links if (folder := local_path(link))]

    def here(pin: Pin) -> bool:
        pattern = f"{pin.name.replace('-', '_')}-{pin.version}-*{tag}*.whl"
        own = any(Path(folder, pin.name).is_dir() for folder in env.wheels)
        return own or any(any(folder.glob(pattern)) for folder in folders)

    pins = [pin for pin in target.lock.pins if "+" in pin.version] if env.extra_index else []
    return tuple(f"{env.extra_index}/{pin.name}/" for pin in pins if not here(pin))


def link_harness(where: Places | None = None, say: Say = say_on_stderr) -> Built:
    """The harness environment, with ``.venv`` at the root pointing to it and ``.venv/bin/harness`` in it."""
    where = where or places()
    built = ensure("harness", where, say=say)
    replace_text(built.folder / "bin" / "harness", _HARNESS_SCRIPT, mode=0o755)
    link = where.root / ".venv"
    inside = built.folder.is_relative_to(where.root)
    to = built.folder.relative_to(where.root) if inside else built.folder  # relative: the checkout may be moved
    if link.is_symlink() and link.readlink() == to:
        return built
    if link.exists() and not link.is_symlink():
        raise EnvironmentFault(f"{link} is a folder that the harness did not make; move it away: mv .venv .venv-old")
    temporary = link.with_name(f".venv-{os.getpid()}")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(to)
    temporary.replace(link)
    return built


def data_folder(where: Places | None = None, say: Say = say_on_stderr) -> Path:
    """The folder into which the data environment's packages are unpacked."""
    return ensure("data", where, say=say).site_packages


def list_environments(where: Places | None = None) -> tuple[Listed, ...]:
    """Every environment of ``envs.toml``: what its lock says, and whether it is built."""
    where = where or places()
    return tuple(_listed(env, where) for env in load_environments(where).values())


def _listed(env: Environment, where: Places) -> Listed:
    versions = by_preference(env)
    found = _find_built(env, where, versions)
    target = found or _target(env, versions[0], where)
    torch = next((pin.version for pin in target.lock.pins if pin.name == "torch"), None)
    return Listed(
        name=env.name,
        purpose=env.purpose,
        python=env.python,
        torch=torch,
        cuda=env.cuda,
        lock_digest=target.lock.digest,
        built=found is not None,
        path=str(target.folder),
    )
