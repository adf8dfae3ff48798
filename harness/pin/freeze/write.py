"""A captured environment written into the checkout: all of it, or nothing.

Everything is made aside; then it is put in place, the table of ``envs.toml`` last, because with that it is there.
Whatever fails on the way, Ctrl-C too, takes back what was put.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tomllib
import urllib.parse
from collections.abc import Container, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from harness.errors import EnvironmentFault, UsageError
from harness.frozen import Frozen, Kept, LeftOut
from harness.pin.aside import replace_text
from harness.pin.environments import HASHES, load_environments
from harness.places import Places

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_LIKE_A_LOCK = re.compile(r".*-py\d+")  # envs/cpu-py313.txt is the lock of cpu for one Python
_SAYS_NOTHING = frozenset(("venv", "env", "virtualenv", "conda", "usr", "local", "opt"))


@dataclass(frozen=True)
class Spots:
    """Where the parts of one captured environment go."""

    requirements: Path
    lock: Path
    wheels: Path  # in git
    large: Path  # wheels that are too large for git
    record: Path
    table: Path  # envs.toml

    def own(self) -> tuple[Path, ...]:
        """What is the environment's alone."""
        return self.requirements, self.lock, self.wheels, self.large, self.record


def spots(name: str, where: Places) -> Spots:
    envs = where.root / "envs"
    return Spots(
        requirements=envs / f"{name}.in",
        lock=envs / f"{name}.txt",
        wheels=envs / "wheels" / name,
        large=where.state / "wheels" / name,
        record=where.state / "frozen" / name,
        table=envs / "envs.toml",
    )


def choose_name(asked: str | None, prefix: str, where: Places) -> str:
    """``asked``, or a free name after the environment's folder. Raises UsageError for one that cannot be taken."""
    if asked is None:
        return _free(_name_of(Path(prefix)), where)
    if not _NAME.fullmatch(asked) or _LIKE_A_LOCK.fullmatch(asked) or asked == HASHES:
        raise UsageError(f"{asked!r} cannot name an environment; try: --name {_free(_slug(asked), where)}")
    if taken := _taken(asked, where):
        raise UsageError(f"{asked} is taken: {taken}; try: --name {_free(asked, where)}")
    return asked


def _taken(name: str, where: Places) -> str:
    """What has the name already; "" where it is free."""
    if name in load_environments(where):
        return "envs.toml has it"
    return next((f"there is {path}" for path in spots(name, where).own() if os.path.lexists(path)), "")


def _free(name: str, where: Places) -> str:
    number = 1
    while _taken(found := name if number == 1 else f"{name}-{number}", where):
        number += 1
    return found


def _name_of(prefix: Path) -> str:
    """After the folder, or the one above where it is called venv, as most are."""
    words = [part for part in reversed(prefix.parts) if _slug(part) not in _SAYS_NOTHING and part != "/"]
    return _slug(words[0]) if words else "captured"


def _slug(text: str) -> str:
    slug = re.sub(r"[^a-z0-9_]+", "-", text.lower()).strip("-_")
    slug = re.sub(r"-py(\d+)$", r"-python\1", slug)
    return slug if slug[:1].isalpha() else f"env-{slug}".rstrip("-")


def requirements_text(heading: str, kept: Sequence[Kept], asked: Container[str]) -> str:
    """``NAME.in``: everything, for nothing is resolved again; first what was ``asked`` for by name."""
    lines = [f"# {_line(heading)}.", "# The lock beside this pins the very files; it is not compiled from here."]
    groups = {
        "Asked for by name:": [one for one in kept if one.name in asked],
        "Came along:": [one for one in kept if one.name not in asked],
    }
    for title, group in groups.items():
        if group:
            lines += ["", f"# {title}", *sorted(f"{one.name}=={one.version}" for one in group)]
    return "\n".join(lines) + "\n"


