"""``freeze``: a working Python, as it is, made into an environment of ours."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from harness.errors import EnvironmentFault, UsageError
from harness.findings import Finding
from harness.frozen import Frozen, SavedCaches
from harness.pin.aside import Say, exclusive
from harness.pin.doctor import memory
from harness.pin.doctor.installed import layout as layouts
from harness.pin.doctor.installed.digests import digests
from harness.pin.doctor.installed.installation import Installation, Layout
from harness.pin.doctor.installed.read import read
from harness.pin.doctor.installed.stat_cache import StatCache
from harness.pin.doctor.linking.loaded import MODULES
from harness.pin.doctor.linking.probe import Failure
from harness.pin.environments import find_python, load_environments
from harness.pin.freeze import saved_caches, surroundings, wheels, write
from harness.pin.freeze.listing import Listing, extra_index
from harness.pin.freeze.match import Digests
from harness.pin.freeze.pace import Paced
from harness.pin.freeze.surroundings import write_json
from harness.pin.indexes import pip_settings
from harness.pin.interpreter import ask
from harness.pin.locks import parse_pins, pins_digest
from harness.places import Places
from harness.records import Lock, Value

LARGE = 50 << 20
"""Bytes of a wheel that git should not keep."""

_UNTRACKED_LIMIT = 50 << 20  # bytes of files without an owner that are copied; of more, only the names are kept


def freeze(python: Path, name: str | None, where: Places, say: Say, broken: Sequence[Finding] = ()) -> Frozen:
    """Capture ``python`` as the environment ``name`` (None: named after its folder); nothing of it is changed.

    broken  the doctor's findings of that severity: it is captured as it is, with a warning for each

    Raises UsageError for a name that cannot be taken, and for a Python that has no packages or is not CPython;
    EnvironmentFault where it does not start or cannot be read or written. The checkout is as it was before, then.
    """
    build = surroundings.python_build(python)
    installation = read(layouts.ask(python))
    if not installation.distributions:
        raise UsageError(f"{python} has no packages: there is nothing to capture")
    records = where.state / "frozen"
    with exclusive(records / ".lock", "waiting for another capture to end ...", say):
        chosen = write.choose_name(name, installation.layout.prefix, where)
        for left in records.glob(".freezing-*"):  # by one that was killed: nobody else is at work
            shutil.rmtree(left)
        with tempfile.TemporaryDirectory(prefix=".freezing-", dir=records) as aside:
            try:
                return _Capture(chosen, installation, where, Path(aside), say).run(build, broken)
            except OSError as error:
                raise EnvironmentFault(f"{python} could not be captured: {error}; the checkout is as before") from error


@dataclass(frozen=True)
class _Capture:
    """One capture on its way: made in ``aside``, put in place at once, and only then are caches filled."""

    name: str
    installation: Installation
    where: Places
    aside: Path
    say: Say

    def run(self, build: Mapping[str, object], broken: Sequence[Finding]) -> Frozen:
        record = self.aside / "record"
        record.mkdir()
        facts = surroundings.facts(self.installation.layout)
        write_json(record / "python.json", build)
        write_json(record / "fingerprint.json", facts.to_json())
        frozen = self._gather(facts.facts, broken)
        warnings = [*frozen.warnings, *self._save_untracked(frozen.untracked, record / "untracked")]
        saved, complaint = self._save_caches(frozen, record / "caches")
        frozen = replace(frozen, caches=saved, warnings=(*warnings, *complaint))
        write_json(record / "frozen.json", frozen.to_json())
        self._put(frozen, record)
        frozen = replace(frozen, caches=self._fill(frozen, facts.facts))
        write_json(Path(frozen.folder) / "frozen.json", frozen.to_json())
        return frozen

    def _gather(self, facts: Mapping[str, Value], broken: Sequence[Finding]) -> Frozen:
        """The wheels, in ``aside``, and what there is to know of them."""
        layout, spots = self.installation.layout, write.spots(self.name, self.where)
        extras = [env.extra_index for env in load_environments(self.where).values() if env.extra_index]
        listing = Listing(pip_settings(), extra_index(self.installation.distributions, extras))
        day = time.strftime("%Y-%m-%d")
        folder = self.aside / "made"
        folder.mkdir()
        pace = Paced(self.say)
        hashed = StatCache.load(memory.index("", layout.prefix, self.where))  # the doctor has just looked at it
        known = digests(self.installation, hashed, lambda done, of: pace.say(_read_so_far(done, of))).known
        chosen = wheels.choose(self.installation, known, listing, folder, day, self.say)
        loaded, failures = self._load(known)
        large = [one for one in chosen.kept if one.bytes > LARGE]
        small = [one for one in chosen.kept if 0 < one.bytes <= LARGE]
        on_extra = any(one.source == "index" and "+" in one.version for one in chosen.kept)
        untracked = surroundings.untracked(self.installation)
        return Frozen(
            name=self.name,
            day=day,
            source=layout.prefix,
            python=layout.version,
            torch=_text(facts.get("environment.torch.build")),
            cuda=_text(facts.get("environment.cuda")),
            driver=_text(facts.get("environment.gpu.driver")),
            folder=str(spots.record),
            lock=str(spots.lock),
            lock_digest=pins_digest(parse_pins(write.lock_text("", chosen.kept, ()), spots.lock.name)),
            kept=chosen.kept,
            left_out=chosen.left_out,
            untracked=untracked,
            unreached=dict(listing.unreached),
            extra_index=listing.extra if on_extra else None,
            wheels=(*([str(spots.wheels)] if small else []), *([str(spots.large)] if large else [])),
            bytes_in_git=sum(one.bytes for one in small),
            bytes_elsewhere=sum(one.bytes for one in large),
            loaded=loaded,
            warnings=(
                *warnings(chosen, untracked, layout, broken),
                *(_made_anew(name, path) for name, path in wheels.changed_scripts(self.installation, known)),
                *map(_not_imported, failures),
            ),
        )

    def _load(self, known: Digests) -> tuple[int, tuple[Failure, ...]]:
        """Write down what the environment loads; returns how many libraries, and what could not be imported."""
        if any(name.replace("_", "-") in self.installation.by_name for name in MODULES):
            self.say("importing torch and its kind, to see what they load ...")
        loaded, failures = surroundings.loaded(self.installation, known)
        write_json(self.aside / "record" / "loaded.json", loaded)
        return len(loaded), failures

    def _save_untracked(self, paths: Sequence[str], folder: Path) -> list[str]:
        """Copy what no wheel has; a warning where it is too much of it."""
        if sum(self.installation.files[path].size for path in paths) > _UNTRACKED_LIMIT:
            return [f"the files that no RECORD claims were not copied: they have more than {_UNTRACKED_LIMIT >> 20} MB"]
        for path in paths:
            target = folder / Path(path).relative_to("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError, PermissionError):  # a link that leads nowhere, another user's file
                shutil.copy2(path, target)
        return []

    def _save_caches(self, frozen: Frozen, folder: Path) -> tuple[SavedCaches | None, list[str]]:
        found = saved_caches.sources(os.environ, frozen.python, frozen.cuda)
        needed = 2 * sum(saved_caches.size_of(path) for path in found.values())  # once to keep, once to run with
        if needed > shutil.disk_usage(self.aside).free:
            return None, [
                f"the compile caches were not copied: {needed / 1e9:,.1f} GB are not free in {self.where.state}"
            ]
        folder.mkdir()
        shared = [path for name, path in found.items() if not os.environ.get(name) and any(path.iterdir())]
        warned = [
            f"{path} may hold what other environments of this user compiled, too: all was copied" for path in shared
        ]
        try:
            return saved_caches.save(found, folder, Paced(self.say)), warned
        except OSError as error:  # the environment itself is worth more than its caches
            shutil.rmtree(folder)
            return None, [f"the compile caches were not copied: {error}"]

    def _put(self, frozen: Frozen, record: Path) -> None:
        spots = write.spots(self.name, self.where)
        folders = {record: spots.record}
        made, large = self.aside / "made", self.aside / "large"
        large.mkdir()
        for one in frozen.rebuilt:
            write.shelve(made / one.wheel, large if one.bytes > LARGE else made, one)
        folders |= {
            source: to for source, to in ((made, spots.wheels), (large, spots.large)) if str(to) in frozen.wheels
        }
        asked = {d.name for d in self.installation.by_name.values() if (Path(d.info) / "REQUESTED").exists()}
        heading = f"{self.name}, captured from {frozen.source} on {frozen.day}: Python {frozen.python}"
        texts = {
            spots.requirements: write.requirements_text(heading, frozen.kept, asked),
            spots.lock: write.lock_text(heading, frozen.kept, frozen.left_out),
        }
        write.put(self.name, self.where, texts, folders, write.table_text(frozen, self.where))

    def _fill(self, frozen: Frozen, facts: Mapping[str, Value]) -> SavedCaches | None:
        """Give the saved caches to the runs of the new environment, where those would look for them."""
        if frozen.caches is None or not frozen.caches.state.entries:
            return frozen.caches
        version = ".".join(frozen.python.split(".")[:2])
        found = find_python(version)
        if found is None or (here := ask(found).version) != frozen.python:
            has = f"this machine's Python {version} is {here}" if found else f"this machine has no Python {version}"
            return replace(frozen.caches, why_not=f"{has}, and a cache is kept for {frozen.python} alone")
        lock = Lock(self.name, (version,), frozen.lock_digest, (), frozen.lock)
        try:
            root = surroundings.cache_root(self.name, lock, facts, self.installation.layout, self.where)
            filled = saved_caches.fill(Path(frozen.folder) / "caches", root.path, Paced(self.say))
        except OSError as error:  # the capture is complete without
            return replace(frozen.caches, why_not=f"they could not be copied: {error}")
        why_not = "" if filled else f"{root.path} is not empty"
        return replace(frozen.caches, root="" if why_not else str(root.path), why_not=why_not)


def warnings(
    chosen: wheels.Wheels, untracked: Sequence[str], layout: Layout, broken: Sequence[Finding]
) -> Iterator[str]:
    """What a person must know before relying on the capture, a line each."""
    for finding in broken:
        yield f"captured broken: {finding.summary}"
    for one in chosen.left_out:
        yield f"{one.name} {one.version} is left out: {one.why}"
    for kept in chosen.kept:
        if kept.missing:
            yield f"{kept.name} is captured without {len(kept.missing)} of its files, which are gone: {kept.missing[0]}"
        if kept.outside:
            yield f"{kept.name} claims files outside the environment, which are left out: {kept.outside[0]}"
        if kept.passed_over:
            yield f"{kept.name} is an editable install; beside it in its folder and left out: {kept.passed_over[0]}"
    if untracked:
        more = f" and {len(untracked) - 1} more" if len(untracked) > 1 else ""
        yield f"no distribution has {untracked[0]}{more}, which Python could import: no wheel has it either"
    version = ".".join(layout.version.split(".")[:2])
    if find_python(version) is None:
        yield f"it is built with Python {version}, which is not found on PATH here: {layout.base_prefix} has one"


def _made_anew(name: str, path: str) -> str:
    return f"{name}'s script {path} was changed after its installer made it; it is made anew, without the change"


def _not_imported(failure: Failure) -> str:
    return f"{failure.module} cannot be imported here: {failure.error}"


def _read_so_far(done: int, total: int) -> str:
    return f"read {done / 1e6:,.0f} of {total / 1e6:,.0f} MB that are installed"


def _text(value: Value) -> str | None:
    return None if value is None else str(value)