def lock_text(heading: str, kept: Sequence[Kept], left_out: Sequence[LeftOut]) -> str:
    """``NAME.txt``: one hash for each distribution, that of the file which is installed."""
    lines = [
        f"# Lock of the environment {_line(heading)}.",
        "# It is not compiled. Each line pins the very file that was installed: proven against the index, byte for",
        "# byte, or else rebuilt from what was on disk, with the reason above it.",
        *(f"# LEFT OUT: {one.name} {one.version}: {_line(one.why)}" for one in left_out),
        "#",
    ]
    for one in sorted(kept, key=lambda one: one.name):
        if one.source == "rebuilt":
            lines.append(f"# rebuilt: {one.wheel}: {_line(one.why)}")
        lines += [f"{one.name}=={one.version} \\", f"    --hash=sha256:{one.sha256}"]
    return "\n".join(lines) + "\n"


def shelve(wheel: Path, index: Path, kept: Kept) -> None:
    """Move the wheel into ``index``, a package index in a folder, whose page for it carries its hash.

    Without a hash on a page uv would take a file of the same name from elsewhere, and then refuse it.
    """
    page = index / kept.name / "index.html"
    page.parent.mkdir()
    wheel.rename(page.with_name(wheel.name))
    link = f"{urllib.parse.quote(wheel.name)}#sha256={kept.sha256}"
    page.write_text(f'<!DOCTYPE html>\n<a href="{link}">{wheel.name}</a>\n', encoding="utf-8")


def _line(text: str) -> str:
    return " ".join(text.split())


def table_text(frozen: Frozen, where: Places) -> str:
    """The table of ``envs.toml``. JSON's texts and lists of texts are TOML's too."""
    torch = f": torch {frozen.torch}" if frozen.torch else ""
    settings = {
        "purpose": f"captured from {frozen.source}{torch}",
        "python": [".".join(frozen.python.split(".")[:2])],
        "cuda": frozen.cuda,
        "dependencies": False,
        "extra_index": frozen.extra_index,
        "wheels": [_from_envs(Path(folder), where) for folder in frozen.wheels] or None,
        "captured": frozen.day,
    }
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in settings.items() if value is not None]
    return "\n".join([f"[{frozen.name}]", *lines, ""])


def _from_envs(folder: Path, where: Places) -> str:
    """As envs.toml names it: from envs/, so that the checkout may be moved; whole, where it is outside the checkout."""
    inside = folder.is_relative_to(where.root)
    return os.path.relpath(folder, where.root / "envs") if inside else str(folder)


def put(name: str, where: Places, texts: dict[Path, str], folders: dict[Path, Path], table: str) -> None:
    """Put the ``texts`` and the ``folders`` (from -> to) in place, then the table.

    Raises EnvironmentFault where ``envs.toml`` could not be read with it; nothing is left behind then.
    """
    toml = spots(name, where).table
    before = toml.read_text(encoding="utf-8")
    after = before.rstrip("\n") + "\n\n" + table
    try:
        tomllib.loads(after)
    except tomllib.TOMLDecodeError as error:
        raise EnvironmentFault(f"{toml} cannot take a table for {name}: {error}") from None
    with ExitStack() as undo:
        undo.callback(replace_text, toml, before)
        for source, target in folders.items():
            _move(source, target, undo)
        for path, text in texts.items():
            undo.callback(_remove, path)
            undo.callback(_remove, path.with_name(f".{path.name}.{os.getpid()}"))
            replace_text(path, text)
        replace_text(toml, after)
        undo.pop_all()


def _move(source: Path, target: Path, undo: ExitStack) -> None:
    """Across file systems too, and never half: copied beside the target and renamed."""
    for parent in _made(target.parent):
        undo.callback(_remove_if_empty, parent)
    undo.callback(_remove, target)
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    undo.callback(_remove, beside)
    try:
        source.rename(target)
    except OSError:
        shutil.copytree(source, beside, symlinks=True)
        beside.rename(target)


def _made(folder: Path) -> Iterator[Path]:
    """Make the folder; yields each one that was made for it, the outermost first."""
    if not folder.exists():
        yield from _made(folder.parent)
        folder.mkdir()
        yield folder


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _remove_if_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
